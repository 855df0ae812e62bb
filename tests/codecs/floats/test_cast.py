"""`cast`: the nearest number of a narrower type; nothing overflows unseen."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantizer_cases import FLOATS, NARROW, float_arrays, restored, transformed

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.floats.cast import TARGETS, Cast
from tensorcomp.codecs.payload import join
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import CodecError, NotRepresentable

BELOW_NORMAL = {"F16": -14, "BF16": -126, "F8_E4M3": -6, "F8_E5M2": -14}
MANTISSA = {"F16": 10, "BF16": 7, "F8_E4M3": 3, "F8_E5M2": 2}
LARGEST = {"F16": 65504, "BF16": (2 - 2.0**-7) * 2.0**127, "F8_E4M3": 448, "F8_E5M2": 57344}


@given(float_arrays(), st.sampled_from(TARGETS))
def test_the_error_is_within_what_the_docstring_says(array, to):
    wide = array.astype(np.float64)
    narrower = numpy_dtype(to).itemsize < array.itemsize
    fits = not wide.size or np.abs(wide).max() <= LARGEST[to]
    if not (narrower and fits):
        with pytest.raises(NotRepresentable):
            Cast(to).encode(array)
        return
    found = restored(Cast(to), array).astype(np.float64)
    tiny = 2.0 ** (BELOW_NORMAL[to] - MANTISSA[to])
    bound = np.maximum(np.abs(wide) * 2.0 ** -(MANTISSA[to] + 1), tiny / 2)
    assert (np.abs(wide - found) <= bound * (1 + 1e-7)).all()


@pytest.mark.parametrize("to", TARGETS)
def test_every_number_of_the_target_is_kept(to):
    target = numpy_dtype(to)
    words = np.arange(1 << 8 * target.itemsize, dtype=f"u{target.itemsize}").view(target)
    with np.errstate(invalid="ignore"):
        numbers = words.astype(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    for dtype in ("f4", "f8"):
        array = numbers.astype(dtype)
        assert restored(Cast(to), array).tobytes() == array.tobytes()  # -0.0 too


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_is_refused_and_never_silent(to, sign):
    limit = np.float64(LARGEST[to])
    for dtype in ("f4", "f8"):
        top = np.array([0, sign * limit], dtype)
        assert (restored(Cast(to), top) == top).all()
        with pytest.raises(NotRepresentable, match="beyond"):
            Cast(to).encode(np.nextafter(top, np.array(sign * np.inf, dtype)))


def test_ties_go_to_even():
    array = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20], np.float32)
    assert restored(Cast("BF16"), array).tolist() == [1, 1 + 2.0**-6, 1 + 2.0**-7]
    assert restored(Cast("F8_E5M2"), np.array([1.125, 1.375])).tolist() == [1, 1.5]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("to", TARGETS)
def test_types_that_are_no_wider_are_refused(dtype, to):
    array = np.array([[0.5, -1]], dtype)
    if dtype.itemsize > numpy_dtype(to).itemsize:
        assert (restored(Cast(to), array) == array).all()
    else:
        with pytest.raises(NotRepresentable, match="expected a type wider"):
            Cast(to).encode(array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)])
@pytest.mark.parametrize("to", TARGETS)
def test_shapes_are_kept(shape, to):
    array = np.full(shape, 0.5, np.float32)
    assert transformed(Cast(to), array)["values"].shape == shape
    assert (restored(Cast(to), array) == array).all()


def test_as_a_part_of_another_codec():
    array = np.random.default_rng(0).standard_normal((32, 256)).astype(np.float32)
    tree = parse_tree('affine(4, 32, scales=cast("F16"))')
    found = decode(tree, join(encode(tree, array)), spec_of(array))
    assert np.abs(found - array).max() < 0.3
    tree = parse_tree('affine(4, 32, scales=cast("F8_E4M3"))')  # too large for it: stored raw
    found = decode(tree, join(encode(tree, array * 1e5)), spec_of(array))
    assert np.abs(found / 1e5 - array).max() < 0.3


def test_damaged_parts_are_refused():
    for value in (np.nan, np.inf):
        parts = {"values": np.array([0, value], ml_dtypes.bfloat16)}
        with pytest.raises(CodecError):
            Cast("BF16").decode(parts, np.empty(2, np.float32))
    for dtype in ("i8", "u1", ml_dtypes.bfloat16, "f2"):
        with pytest.raises(CodecError):
            Cast("BF16").decode({"values": np.zeros(2, ml_dtypes.bfloat16)}, np.empty(2, dtype))


def test_all_float_types_are_known():
    for dtype in FLOATS:
        assert not transformed(Cast("F8_E4M3"), np.zeros(0, "f4"))["values"].size, dtype


def test_halves_are_rounded_and_widened_as_ieee_says():
    from tensorcomp.codecs.floats.cast import _round, _widen

    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)]
    exact = finite.astype(np.float32)
    np.testing.assert_array_equal(_widen(finite).view(np.uint32), exact.view(np.uint32))
    # Every half, what lies half way to the next, and the singles on both sides of these.
    positive = np.unique(np.abs(exact))
    middle = (positive[1:] + positive[:-1]) / 2
    around = np.concatenate([positive, middle, np.nextafter(middle, 0), np.nextafter(middle, 1e9)])
    singles = np.concatenate([around, -around, np.float32([1e-45, 1e-30, 65519.0])])
    np.testing.assert_array_equal(
        _round(singles, np.dtype(np.float16)).view(np.uint16),
        singles.astype(np.float16).view(np.uint16),
    )
