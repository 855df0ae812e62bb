"""Which lossless tree suits floats."""

from __future__ import annotations

import numpy as np

from tensorcomp.codecs.bit_views import as_rows, word_dtype
from tensorcomp.kernels import native

_ONE_BYTE = 4  # bytes of floats whose exponents fit a byte
_COLUMNS_MATTER = 0.25
_GROUPS = {"fast": 2, "balanced": 4}  # each has a table of its own; eight take 0.05 % less
_FAST_FLOAT32 = "groupfloats(0, groups=4)"  # three whole bytes are left of a weight


def usual_tree(array: np.ndarray, effort: str) -> str:
    """Return the tree of ordinary floats.

    Groups of rows are usual, and twice as fast as contexts of rows and columns, to which they lose
    up to 0.1 bit a weight. Where the scales of columns vary by more than a quarter of what the
    weights of a column do, groups of columns save more.
    """
    usual = any_floats(array.dtype, effort)
    if effort == "balanced" and _has_groups(array.dtype) and columns_vary(array) > _COLUMNS_MATTER:
        return f'groupfloats({mantissa_bits(array.dtype)}, along="columns")'
    return usual


def any_floats(dtype: np.dtype, effort: str) -> str:
    """Return the tree of floats of which nothing is known; it can represent any up to 8 bytes."""
    bits = mantissa_bits(dtype)
    if effort == "max":
        return f"fields({bits}, exponent=ans(contexts=16, states=12), mantissa=bitpack)"
    if not _has_groups(dtype):
        return f"floats({bits})" if effort == "balanced" else flat_tree(dtype)
    if effort == "fast" and dtype.itemsize == 4:
        return _FAST_FLOAT32
    if effort == "fast" and dtype != np.float16:
        bits = 0  # a whole byte is left of a bfloat16
    return f"groupfloats({bits}, groups={_GROUPS[effort]})"


def flat_tree(dtype: np.dtype) -> str:
    """Return the tree of floats without rows and columns to tell apart."""
    bits = mantissa_bits(dtype)
    if _has_groups(dtype):
        return f"groupfloats({bits}, groups=1)"
    return f"floats({bits}, contexts=1)"


def _has_groups(dtype: np.dtype) -> bool:
    return dtype.itemsize <= _ONE_BYTE


def mantissa_bits(dtype: np.dtype) -> int:
    """Return how many top bits of the mantissa join the exponent.

    Measured on trained layers, two are worth 0.07 bit a weight. With three, both parts of a float16
    are whole bytes.
    """
    return 3 if dtype == np.float16 else 2


def columns_vary(array: np.ndarray) -> float:
    """Return how much the scales of columns vary: variance between columns over that within.

    Of the logarithms of two thousand elements, zeros left out, after what rows have in common.
    """
    variance = np.empty(1)
    native.survey_column_variance(as_rows(array.view(word_dtype(array.dtype))), variance)
    return float(variance[0])
