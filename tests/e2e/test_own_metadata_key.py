"""A checkpoint may have a metadata key of the manifest's name: what it holds decides."""

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorcomp
from tensorcomp.errors import CheckpointError, FormatError

FOREIGN = {
    "prose": "made with tensorcomp 0.1",
    "empty": "",
    "number": "6",
    "list": '["format", "manifest"]',
    "only a format": '{"format": 6}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("value", FOREIGN.values(), ids=FOREIGN)
def test_the_library_compresses_and_restores_it(value, tmp_path):
    source = tmp_path / "a.safetensors"
    tensors = {"w": np.random.default_rng(0).normal(size=(70, 80)).astype(np.float32)}
    save_file(tensors, source, {"format": "pt", "tensorcomp": value})
    with pytest.raises(FormatError, match="not one that tensorcomp compressed"):
        tensorcomp.decompress(source, tmp_path / "none")
    assert np.array_equal(tensorcomp.load_file(source)["w"], tensors["w"])
    packed = tensorcomp.compress(source).path
    assert all(check.error is None for check in tensorcomp.verify(packed, source))
    restored = tensorcomp.decompress(packed, tmp_path / "b.safetensors")
    assert restored.read_bytes() == source.read_bytes()
    with tensorcomp.safe_open(packed) as file:
        assert file.metadata() == {"format": "pt", "tensorcomp": value}
    with pytest.raises(CheckpointError, match="compressed it already"):
        tensorcomp.compress(packed, tmp_path / "c.safetensors")
