"""Formats that give every weight the same number of bits, as they are commonly stored.

Each takes a matrix and returns its bytes, codes and scales and tables, and what is decoded, in
fp32. Scales are fp16 (bitsandbytes stores fp32 ones of NF4). Blocks run over the flattened matrix,
and the last may be shorter. Nothing is calibrated: each matrix is rounded by itself.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.common import ggml
from benchmarks.common.checkpoints import Array, Tensors, is_weight
from benchmarks.lossy import budgets

Coder = Callable[[Array], tuple[int, Array]]

_SCALE_BYTES = 2
_INT4_GROUP = 128


def by_tree(tree: str, bits: int, block: int, table: int, array: Array) -> tuple[int, Array]:
    """Round by a codec tree; count codes of so many bits, a scale a block, and a table's bytes.

    A block of -1 is a row; without scales it is 0.
    """
    _, decoded = budgets.coded_by_text(tree, {"": array})
    blocks = len(array) if block < 0 else math.ceil(array.size / block) if block else 0
    nbytes = math.ceil(bits * array.size / 8) + _SCALE_BYTES * blocks + table
    return nbytes, decoded[""].astype(np.float32)


def int4(array: Array) -> tuple[int, Array]:
    """Round groups of 128 to 16 even levels from their least to their largest value.

    A group has a scale and a zero point of four bits, as in GPTQ and AWQ files.
    """
    flat = array.reshape(-1).astype(np.float32)
    groups = np.pad(flat, (0, -flat.size % _INT4_GROUP), mode="edge").reshape(-1, _INT4_GROUP)
    low = np.minimum(groups.min(axis=1, keepdims=True), 0)
    high = np.maximum(groups.max(axis=1, keepdims=True), 0)
    scale = ((high - low) / 15).astype(np.float16).astype(np.float32)
    scale = np.maximum(scale, np.float32(np.finfo(np.float16).smallest_subnormal))
    zero = np.clip(np.round(-low / scale), 0, 15)
    codes = np.clip(np.round(groups / scale) + zero, 0, 15)
    nbytes = (array.size + 1) // 2 + _SCALE_BYTES * len(groups) + (len(groups) + 1) // 2
    decoded = ((codes - zero) * scale).reshape(-1)[: array.size]
    return nbytes, decoded.reshape(array.shape)


FORMATS: dict[str, Coder] = {
    "int8 rows": partial(by_tree, "affine(8, -1)", 8, -1, 0),
    "int4 g128": int4,
    "NF4 b64": partial(by_tree, "nf4(64)", 4, 64, 0),
    "Q4_0 (ggml)": partial(ggml.quantized, "q4_0"),
    "k-means 16": partial(by_tree, "kmeans(16)", 4, 0, 64),
}


def coded(coder: Coder, tensors: Tensors) -> tuple[int, Tensors]:
    """Return the bytes of a checkpoint and what is decoded; other tensors stay as they are."""
    total, decoded = 0, {}
    for name, tensor in tensors.items():
        if is_weight(tensor) and tensor.size >= budgets.SMALLEST:
            nbytes, decoded[name] = coder(tensor)
        else:
            nbytes, decoded[name] = tensor.nbytes, tensor
        total += nbytes
    return total, decoded
