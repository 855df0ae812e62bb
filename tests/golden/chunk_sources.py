"""Tensors as large as chunks, made by formulas that will never change.

All follow from the integers of `golden_cases`, by operations that are exact on every machine. A
million of those takes half a second, so that one run of them is shared.
"""

import functools

import ml_dtypes
import numpy as np
from golden_cases import bell, numbers, skewed

BF16 = np.dtype(ml_dtypes.bfloat16)
FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)
_MOST = 10 << 17  # elements of a source: more than a chunk
_PIECE = 1 << 17


@functools.cache
def noise(seed: int = 0) -> np.ndarray:
    """Return `_MOST` integers of nearly normal distribution, of deviation 4096; int16."""
    pieces = range(100 + 16 * seed, 100 + 16 * seed + _MOST // _PIECE)
    return np.concatenate([bell(_PIECE, piece).astype(np.int16) for piece in pieces])


@functools.cache
def bits() -> np.ndarray:
    """Return `_MOST` random uint64."""
    return numbers(_MOST, 90)


def places(count: int, seed: int) -> np.ndarray:
    """Return random integers below 2**63, int64."""
    return (numbers(count, seed) >> np.uint64(1)).astype(np.int64)


@functools.lru_cache(maxsize=8)
def layer(
    rows: int,
    columns: int,
    dtype: str | np.dtype = "f4",
    row_octaves: int = 6,
    column_octaves: int = 4,
) -> np.ndarray:
    """Return weights of rows and columns of unlike scale; a float32 has all 24 bits."""
    values = noise()[: rows * columns].reshape(rows, columns)
    exponents = (places(rows, 91) % row_octaves)[:, None] + places(columns, 92) % column_octaves
    lowest = 16 if np.dtype(dtype).itemsize == 1 else 24
    return cast(np.ldexp(values.astype(np.float64), exponents - lowest), dtype)


def cast(values: np.ndarray, dtype: str | np.dtype) -> np.ndarray:
    """Round to a dtype; of wide floats, fill the bits below the integers' with random ones."""
    wanted = np.dtype(dtype)
    array = np.ascontiguousarray(values.astype(wanted))
    if wanted.kind == "f" and wanted.itemsize >= 4:
        words = array.view(f"<u{wanted.itemsize}")
        low = {4: 9, 8: 38}[wanted.itemsize]
        words |= (bits()[: array.size].reshape(array.shape) >> np.uint64(64 - low)).astype(
            words.dtype
        )
    array.flags.writeable = False
    return array


def two_scales(rows: int, columns: int, dtype: str | np.dtype) -> np.ndarray:
    """Return weights of rows of one scale, some of them of another, far away."""
    values = noise()[: rows * columns].reshape(rows, columns)
    exponents = np.where(places(rows, 93) % 4 == 0, 12, 0)[:, None]
    return cast(np.ldexp(values.astype(np.float64), exponents - 24), dtype)


def wide_scales(rows: int, columns: int, dtype: str | np.dtype, octaves: int) -> np.ndarray:
    """Return weights, each of a scale of its own, over so many octaves."""
    values = noise()[: rows * columns].reshape(rows, columns)
    exponents = places(rows * columns, 94).reshape(rows, columns) % octaves
    return cast(np.ldexp(values.astype(np.float64), exponents - octaves // 2 - 12), dtype)


def narrow_rows(rows: int, columns: int) -> np.ndarray:
    """Return float32 weights of which runs of rows have the bits of bfloat16 or float16, or none.

    Which bits of their mantissas are stored is then told row by row.
    """
    array = layer(rows, columns).copy()
    narrow = places(rows, 95) % 5
    array[narrow == 0] = array[narrow == 0].astype(BF16)
    array[narrow == 1] = array[narrow == 1].astype(np.float16)
    array[narrow == 2] = 0
    array[rows // 2 :] = array[rows // 2 :].astype(BF16)
    return array


def with_extremes(array: np.ndarray) -> np.ndarray:
    """Return floats of which some are NaN, infinite, zero, -0.0 or subnormal."""
    words = array.view(f"<u{array.itemsize}").copy()
    chance = places(array.size, 96).reshape(array.shape) % 997
    top = 8 * array.itemsize - 1
    one = words.dtype.type(1)
    infinite = np.array(np.inf, array.dtype).view(words.dtype)
    sign = words & (one << words.dtype.type(top))
    words[chance == 0] = infinite
    words[chance == 1] |= infinite
    words[chance == 2] = sign[chance == 2]
    words[chance == 3] = 0
    words[chance == 4] &= words.dtype.type(7) | one << words.dtype.type(top)
    return words.view(array.dtype)


def random_words(rows: int, columns: int, dtype: str | np.dtype) -> np.ndarray:
    """Return elements of any bits."""
    wanted = np.dtype(dtype)
    words = bits()[: rows * columns].astype(f"<u{wanted.itemsize}")
    return words.view(wanted).reshape(rows, columns)


def equal_exponents(rows: int, columns: int) -> np.ndarray:
    """Return float32 weights from 1 to 2, of either sign."""
    words = bits()[: rows * columns].astype(np.uint32)
    kept = words & np.uint32(0x807FFFFF) | np.uint32(0x3F800000)
    return kept.view(np.float32).reshape(rows, columns)


def two_powers(rows: int, columns: int, dtype: str | np.dtype) -> np.ndarray:
    """Return ones and twos: codes of one bit, and nothing beside them."""
    return np.ldexp(1.0, places(rows * columns, 75).reshape(rows, columns) % 2).astype(dtype)


def codes(rows: int, columns: int, dtype: str, deviation: int) -> np.ndarray:
    """Return integers of so large a deviation, about, at most, in rows and columns of scales."""
    scales = 1 + (places(rows, 97) % 8)[:, None] + places(columns, 98) % 4
    values = noise()[: rows * columns].reshape(rows, columns).astype(np.int64) * scales
    least = np.iinfo(dtype).min
    return (
        (values * deviation // (11 * 4096) + (0 if least < 0 else -least))
        .clip(least, np.iinfo(dtype).max)
        .astype(dtype)
    )


def counts(size: int, dtype: str) -> np.ndarray:
    """Return integers from 0 on, each half as frequent as the one before."""
    return skewed(size, 99).astype(dtype)


def mostly_small(size: int, dtype: str) -> np.ndarray:
    """Return small integers, and a few of any size: those are coded by an escape."""
    common = skewed(size, 80).astype(np.int64)
    rare = places(size, 81) % np.iinfo(dtype).max
    return np.where(places(size, 82) % 500 == 0, rare, common).astype(dtype)


def of_width(size: int, dtype: str, width: int) -> np.ndarray:
    """Return integers of so many bits; signed ones stand around 0."""
    words = bits()[:size] >> np.uint64(64 - width)
    if np.dtype(dtype).kind == "i":
        return (words.astype(np.int64) - (1 << (width - 1) if width < 64 else 0)).astype(dtype)
    return words.astype(dtype)


def with_zeros(array: np.ndarray, per_thousand: int) -> np.ndarray:
    """Return an array of which so many elements in a thousand are zero."""
    chance = places(array.size, 83).reshape(array.shape) % 1000
    return np.where(chance < per_thousand, array.dtype.type(0), array).astype(array.dtype)


def with_zero_signs(array: np.ndarray, per_thousand: int) -> np.ndarray:
    """Return an array of which so many elements in a thousand are zero, with their old signs."""
    words = array.view(f"<u{array.itemsize}").copy()
    chance = places(array.size, 83).reshape(array.shape) % 1000
    words[chance < per_thousand] &= words.dtype.type(1 << (8 * array.itemsize - 1))
    return words.view(array.dtype)


def two_of_four(rows: int, columns: int, dtype: str | np.dtype) -> np.ndarray:
    """Return weights of which two in each group of four in a row are zero."""
    array = layer(rows, columns, dtype).copy()
    first = places(rows * columns, 84).reshape(rows, columns)[:, ::4] % 4
    step = 1 + places(rows * columns, 85).reshape(rows, columns)[:, ::4] % 3
    for begin in (first, (first + step) % 4):
        for offset in range(4):
            part = array[:, offset::4]
            part[begin[:, : part.shape[1]] == offset] = 0
    return array


def dead_slices(rows: int, columns: int, dtype: str | np.dtype) -> np.ndarray:
    """Return weights of which whole rows and columns are zero."""
    array = layer(rows, columns, dtype).copy()
    array[places(rows, 86) % 3 == 0] = 0
    array[:, places(columns, 87) % 4 == 0] = 0
    return array


def increasing(size: int, dtype: str, power: int) -> np.ndarray:
    """Return ascending integers whose gaps are 1, 2, … to a power."""
    steps = (1 + skewed(size, 88).astype(np.int64)) ** power
    return np.cumsum(steps).astype(dtype)


def runs(size: int, dtype: str, longest: int) -> np.ndarray:
    """Return runs of equal elements, of up to so many."""
    lengths = 1 + places(size // (longest // 4), 89) % longest
    values = places(lengths.size, 79) % 200
    return np.repeat(values.astype(dtype), lengths)[:size]


def on_grid(rows: int, columns: int, dtype: str | np.dtype, group: int) -> np.ndarray:
    """Return integers times a step for each group of a row, rounded; a group of 0: one step."""
    whole = (noise()[: rows * columns] // 256).clip(-127, 127).astype(np.float64)
    count = rows * columns // group if group else 1
    steps = (1 + (places(count, 78) % 1000).astype(np.float64)) / 8192
    steps = steps if np.dtype(dtype).itemsize > 2 else np.ldexp(1.0, places(count, 78) % 4 - 8)
    return (whole.reshape(count, -1) * steps[:, None]).reshape(rows, columns).astype(dtype)


def few_vectors(rows: int, columns: int, width: int, count: int) -> np.ndarray:
    """Return float32 weights whose rows are cut into vectors, of which so many are distinct."""
    chosen = places(rows * columns // width, 74) % count
    return layer(count, width)[chosen].reshape(rows, columns)


def few_values(rows: int, columns: int, dtype: str | np.dtype, count: int) -> np.ndarray:
    """Return weights of so many distinct values."""
    chosen = (places(rows * columns, 77) % count) * (places(rows * columns, 76) % 2 + 1) % count
    if np.dtype(dtype).kind in "iu":
        return (chosen * 1009).astype(dtype).reshape(rows, columns)
    table = cast(np.ldexp(1.0 + np.arange(count), -20), dtype)
    return table[chosen].reshape(rows, columns)
