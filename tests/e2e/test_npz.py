import numpy as np
import pytest
from checkpoint_files import errors_of

import tensorcomp
from tensorcomp.testing import nasty_arrays


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_comes_back_with_equal_arrays(save, tmp_path):
    arrays = {
        name.replace(" ", "_").replace("/", "_"): array
        for name, array in nasty_arrays().items()
        if array.dtype.kind in "biufc" and array.dtype.isbuiltin != 2
    }
    arrays["text"] = np.array(["a", "bcd"])
    path = tmp_path / "arrays.npz"
    save(path, **arrays)
    done = tensorcomp.compress(path)
    assert done.path.name == "arrays.npz.tc.safetensors"
    assert not errors_of(done.path, path)
    restored = tensorcomp.decompress(done.path, tmp_path / "again.npz")
    with np.load(path) as wanted, np.load(restored) as found:
        assert found.files == wanted.files
        for name in wanted.files:
            assert found[name].dtype == wanted[name].dtype, name
            assert found[name].shape == wanted[name].shape, name
            assert found[name].tobytes() == wanted[name].tobytes(), name
            assert found[name].flags.f_contiguous == wanted[name].flags.f_contiguous, name
