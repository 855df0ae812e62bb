"""`nf4`: the published levels, the nearest of them, a scale a group."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantizer_cases import FLOATS, float_arrays, half_unit, restored, transformed

from tensorcomp.codecs import encode, parse_tree
from tensorcomp.codecs.payload import byte_count
from tensorcomp.codecs.quantize.nf4 import LEVELS, Nf4


def test_levels_are_the_quantiles_that_the_paper_says():
    quantile = NormalDist().inv_cdf
    offset = 0.9677083  # of the paper's code: between 1 - 1/32 and 1 - 1/30
    above = [quantile(p) for p in np.linspace(offset, 0.5, 9)[:-1]]
    below = [-quantile(p) for p in np.linspace(offset, 0.5, 8)[:-1]]
    wanted = np.sort([*above, 0.0, *below]) / max(above)
    assert pytest.approx(wanted, abs=2e-7) == LEVELS
    assert LEVELS[0] == -1
    assert LEVELS[7] == 0
    assert LEVELS[15] == 1


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_levels_themselves_are_exact(dtype):
    levels = np.array([LEVELS, LEVELS, LEVELS], np.float32).astype(dtype)
    array = levels * np.array([[2.0**-30], [5.0], [2.0**60]], dtype)
    parts = transformed(Nf4(-1), array)
    assert parts["codes"].tolist() == [list(range(16))] * 3
    assert parts["scales"].tolist() == [2.0**-30, 5, 2.0**60]
    assert (restored(Nf4(-1), array) == array).all()


@given(float_arrays(), st.sampled_from([-1, 0, 1, 5, 64, 1000]))
def test_every_element_gets_its_nearest_level(array, group):
    scales = transformed(Nf4(group), array)["scales"].astype(np.float64)
    found = restored(Nf4(group), array).astype(np.float64)
    if array.size == 0:
        return
    rows = array.reshape(len(array), -1) if array.ndim > 1 and group else array.reshape(1, -1)
    rows, found = rows.astype(np.float64), found.reshape(rows.shape)
    length = group if group > 0 else rows.shape[1]
    each = np.repeat(scales.reshape(len(rows), -1), length, axis=1)[:, : rows.shape[1]]
    least = np.abs(rows[..., None] / 2 - each[..., None] * np.array(LEVELS) / 2).min(axis=-1) * 2
    slack = half_unit(found, array.dtype) * 1.01 + each * 2.0**-22
    assert (np.abs(rows / 2 - found / 2) * 2 <= least + slack).all()
    assert (least <= each * (0.1520 + 2.0**-11)).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zeros_stay_zeros(dtype):
    assert not restored(Nf4(4), np.zeros((3, 10), dtype)).any()


def test_its_rate_and_error_on_a_gaussian():
    array = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
    size = byte_count(encode(parse_tree("nf4"), array))
    assert 8 * size / array.size < 4.27
    off = restored(Nf4(), array) - array
    assert -10 * np.log10(np.mean(off**2)) == pytest.approx(20.6, abs=0.3)
