"""Arrays that broke codecs before: the ordinary inputs of the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.tree import Node

_SEED = 20240607
_BF16 = np.dtype(ml_dtypes.bfloat16)
_FP8 = (
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
)
_FLOATS = tuple(np.dtype(kind) for kind in (np.float16, np.float32, np.float64, _BF16, *_FP8))
_INTEGERS = tuple(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8))
_COMPLEX = (np.dtype(np.complex64), np.dtype(np.complex128))


def nasty_arrays() -> dict[str, np.ndarray]:
    """Return arrays of every kind that a codec must take, by name.

    They are the same each time.

    All dtypes of safetensors; shapes without elements, without axes, with one element; constant,
    subnormal, infinite and NaN values with payloads, −0.0; views with all kinds of strides, both
    byte orders; skewed and wide integers; rows of unlike structure; grids, runs and zeros; one
    array of more than 65,536 elements.

    Examples
    --------
    >>> from tensorcomp.testing import nasty_arrays
    >>> nasty_arrays()["scalar"].shape
    ()
    """
    random = np.random.default_rng(_SEED)
    return dict(
        pair
        for family in (_shapes, _random_bits, _values, _layouts, _weights, _integers, _structured)
        for pair in family(random)
    )


def reference_of(node: Node, array: np.ndarray) -> np.ndarray | None:
    """Return a reference for a tree that uses one: the array, bits changed."""
    if not node.codec.uses_reference:
        return None
    reference = readable(array).copy()
    bits = reference.reshape(-1).view(np.uint8)
    bits[:: 7 * max(array.itemsize, 1)] ^= 5
    return reference


def _bits(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    count = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(random.bytes(count), dtype).reshape(shape).copy()


def _normal(random: np.random.Generator, *shape: int, scale: float = 0.05) -> np.ndarray:
    values: np.ndarray = (scale * random.standard_normal(shape)).astype(np.float32)
    return values


def _shapes(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    for shape in ((0,), (0, 5), (5, 0), (3, 0, 2)):
        yield f"empty {shape}", np.empty(shape, np.float32)
    yield "empty int8", np.empty(0, np.int8)
    yield "scalar", np.array(-1.5, np.float32)
    yield "scalar int64", np.array(-(2**63), np.int64)
    yield "one element", np.array([np.pi])
    yield "one element, three axes", np.array([[[7]]], np.uint16)
    yield "two elements", np.array([1.0, -1.0], np.float16)
    yield "five axes", _normal(random, 2, 3, 4, 5, 6).astype(_BF16)
    yield "one long row", _normal(random, 1, 3001)
    yield "one long column", _normal(random, 3001, 1)
    yield "rows of three", _normal(random, 700, 3)


def _random_bits(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    for dtype in (*_FLOATS, *_INTEGERS, *_COMPLEX):
        yield f"random bits {dtype}", _bits(random, (13, 37), dtype)
    yield "random bool", random.random(1003) < 0.3


def _values(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    yield "all equal", np.full((40, 25), 0.1, np.float32)
    yield "all zero", np.zeros(1000, _BF16)
    yield "all negative zero", np.full(500, -0.0)
    yield "all one NaN", np.full(100, 0x7FC12345, np.uint32).view(np.float32)
    yield "all equal complex", np.full(64, 1 - 2j)
    yield "all but the last equal", np.append(np.zeros(999, np.float32), np.float32(1))
    yield "zeros of both signs", np.where(random.random(800) < 0.5, 0.0, -0.0).astype(np.float32)
    for dtype, fraction in zip((*_FLOATS[:3], _BF16), (10, 23, 52, 7), strict=True):
        top = 8 * dtype.itemsize - 1
        low = random.integers(0, 1 << fraction, 600, np.uint64)
        words = low | random.integers(0, 2, 600, np.uint64) << np.uint64(top)
        yield f"subnormal {dtype}", words.astype(f"u{dtype.itemsize}").view(dtype)
        words |= np.uint64((1 << top) - (1 << fraction))  # all bits of the exponent
        yield f"NaN payloads {dtype}", words.astype(f"u{dtype.itemsize}").view(dtype)
    mixed = _normal(random, 30, 20)
    mixed[::7, ::3] = np.inf
    mixed[1::7, ::5] = -np.inf
    mixed[2::7] = np.nan
    mixed[3::7, 1::2] = -0.0
    yield "NaN and infinity among weights", mixed
    limits = np.finfo(np.float64)
    yield "largest and smallest", np.array([limits.max, limits.tiny, 5e-324, -1e-40] * 9)


def _layouts(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    base = _normal(random, 48, 60)
    yield "every other row and third column", base[::2, ::3]
    yield "reversed", base[::-1, ::-1]
    yield "transposed", base.T
    yield "Fortran order", np.asfortranarray(base)
    yield "axes moved", _normal(random, 6, 7, 8).transpose(2, 0, 1)
    yield "broadcast", np.broadcast_to(base[0], (20, 60))
    yield "big-endian float", base.astype(">f4")
    yield "big-endian integer", random.integers(-300, 300, (20, 30)).astype(">i8")
    yield "big-endian short", random.integers(0, 999, 500).astype(">u2")
    unaligned = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.float32)
    yield "unaligned and read-only", unaligned


def _weights(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    weights = _normal(random, 64, 48)
    for dtype in _FLOATS:
        yield f"weights {dtype}", weights.astype(dtype)
    scales = np.exp(random.normal(0, 1.5, (96, 1))) * np.exp(random.normal(0, 1.5, (1, 80)))
    scaled = _normal(random, 96, 80) * scales
    yield "rows and columns scaled", scaled.astype(_BF16)
    yield "rows and columns scaled, codes", np.clip(np.rint(scaled * 20), -128, 127).astype(np.int8)
    long_rows = _normal(random, 3, 4300) * np.exp(random.normal(0, 2, 4300))
    codes = np.clip(np.rint(long_rows * 9), -128, 127).astype(np.int8)
    yield "long rows, columns scaled", long_rows.astype(_BF16)
    yield "long rows, columns scaled, codes", codes
    yield "more than 65,536 weights", _normal(random, 70_001)
    half = np.where(random.random((70, 50)) < 0.5, 0, _normal(random, 70, 50))
    yield "half zeros", half.astype(_BF16)
    yield "few values", np.where(random.random(2000) < 0.002, _normal(random, 2000), 0)


def _integers(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    for dtype in (np.uint8, np.int8, np.uint16, np.int16):
        yield f"geometric {np.dtype(dtype)}", (random.geometric(0.3, 2500) % 120).astype(dtype)
    yield "very skewed", (random.random(5000) < 0.001).astype(np.uint8)
    rare = np.minimum(random.geometric(0.9, 4000) ** 4, 65_535)
    yield "one rare symbol of many", rare.astype("<u2")
    yield "two-sided", np.rint(random.laplace(0, 300, 3000)).astype(np.int16)
    yield "wide alphabet", random.integers(0, 1 << 16, 9000).astype(np.uint16)
    yield "every 16-bit value", np.arange(1 << 16, dtype=np.uint16)
    yield "every byte", np.tile(np.arange(256, dtype=np.uint8), 5)
    yield "positions", np.arange(-100, 900, dtype=np.int64)
    yield "extremes", np.array([np.iinfo(np.int64).min, -1, 0, np.iinfo(np.int64).max] * 20)
    yield "largest unsigned", np.full(90, np.iinfo(np.uint64).max)
    yield "few bits in the middle", (random.integers(0, 8, (40, 20)) << 11).astype(np.int32)
    yield "runs", np.repeat(random.integers(0, 5, 60).astype(np.int32), random.integers(1, 90, 60))
    yield "blocks of a mask", np.repeat(random.random(40) < 0.5, 53)
    yield "rare marks", random.random((50, 90)) < 0.01
    yield "nearly all marks", random.random(3000) < 0.98
    yield "no marks", np.zeros(77, np.bool_)
    yield "only marks", np.ones((9, 9), np.bool_)


def _structured(random: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    weights = _normal(random, 60, 64)
    yield "fp32 that holds bf16", weights.astype(_BF16).astype(np.float32)
    halves = weights.astype(np.float16).astype(np.float32)
    some = np.where(np.arange(60)[:, None] % 3 == 0, weights, halves)
    yield "fp32 that holds fp16 in some rows", some
    yield "codebook of 16", _normal(random, 16)[random.integers(0, 16, (50, 40))]
    steps = np.abs(weights).max(axis=1, keepdims=True)
    for bits in (4, 8):
        top = (1 << (bits - 1)) - 1
        codes = np.rint(weights / steps * top)
        yield f"int{bits} grid, a scale a row", (codes * (steps / top)).astype(np.float32)
        yield f"int{bits} grid in fp16", (codes * (1 / 1024)).astype(np.float16)
    grouped = weights.reshape(-1, 32)
    step = np.abs(grouped).max(axis=1, keepdims=True) / np.float32(7)
    yield "int4 grid, a scale for 32", (np.rint(grouped / step) * step).reshape(60, 64)
    signed = np.rint(weights * 100) / 4
    signed[::2, ::5] = -0.0
    yield "grid with zeros of both signs", signed
    yield "grid of doubles", np.rint(weights.astype(np.float64) * 3000) * 1e-5
    yield "powers of two", np.ldexp(1.0, random.integers(-1074, 1023, 400))
