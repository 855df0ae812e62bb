"""Small checkpoints for the end-to-end tests."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import tensorcomp
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.dtypes import dtype_name


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_safetensors(
    path: Path,
    tensors: Mapping[str, np.ndarray | tuple[str, tuple[int, ...], bytes]],
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write tensors in the given order; a triple is a dtype's name, a shape and bytes."""
    infos, blocks = [], []
    for name, value in tensors.items():
        if isinstance(value, tuple):
            dtype, shape, data = value
        else:
            dtype, shape, data = dtype_name(value.dtype), value.shape, value.tobytes()
        infos.append(TensorInfo(name, dtype, shape, len(data)))
        blocks.append(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(build_header(infos, metadata) + b"".join(blocks))
    return path


def assert_equal(found: np.ndarray, wanted: np.ndarray) -> None:
    """Require the same dtype, shape and bits."""
    assert found.dtype == wanted.dtype.newbyteorder("<")
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.astype(wanted.dtype.newbyteorder("<")).tobytes()


def small_model(seed: int = 0) -> dict[str, np.ndarray]:
    """Return tensors of a little model, of several types and roles; one is tied."""
    random = np.random.default_rng(seed)
    embedding = (random.standard_normal((120, 64)) * 0.02).astype(np.float32)
    scales = np.exp(random.normal(0, 1, (96, 1)))
    return {
        "embed.weight": embedding,
        "layer.0.attn.weight": (random.standard_normal((96, 80)) * scales).astype(np.float32),
        "layer.0.mlp.weight": random.standard_normal((80, 96)).astype(np.float16),
        "layer.0.norm.weight": np.ones(96, np.float32),
        "layer.0.bias": np.zeros(96, np.float32),
        "lm_head.weight": embedding.copy(),
        "position_ids": np.arange(512, dtype=np.int64)[None],
        "mask": np.tril(np.ones((40, 40), np.bool_)),
        "step": np.array(1234, np.int64),
        "empty": np.zeros((0, 4), np.float16),
    }


def errors_of(path: Path, against: Path | None = None) -> list[str]:
    """Return what verification finds wrong."""
    return [check.error for check in tensorcomp.verify(path, against) if check.error]
