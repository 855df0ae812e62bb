"""`sign`: one bit an element, and the scale of least squared error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantizer_cases import FLOATS, NARROW, float_arrays, restored, transformed

from tensorcomp.codecs import encode, parse_tree
from tensorcomp.codecs.payload import byte_count
from tensorcomp.codecs.quantize.sign import Sign
from tensorcomp.errors import NotRepresentable


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_by_hand(dtype):
    array = np.array([[1, -2, 3, -2], [0, -0.0, 0, 2], [0, 0, 0, 0]], dtype)
    parts = transformed(Sign(), array)
    assert parts["scales"].tolist() == [2, 0.5, 0]
    assert parts["signs"].tolist() == [[False, True, False, True], [False] * 4, [False] * 4]
    assert restored(Sign(), array).tolist() == [[2, -2, 2, -2], [0.5] * 4, [0] * 4]


@given(float_arrays([*NARROW, np.dtype("f4")]), st.sampled_from([-1, 0, 1, 7, 64]))
def test_the_scale_is_the_mean_magnitude(array, group):
    scales = transformed(Sign(group), array)["scales"]
    if array.size == 0:
        assert scales.size == 0
        return
    rows = array.reshape(len(array), -1) if array.ndim > 1 and group else array.reshape(1, -1)
    length = group if group > 0 else rows.shape[1]
    wanted = [
        np.abs(row[at : at + length].astype(np.longdouble)).mean()
        for row in rows
        for at in range(0, rows.shape[1], length)
    ]
    tiny = np.finfo(np.float32).smallest_subnormal
    assert (np.abs(scales - wanted) <= np.float64(wanted) * 2.0**-11 + tiny).all()
    signs = transformed(Sign(group), array)["signs"]
    assert (signs == (array.astype(np.float32) < 0)).all()


def test_no_other_scale_has_less_error():
    array = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32)
    scales = transformed(Sign(), array)["scales"]
    found = ((restored(Sign(), array) - array) ** 2).sum()
    for factor in (0.99, 1.01):
        other = np.sign(array) * scales[:, None] * np.float32(factor)
        assert found < ((other - array) ** 2).sum()


def test_a_gaussian_keeps_two_parts_of_pi_of_its_energy_in_one_bit():
    array = np.random.default_rng(1).standard_normal((64, 4096)).astype(np.float32)
    off = restored(Sign(), array) - array
    assert np.mean(off**2) == pytest.approx(1 - 2 / np.pi, abs=0.003)
    assert 8 * byte_count(encode(parse_tree("sign"), array)) / array.size < 1.02


def test_sums_beyond_the_largest_double_are_refused():
    with pytest.raises(NotRepresentable):
        Sign().encode(np.full(3, 1.7e308))
    limit = np.finfo(np.float32).max
    assert restored(Sign(), np.full(3, limit, np.float32)) == pytest.approx(limit, rel=1e-3)
