"""A model to prune, and what pruning by magnitude must leave of it."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
from lossy_cases import weights

from tensorcomp.pruning import Pruning

UP = "layers.0.mlp.up_proj.weight"
DOWN = "layers.0.mlp.down_proj.weight"
QUERY = "layers.0.self_attn.q_proj.weight"
SELECTED = (UP, DOWN, QUERY)
HALF = Pruning("magnitude", 0.5)
MOST = Pruning("magnitude", 0.9)


def model(seed: int = 0) -> dict[str, np.ndarray]:
    """Return tensors of several types, of which those `SELECTED` are matrices of layers."""
    return {
        UP: weights(300, 100, seed=seed),
        DOWN: weights(100, 300, seed=seed + 1, dtype=np.float16),
        QUERY: weights(90, 100, seed=seed + 2, dtype=ml_dtypes.bfloat16),
        "layers.0.mlp.up_proj.bias": weights(300, seed=seed + 3),
        "embed.weight": weights(120, 64, seed=seed + 4),
        "norm.weight": np.ones(300, np.float32),
        "ids": np.arange(500),
    }


def dropped(tensors: Mapping[str, np.ndarray], sparsity: float) -> dict[str, np.ndarray]:
    """Return which elements go: the lowest by (magnitude, name, index) over all selected."""
    names = sorted(SELECTED)
    magnitudes = [np.abs(tensors[name].astype(np.float64)).reshape(-1) for name in names]
    flat = np.concatenate(magnitudes)
    mask = np.zeros(flat.size, np.bool_)
    mask[np.argsort(flat, kind="stable")[: round(sparsity * flat.size)]] = True
    parts = np.split(mask, np.cumsum([part.size for part in magnitudes])[:-1])
    return {n: part.reshape(tensors[n].shape) for n, part in zip(names, parts, strict=True)}


def pruned(array: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """Return an array with +0.0 at some places."""
    left: np.ndarray = np.where(zeros, np.zeros(1, array.dtype), array)
    return left
