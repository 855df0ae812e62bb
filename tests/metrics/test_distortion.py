import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.metrics.distortion import ErrorSums, measure

FLOATS = [
    np.float64,
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]
INTEGERS += [np.int64, np.uint64]


def by_fractions(x: np.ndarray, y: np.ndarray) -> dict[str, Fraction]:
    """Return every sum exactly."""
    pairs = [(Fraction(a), Fraction(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    differences = [abs(a - b) for a, b in pairs]
    return {
        "abs_error": sum(differences, Fraction()),
        "squared_error": sum((d * d for d in differences), Fraction()),
        "x_squared": sum((a * a for a, _ in pairs), Fraction()),
        "y_squared": sum((b * b for _, b in pairs), Fraction()),
        "max_error": max(differences, default=Fraction()),
        "x_max": max((abs(a) for a, _ in pairs), default=Fraction()),
    }


def check(x: np.ndarray, y: np.ndarray) -> None:
    sums = measure(x, y)
    assert (sums.count, sums.equal_nonfinite, sums.unequal_nonfinite) == (x.size, 0, 0)
    as_numbers = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    wanted = by_fractions(as_numbers, y.astype(as_numbers.dtype))
    for name, value in wanted.items():
        assert getattr(sums, name) == pytest.approx(float(value), rel=1e-13), name
    x64, y64 = x.astype(np.float64), y.astype(np.float64)
    assert sums.product == pytest.approx(math.fsum(x64 * y64), rel=1e-12, abs=1e-12)


def test_the_figures_of_a_case_computed_by_hand():
    sums = measure(np.array([3.0, 4.0, 0.0]), np.array([3.0, 2.0, 1.0]))
    assert (sums.count, sums.l1, sums.max_abs, sums.norm) == (3, 3, 2, 5)
    assert sums.l2 == math.sqrt(5)
    assert sums.rel_l2 == math.sqrt(5) / 5
    assert sums.snr_db == pytest.approx(20 * math.log10(5 / math.sqrt(5)))
    assert sums.cosine == pytest.approx(17 / (5 * math.sqrt(14)))
    assert not sums.exact


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [0, 1, 5, 127, 128, 129, 1000])
def test_floats_of_every_type_and_length(dtype, size):
    random = np.random.default_rng(size)
    x = random.normal(0, 2, size)
    check(x.astype(dtype), (x + random.normal(0, 0.5, size)).astype(dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_every_type(dtype):
    random = np.random.default_rng(1)
    high = 2 if dtype is np.bool_ else 100
    check(random.integers(0, high, 300).astype(dtype), random.integers(0, high, 300).astype(dtype))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_long_integers_that_differ_by_one_are_not_equal(dtype):
    limits = np.iinfo(dtype)
    x = np.array([limits.max, limits.min, 2**60, 5], dtype)
    y = np.array([limits.max - 1, limits.min, 2**60 + 1, 5], dtype)
    assert measure(x, y).abs_error == 2
    assert measure(x, y).max_abs == 1
    assert measure(x[:1], x[1:2]).max_abs == float(int(limits.max) - int(limits.min))
    assert measure(x, x).exact


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_integers_of_32_bits_are_exact(dtype):
    x = np.array([2**31 - 1, 2**30 + 1], dtype)
    assert measure(x, x - dtype(1)).abs_error == 2


def test_types_that_differ_are_compared_by_value():
    x = np.array([1.0, 0.1, -3.0], np.float32)
    assert measure(x, x.astype(np.float64)).exact
    rounded = measure(x, x.astype(ml_dtypes.bfloat16))
    assert rounded.max_abs == abs(float(x[1]) - float(ml_dtypes.bfloat16(0.1)))
    assert measure(x, np.array([1, 0, -3], np.int8)).max_abs == float(np.float32(0.1))


def test_complex_numbers_are_pairs():
    x, y = np.array([1 + 2j, 3j]), np.array([1 + 2j, 4 + 0j])
    sums = measure(x, y)
    assert (sums.count, sums.abs_error, sums.squared_error) == (4, 7, 25)
    assert measure(x, y.astype(np.complex64)) == sums
    with pytest.raises(ValueError, match="complex"):
        measure(x, np.zeros(2))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_nonfinite_values_that_are_equal_count_as_equal(dtype):
    x = np.array([1, np.nan, np.inf, -np.inf, 2] * 60, dtype)
    same = measure(x, x)
    assert (same.count, same.equal_nonfinite, same.unequal_nonfinite) == (120, 180, 0)
    assert same.exact
    assert same.x_squared == 60 * 5
    other = measure(x, np.where(np.arange(300) == 2, dtype(-np.inf), x))
    assert (other.unequal_nonfinite, other.equal_nonfinite) == (1, 179)
    assert (other.l1, other.l2, other.max_abs, other.rel_l2) == (math.inf,) * 4
    assert (other.snr_db, other.cosine, other.exact) == (-math.inf, None, False)
    assert measure(x, np.zeros(300, dtype)).unequal_nonfinite == 180


def test_zeros_against_anything():
    zeros, ones = np.zeros(4), np.ones(4)
    assert measure(zeros, -zeros).exact
    assert (measure(zeros, zeros).rel_l2, measure(zeros, zeros).cosine) == (0, None)
    lost = measure(zeros, ones)
    assert (lost.rel_l2, lost.snr_db, lost.cosine) == (math.inf, -math.inf, None)
    gone = measure(ones, zeros)
    assert (gone.rel_l2, gone.snr_db, gone.cosine) == (1, 0, None)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-140, 1.0, 1e140, 1e160, 1e300])
def test_where_squares_leave_the_range_errors_are_never_understated(scale):
    random = np.random.default_rng(2)
    x = random.normal(0, scale, 500)
    y = x * (1 + random.normal(0, 0.01, 500))
    wanted = np.linalg.norm((x - y) / scale) / np.linalg.norm(x / scale)
    found = measure(x, y)
    assert wanted * (1 - 1e-12) <= found.rel_l2 <= wanted * 500
    assert not found.exact
    tiny = measure(np.ones(3), np.array([1, 1, 1 + 2e-16]))
    assert 0 < tiny.rel_l2 < 1e-15
    assert measure(np.array([1.0, 0]), np.array([1.0, 1e-200])).rel_l2 >= 1e-200


@given(st.integers(0, 2**32 - 1), st.integers(0, 300_000), st.floats(0, 1))
def test_chunks_add_up(seed, size, where):
    random = np.random.default_rng(seed)
    x = random.normal(0, 1, size).astype(np.float32)
    y = x + random.normal(0, 0.01, size).astype(np.float32)
    cut = int(where * size)
    whole = measure(x, y)
    parts = sum([measure(x[:cut], y[:cut]), measure(x[cut:], y[cut:])], ErrorSums())
    assert (parts.count, parts.max_error, parts.x_max) == (size, whole.max_error, whole.x_max)
    for name in ("abs_error", "squared_error", "x_squared", "y_squared", "product"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-12)


def test_the_order_of_summation_is_fixed():
    random = np.random.default_rng(3)
    x = random.normal(0, 1, 70_001).astype(np.float32)
    y = x + random.normal(0, 1e-3, x.size).astype(np.float32)
    sums = measure(x, y)
    lanes = np.zeros(32)
    total = 0.0
    for start in (0, 65_536):  # pieces, then blocks of four rows of lanes, then the rest
        square = np.square(x[start:].astype(np.float64) - y[start:])[:65_536]
        whole = square.size // 128 * 128
        blocks = square[:whole].reshape(-1, 4, 32)
        lanes = np.zeros(32)
        for a, b, c, d in blocks:
            lanes += (a + b) + (c + d)
        for value in square[whole:]:
            lanes[0] += value
        piece = 0.0
        for value in lanes:
            piece += value
        total += piece
    assert sums.squared_error == total


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_any_layout_are_not_changed(order):
    x = np.asarray(np.arange(12.0).reshape(3, 4), order=order)
    y = np.arange(24.0).reshape(3, 8)[:, ::2]
    before = x.tobytes(), y.tobytes()
    assert measure(x, y).count == 12
    assert (x.tobytes(), y.tobytes()) == before
    assert measure(x.astype(">f8"), x).exact
    assert measure(np.array(3.0), np.array(3.0)).count == 1


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="got 2 and 3"):
        measure(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="no numbers"):
        measure(np.array(["a"]), np.array(["a"]))


@given(
    rows=st.integers(1, 7),
    columns=st.integers(1, 50_000),
    dtype=st.sampled_from([np.float32, np.float64, ml_dtypes.bfloat16, np.complex64]),
)
def test_the_worst_row_is_that_of_numpy(rows, columns, dtype):
    random = np.random.default_rng(rows * columns)
    x = (random.standard_normal((rows, columns)) * 10.0 ** -np.arange(rows)[:, None]).astype(dtype)
    y = (x + random.standard_normal(x.shape).astype(np.float32) * 0.01).astype(dtype)
    x[0] = 0  # has no relative error
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    errors = np.linalg.norm(x.astype(wide) - y.astype(wide), axis=1)
    expected = max(errors[1:] / np.linalg.norm(x[1:].astype(wide), axis=1), default=0)
    assert measure(x, y, columns).worst_row == pytest.approx(expected, rel=1e-6)


def test_rows_of_chunks_give_the_worst_of_all():
    x = np.ones((4, 3), np.float32)
    y = x * np.array([[1], [0.5], [0], [1.25]], np.float32)
    parts = [measure(x[:2], y[:2], 3), measure(x[2:], y[2:], 3)]
    assert sum(parts, ErrorSums()).worst_row == measure(x, y, 3).worst_row == 1
    assert measure(x, y).worst_row == 0
