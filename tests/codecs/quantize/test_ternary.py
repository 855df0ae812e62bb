"""`ternary`: zero below the threshold, the mean magnitude above."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantizer_cases import FLOATS, NARROW, float_arrays, restored, transformed

from tensorcomp.codecs import encode, parse_tree
from tensorcomp.codecs.payload import byte_count
from tensorcomp.codecs.quantize.ternary import Ternary
from tensorcomp.errors import NotRepresentable


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_by_hand(dtype):
    # Means 2, 1, 0 and 3; thresholds 1, 0.5, 0 and 1.5: what equals a threshold is small.
    array = np.array([[1, -1, 2, -4], [-0.5, 0.5, -1.5, 1.5], [0, 0, 0, 0], [3, 3, -3, 3]], dtype)
    parts = transformed(Ternary(0.5), array)
    assert parts["codes"].tolist() == [[0, 0, 1, -1], [0, 0, -1, 1], [0] * 4, [1, 1, -1, 1]]
    assert parts["scales"].tolist() == [3, 1.5, 0, 3]
    wanted = [[0, 0, 3, -3], [0, 0, -1.5, 1.5], [0] * 4, [3, 3, -3, 3]]
    assert restored(Ternary(0.5), array).tolist() == wanted


def test_a_threshold_above_all_elements_leaves_zeros():
    assert not restored(Ternary(2.0), np.array([1, -1, 1.5], np.float32)).any()
    assert not restored(Ternary(1), np.full((4, 9), -0.3, np.float32)).any()


@given(float_arrays([*NARROW, np.dtype("f4")]), st.floats(0.01, 3), st.sampled_from([-1, 0, 3, 64]))
def test_it_is_what_the_paper_says(array, threshold, group):
    parts = transformed(Ternary(threshold, group), array)
    if array.size == 0:
        return
    rows = array.reshape(len(array), -1) if array.ndim > 1 and group else array.reshape(1, -1)
    length = group if group > 0 else rows.shape[1]
    codes = parts["codes"].reshape(rows.shape)
    scales = iter(parts["scales"].tolist())
    for row, coded in zip(rows, codes, strict=True):
        for at in range(0, row.size, length):
            run = row[at : at + length].astype(np.float64)
            floor = threshold * np.abs(run).mean()
            kept = np.abs(run) > floor
            doubtful = np.abs(np.abs(run) - floor) <= floor * 1e-6 + 1.5e-45
            wanted = np.sign(run) * kept
            assert ((coded[at : at + length] == wanted) | doubtful).all()
            scale = next(scales)
            if not doubtful.any():
                mean = np.abs(run[kept]).mean() if kept.any() else 0
                assert abs(scale - mean) <= mean * 2.0**-11 + 1.5e-45


def test_a_gaussian_has_the_error_of_the_best_threshold_nearly():
    array = np.random.default_rng(1).standard_normal((64, 4096)).astype(np.float32)
    off = restored(Ternary(), array) - array
    assert np.mean(off**2) == pytest.approx(0.19, abs=0.003)
    assert 8 * byte_count(encode(parse_tree("ternary"), array)) / array.size < 1.59


def test_sums_beyond_the_largest_double_are_refused():
    with pytest.raises(NotRepresentable):
        Ternary().encode(np.full(3, 1.7e308))
    limit = np.finfo(np.float32).max
    assert restored(Ternary(), np.full(3, limit, np.float32)) == pytest.approx(limit, rel=1e-3)
    assert not restored(Ternary(1e6), np.full(3, limit, np.float32)).any()
