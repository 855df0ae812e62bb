"""Formats that give every weight the same number of bits, as they are commonly stored.

Each takes a matrix and returns its bytes, codes and scales and tables, and what is decoded, in
fp32. Scales are fp16. Blocks run over the flattened matrix, and the last may be shorter. Nothing is
calibrated: each matrix is rounded by itself.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.common import ggml
from benchmarks.common.checkpoints import Array, Tensors, is_weight
from tensorcomp.codecs.quantize.nf4 import LEVELS

Coder = Callable[[Array], tuple[int, Array]]

SMALLEST = 4096  # elements below which a tensor stays as it is
_SCALE_BYTES = 2
_NF4_BLOCK, _INT4_GROUP = 64, 128
_CLUSTERS = 16
_ROUNDS = 100
_BINS = 1 << 16

NF4_LEVELS = np.array(LEVELS, np.float32)


def _blocks(array: Array, length: int) -> Array:
    """Return the flattened array in rows of `length`, filled up with its last element."""
    flat = array.reshape(-1).astype(np.float32)
    missing = -flat.size % length
    return np.pad(flat, (0, missing), mode="edge").reshape(-1, length)


def _unblocked(blocks: Array, like: Array) -> Array:
    return blocks.reshape(-1)[: like.size].reshape(like.shape)


def _scales(values: Array) -> Array:
    """Round scales to fp16 as they are stored; a zero scale becomes the smallest above it."""
    stored = values.astype(np.float16).astype(np.float32)
    return np.maximum(stored, np.float32(np.finfo(np.float16).smallest_subnormal))


def int8(array: Array) -> tuple[int, Array]:
    """Round each row to 255 multiples of its largest magnitude over 127."""
    rows = array.reshape(array.shape[0], -1).astype(np.float32)
    scale = _scales(np.abs(rows).max(axis=1, keepdims=True) / 127)
    codes = np.clip(np.round(rows / scale), -127, 127)
    return rows.size + _SCALE_BYTES * len(rows), (codes * scale).reshape(array.shape)


def int4(array: Array) -> tuple[int, Array]:
    """Round groups of 128 to 16 even levels from their least to their largest value.

    A group has a scale and a zero point of four bits, as in GPTQ and AWQ files.
    """
    groups = _blocks(array, _INT4_GROUP)
    low = np.minimum(groups.min(axis=1, keepdims=True), 0)
    high = np.maximum(groups.max(axis=1, keepdims=True), 0)
    scale = _scales((high - low) / 15)
    zero = np.clip(np.round(-low / scale), 0, 15)
    codes = np.clip(np.round(groups / scale) + zero, 0, 15)
    nbytes = (array.size + 1) // 2 + _SCALE_BYTES * len(groups) + (len(groups) + 1) // 2
    return nbytes, _unblocked((codes - zero) * scale, array)


def nf4(array: Array) -> tuple[int, Array]:
    """Round blocks of 64, over their largest magnitude, to the levels of NormalFloat 4.

    The scales are fp16; bitsandbytes stores fp32.
    """
    blocks = _blocks(array, _NF4_BLOCK)
    scale = _scales(np.abs(blocks).max(axis=1, keepdims=True))
    borders = (NF4_LEVELS[1:] + NF4_LEVELS[:-1]) / 2
    codes = np.searchsorted(borders, np.clip(blocks / scale, -1, 1))
    nbytes = (array.size + 1) // 2 + _SCALE_BYTES * len(blocks)
    return nbytes, _unblocked(NF4_LEVELS[codes] * scale, array)


def q4_0(array: Array) -> tuple[int, Array]:
    """Quantize by ggml's Q4_0: blocks of 32 with a scale."""
    return ggml.quantized("q4_0", array)


def kmeans16(array: Array) -> tuple[int, Array]:
    """Round the matrix to 16 values of its own, found by Lloyd's iteration on its histogram."""
    flat = array.reshape(-1).astype(np.float64)
    levels = lloyd(flat, _CLUSTERS).astype(np.float32)
    codes = np.searchsorted((levels[1:] + levels[:-1]) / 2, flat)
    nbytes = (array.size + 1) // 2 + levels.nbytes
    return nbytes, levels[codes].reshape(array.shape)


def lloyd(values: Array, clusters: int) -> Array:
    """Return the sorted centres of one-dimensional k-means, started at quantiles."""
    counts, edges = np.histogram(values, _BINS)
    sums, _ = np.histogram(values, edges, weights=values)
    kept = counts > 0
    counts, sums = counts[kept], sums[kept]
    means = sums / counts
    counts_before = np.concatenate(([0], np.cumsum(counts)))
    sums_before = np.concatenate(([0.0], np.cumsum(sums)))
    centres = np.quantile(values, (np.arange(clusters) + 0.5) / clusters)
    for _ in range(_ROUNDS):
        borders = np.searchsorted(means, (centres[1:] + centres[:-1]) / 2)
        borders = np.concatenate(([0], borders, [len(means)]))
        size = np.diff(counts_before[borders])
        total = np.diff(sums_before[borders])
        moved = np.where(size > 0, total / np.maximum(size, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = np.sort(moved)
    return centres


FORMATS: dict[str, Coder] = {
    "int8 rows": int8,
    "int4 g128": int4,
    "NF4 b64": nf4,
    "Q4_0 (ggml)": q4_0,
    "k-means 16": kmeans16,
}


def coded(coder: Coder, tensors: Tensors) -> tuple[int, Tensors]:
    """Return the bytes of a checkpoint and what is decoded; other tensors stay as they are."""
    total, decoded = 0, {}
    for name, tensor in tensors.items():
        if is_weight(tensor) and tensor.size >= SMALLEST:
            nbytes, decoded[name] = coder(tensor)
        else:
            nbytes, decoded[name] = tensor.nbytes, tensor
        total += nbytes
    return total, decoded
