"""The transforms that round: to multiples of a step, or to another float type.

*uniform*: parts ``codes``, int16, of the array's shape, and ``centroids``, int8. *trellis*: the
same parts; machines (see `machines`) of `states` states, moved by the codes, name the quantizer q
of each. A code k stands for p = k steps (uniform), or for p = 2 k - q half steps (trellis). Its
value is sign(p) × (|p| steps - c / 256) × step, where c is centroid number |p| (the first one has
the number 1), or 0 where there is none: float64, then rounded (see `codec.rounded`).

*grid*: parts ``scales``, float64, one for each run of elements of equal length in row-major order,
and ``codes``, signed of so many bits, of the array's shape. A value is code × scale in float64,
rounded at once to the array's dtype. If the scale's sign bit is set, its magnitude counts, code -1
stands for -0.0, and each lower code for an integer one higher.

*affine*, *ternary*, *sign*: parts ``scales``, one a group (see `groups`), float32 (float64 for
float64 arrays); of affine, if it is not symmetric, ``zeros``, of the same type, the groups'
offsets; ``codes`` of the array's shape, int8, or uint8 of affine if it is not symmetric; of sign
``signs``, bool, in their place, which stand for -1 where they are true, else for 1.

*cast*: part ``values``, of the array's shape and the type `to`; widened to float32, then to the
array's dtype, which is exact.
"""

import ml_dtypes
import numpy as np

from reference.codec import Parts, codec, rounded
from reference.groups import read_scales, scaled
from reference.machines import Machines

CAST_DTYPES = {
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}


@codec(
    "transform",
    "uniform",
    {"codes": "ans(contexts=16, states=12, bypass=true)", "centroids": "raw"},
)
def uniform(parts: Parts, step: float, bounded: bool = False) -> np.ndarray:
    codes = parts.read("codes", parts.shape, "<i2").astype(np.int64)
    return _values(codes, 1, parts.read("centroids", (-1,), np.int8), step, parts.dtype)


@codec(
    "transform",
    "trellis",
    {"codes": "ans(contexts=16, states=12, trellis=8, bypass=true)", "centroids": "raw"},
)
def trellis(parts: Parts, step: float, states: int = 8) -> np.ndarray:
    codes = parts.read("codes", parts.shape, "<i2").astype(np.int64).reshape(-1)
    machines = Machines(states)
    quantizers = []
    for i, code in enumerate(codes.tolist()):
        quantizers.append(machines.quantizer(i))
        machines.move(i, code)
    points = 2 * codes - np.array(quantizers, np.int64)
    return _values(points, 2, parts.read("centroids", (-1,), np.int8), step, parts.dtype)


def _values(
    points: np.ndarray, of_a_step: int, centroids: np.ndarray, step: float, dtype: np.dtype
) -> np.ndarray:
    """Return the values of points, which are multiples of a step or a part of it."""
    below = np.concatenate([[0.0], centroids / 256, [0.0]])
    magnitudes = np.abs(points)
    magnitudes = magnitudes / of_a_step - below[np.minimum(magnitudes, centroids.size + 1)]
    with np.errstate(all="ignore"):
        return rounded(np.sign(points) * magnitudes * step, dtype)


@codec("transform", "grid", {"scales": "fields", "codes": "ans(contexts=8)"})
def grid(parts: Parts, bits: int = 16) -> np.ndarray:
    scales = parts.read("scales", (-1,), "<f8")
    codes = parts.read("codes", parts.shape, f"<i{bits // 8}").astype(np.int64)
    if codes.size == 0:
        return np.empty(0, parts.dtype)
    runs = codes.reshape(scales.size, -1)
    signed = np.signbit(scales)[:, None]
    values = np.where(signed & (runs < 0), runs + 1, runs) * np.abs(scales)[:, None]
    values = np.where(signed & (runs == -1), -0.0, _rounded_once(values, parts.dtype))
    with np.errstate(all="ignore"):
        return values.astype(parts.dtype)


def _rounded_once(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the float64s nearest to values among the numbers of a dtype, ties to even.

    `astype` rounds to bfloat16 by way of float32.
    """
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            return values.astype(dtype).astype(np.float64)
    info = ml_dtypes.finfo(dtype)
    exponents = np.maximum(np.frexp(values)[1] - 1, int(info.minexp))
    unit = np.ldexp(1.0, exponents - int(info.nmant))
    return np.rint(values / unit) * unit


@codec("transform", "affine", {"scales": "fields", "zeros": "fields", "codes": "bitpack"})
def affine(parts: Parts, bits: int = 4, group: int = 128, symmetric: bool = True) -> np.ndarray:
    scales = read_scales(parts, "scales", group)
    zeros = None if symmetric else read_scales(parts, "zeros", group)
    codes = parts.read("codes", parts.shape, np.int8 if symmetric else np.uint8)
    return scaled(parts, codes, scales, group, zeros)


@codec("transform", "ternary", {"scales": "fields", "codes": "ans"})
def ternary(parts: Parts, threshold: float = 0.7, group: int = -1) -> np.ndarray:
    scales = read_scales(parts, "scales", group)
    return scaled(parts, parts.read("codes", parts.shape, np.int8), scales, group)


@codec("transform", "sign", {"scales": "fields", "signs": "bitpack"})
def sign(parts: Parts, group: int = -1) -> np.ndarray:
    scales = read_scales(parts, "scales", group)
    signs = parts.read("signs", parts.shape, np.bool_)
    return scaled(parts, np.where(signs, -1, 1), scales, group)


@codec("transform", "cast", {"values": "floats"})
def cast(parts: Parts, to: str) -> np.ndarray:
    return parts.read("values", parts.shape, CAST_DTYPES[to]).astype(np.float32).astype(parts.dtype)
