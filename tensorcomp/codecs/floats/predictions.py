"""Predict an array from a reference, for `difference` to start from.

A factor predicts weights that decay and move little besides, low-rank factors those that a merged
adapter changed. Both are in the codec's own bytes; elements are computed in a fixed order, so that
every machine predicts the same bits.
"""

from __future__ import annotations

import struct

import numpy as np

from tensorcomp.codecs.base import ArraySpec
from tensorcomp.codecs.bit_views import as_rows, as_words
from tensorcomp.codecs.lowrank.factors import nearest_factors
from tensorcomp.codecs.payload import decode, encode, join
from tensorcomp.codecs.text import parse_tree
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

_FACTOR = struct.Struct("<f")
_MANTISSA = 23  # bits of a float32
_PRECISIONS = {2: (6, 8, 10, 12, 14, 17), 4: (14, 16, 18, 20, 23)}  # mantissa bits, by itemsize
_TRIED = 1 << 16  # elements on which precisions are compared
_FACTORS = "groupfloats(0, groups=1)"


def decay_of(array: np.ndarray, reference: np.ndarray) -> bytes:
    """Return the factor by which most rows differ from the reference."""
    with np.errstate(all="ignore"):
        new, old = (as_rows(part).astype(np.float64) for part in (array, reference))
        ratios = (new * old).sum(axis=1) / np.square(old).sum(axis=1)
    ratios = ratios[np.isfinite(ratios)]
    middle = np.partition(ratios, ratios.size // 2)[ratios.size // 2] if ratios.size else 1.0
    return _FACTOR.pack(np.clip(middle, -1e30, 1e30))


def decayed(reference: np.ndarray, factor: bytes) -> np.ndarray:
    """Return the reference times a factor."""
    if len(factor) != _FACTOR.size:
        raise CodecError("difference: its factor is cut short")
    with np.errstate(all="ignore"):
        real = reference.astype(np.float32)
        real *= np.float32(_FACTOR.unpack(factor)[0])
        return _rounded(real, reference)


def right_factor(array: np.ndarray, reference: np.ndarray, rank: int) -> bytes:
    """Return the right factor of the difference, coded; b"" if it has none."""
    change = _change(array, reference)
    if not np.isfinite(change).all() or min(change.shape) <= rank:
        return b""
    right = nearest_factors(change.astype(np.float32), rank, 0.0)[1].astype(np.float32)
    tried = max(_TRIED // right.shape[1], 1)
    rows = slice(0, change.shape[0], max(change.shape[0] // tried, 1))
    few = as_rows(array)[rows], as_rows(reference)[rows]
    costs = {
        bits: _cost(*few, right, bits, change.shape[0]) for bits in _PRECISIONS[array.itemsize]
    }
    bits = min(costs, key=lambda bits: costs[bits])
    return bytes([bits]) + _coded(_cut(right, bits))


def left_factor(array: np.ndarray, reference: np.ndarray, right: bytes, rank: int) -> bytes:
    """Return the coded left factor, by least squares, as precise as the other."""
    if not right:
        return b""
    known, change = _uncoded(right[1:], (rank, as_rows(array).shape[1])), _change(array, reference)
    with np.errstate(all="ignore"):
        finite = np.where(np.isfinite(change), change, 0.0)
        return _coded(_cut(_solved(finite, known), right[0]))


def with_product(reference: np.ndarray, left: bytes, right: bytes, rank: int) -> np.ndarray:
    """Return the reference plus the product of its factors."""
    if not right:
        return reference
    rows, columns = as_rows(reference).shape
    factors = _uncoded(left, (rows, rank)), _uncoded(right[1:], (rank, columns))
    return _with_product(as_rows(reference), *factors).reshape(reference.shape)


def _with_product(reference: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Add in single precision to narrow floats, in double to single ones, and round once."""
    real = np.float32 if reference.itemsize == 2 else np.float64
    product = np.empty(reference.shape, real)
    with np.errstate(all="ignore"):
        native.linear_multiply(left.astype(real, "C"), right.astype(real, "C"), product)
        np.add(product, reference, out=product)
        return _rounded(product, reference)


def _rounded(real: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Round to the reference's type; bits of NaN vary with the machine."""
    found = real.astype(reference.dtype, copy=False)
    finite = np.isfinite(found)
    if not finite.all():
        np.copyto(found, reference, where=~finite)
    return found


def _change(array: np.ndarray, reference: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return as_rows(array).astype(np.float64) - as_rows(reference).astype(np.float64)


def _cut(factor: np.ndarray, bits: int) -> np.ndarray:
    """Round to so many bits of the mantissa."""
    words, low = factor.astype(np.float32).view(np.uint32), _MANTISSA - bits
    half = np.uint32((1 << low) >> 1)
    return ((words + half) >> np.uint32(low) << np.uint32(low)).view(np.float32)


def _solved(change: np.ndarray, right: np.ndarray) -> np.ndarray:
    wide = right.astype(np.float64)
    gram = wide @ wide.T
    if not np.isfinite(gram).all():
        raise NotRepresentable("difference: its factors leave the range of floats")
    return change @ wide.T @ np.linalg.pinv(gram, hermitian=True)


def _cost(
    array: np.ndarray, reference: np.ndarray, right: np.ndarray, bits: int, rows: int
) -> float:
    """Return about how many bits an element takes with factors of a precision."""
    known = _cut(right, bits)
    left = _cut(_solved(_change(array, reference), known), bits)
    guess = as_words(_with_product(reference, left, known)).astype(np.int64)
    away = np.minimum(np.abs(as_words(array).astype(np.int64) - guess), 255)
    shares = np.bincount(away.reshape(-1)) / away.size
    entropy = -(shares[shares > 0] * np.log2(shares[shares > 0])).sum()
    columns = array.shape[1]
    return float(entropy + (away > 0).mean() + bits * right.shape[0] * (1 / columns + 1 / rows))


def _coded(factor: np.ndarray) -> bytes:
    return join(encode(parse_tree(_FACTORS), np.ascontiguousarray(factor)))


def _uncoded(data: bytes, shape: tuple[int, int]) -> np.ndarray:
    return decode(parse_tree(_FACTORS), data, ArraySpec(shape, np.dtype("<f4")))
