"""What cannot be compressed grows by a few bytes; what is there twice is free."""

from collections.abc import Callable

import numpy as np
import pytest
from checkpoint_files import write_safetensors

import tensorcomp
from tensorcomp.planning.lossless import EFFORTS

A_TENSOR = 64
A_FILE = 4096
A_DUPLICATE = 128  # its names in the manifest and the header


def _bytes(count: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda random: np.frombuffer(random.bytes(count), np.uint8)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(
    ("count", "make"),
    [
        (100, _bytes(4096)),
        (1000, _bytes(1024)),
        (1000, _bytes(1)),
        (300, lambda random: _bytes(4000)(random).view(np.float32).reshape(10, 100)),
        (10, lambda random: _bytes(40_000)(random).view(np.float32).reshape(100, 100)),
        (10, lambda random: _bytes(40_000)(random).view(np.float16)),
        (10, lambda random: _bytes(40_000)(random).view(np.float64).reshape(50, 100)),
        (10, lambda random: _bytes(40_000)(random).view(np.int64)),
        (10, lambda random: _bytes(40_000)(random).view(np.uint16).reshape(100, 200)),
        (1, _bytes(3_000_000)),
    ],
    ids=["4K", "1K", "1", "fp32 1000", "fp32", "fp16", "fp64", "int64", "uint16", "3M"],
)
def test_random_bits_grow_by_a_few_bytes(count, make, effort, tmp_path):
    random = np.random.default_rng(9)
    tensors = {f"layers.{i}.weight": make(random) for i in range(count)}
    path = write_safetensors(tmp_path / "x.safetensors", tensors, {"format": "pt"})
    done = tensorcomp.compress(path, effort=effort, threads=1)
    added = done.path.stat().st_size - path.stat().st_size
    assert added <= A_TENSOR * count + A_FILE
    assert tensorcomp.decompress(done.path, tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_second_copy_is_free(tmp_path):
    random = np.random.default_rng(10)
    tensors = {f"a.{i}": random.standard_normal((64, 64)).astype(np.float32) for i in range(40)}
    twice = {**tensors, **{name.replace("a", "b"): array for name, array in tensors.items()}}
    sizes = []
    for name, given in (("once", tensors), ("twice", twice)):
        path = write_safetensors(tmp_path / f"{name}.safetensors", given)
        sizes.append(tensorcomp.compress(path).path.stat().st_size)
    assert sizes[1] - sizes[0] <= A_DUPLICATE * len(tensors)


def test_compressing_again_is_refused(tmp_path):
    path = write_safetensors(tmp_path / "x.safetensors", {"a": np.arange(9)})
    done = tensorcomp.compress(path)
    with pytest.raises(tensorcomp.errors.CheckpointError, match="has compressed it already"):
        tensorcomp.compress(done.path, tmp_path / "again")
