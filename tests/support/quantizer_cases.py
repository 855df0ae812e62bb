"""Arrays and round trips for the tests of quantizers."""

import math

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from tensorcomp.codecs.base import Transform, spec_of

WIDE = [np.dtype("f8"), np.dtype("f4")]
NARROW = [
    np.dtype(kind)
    for kind in (
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2fnuz,
    )
]
FLOATS = [*WIDE, *NARROW]
SHAPES = [
    (),
    (0,),
    (3, 0),
    (1,),
    (7,),
    (1, 300),
    (5, 1),
    (6, 40),
    (3, 129),
    (4, 3, 3, 3),
    (2, 2000),
]


def transformed(codec: Transform, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
    """Return the parts of an array, having checked them against their specs."""
    parts = codec.encode(array, shared)
    for name, spec in codec.parts(spec_of(array)).items():
        assert parts[name].dtype == spec.dtype
        assert parts[name].ndim == len(spec.shape)
        assert -1 in spec.shape or parts[name].shape == spec.shape
    return parts


def restored(codec: Transform, array: np.ndarray, shared: bytes = b"") -> np.ndarray:
    """Return what an array becomes, of its own dtype."""
    out = np.empty_like(array, order="C")
    codec.decode(transformed(codec, array, shared), out, shared)
    return out


def half_unit(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the most by which rounding to a dtype changes values (float64)."""
    info = ml_dtypes.finfo(dtype)
    tiny = float(info.smallest_subnormal)
    return np.maximum(np.abs(values) * (float(info.eps) / 2), tiny / 2)


@st.composite
def float_arrays(draw: st.DrawFn, dtypes: list[np.dtype] = FLOATS) -> np.ndarray:
    """Draw arrays of weights of any size, with rows of zeros, outliers, equal rows."""
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(dtypes))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    values = random.standard_normal(shape)
    if draw(st.booleans()):
        values = np.trunc(values)
    values = values + draw(st.sampled_from([0.0, 0.0, 3.0, -1000.0]))
    top = math.log10(float(ml_dtypes.finfo(dtype).max))
    bottom = math.log10(float(ml_dtypes.finfo(dtype).smallest_subnormal))
    values = values * 10.0 ** draw(st.floats(bottom, top))
    if draw(st.booleans()) and values.size > 3:
        values.reshape(-1)[random.integers(values.size)] *= 1000
        values.reshape(-1)[: values.size // 3] = 0
    limit = float(ml_dtypes.finfo(dtype).max)
    return np.asarray(np.clip(values, -limit, limit)).astype(dtype)
