"""`rank1`: means of rows and columns, the mean of all, zeros only where there were some."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantizer_cases import FLOATS, float_arrays, restored, transformed

from tensorcomp.codecs import encode, parse_tree
from tensorcomp.codecs.payload import byte_count
from tensorcomp.codecs.quantize.rank1 import Rank1
from tensorcomp.errors import CodecError, NotRepresentable


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_by_hand(dtype):
    array = np.array([[2, 4, 0], [0, 0, 0], [1, 2, 0]], dtype)
    parts = transformed(Rank1(), array)
    assert parts["rows"].tolist() == [0, -128, -2]
    assert parts["columns"].tolist() == [-2, 0, -128]
    assert parts["scale"].tolist() == [4]
    assert (restored(Rank1(), array) == array).all()


@given(st.integers(0, 1000), st.floats(0, 4))
def test_what_has_rank_one_is_nearly_kept_and_so_is_the_mean(seed, octaves):
    rng = np.random.default_rng(seed)
    sizes = (np.exp2(octaves * rng.normal(size=n)) for n in (40, 30))
    array = (np.outer(*sizes) * 1e-9).astype(np.float32)
    found = restored(Rank1(), array)
    assert found.mean(dtype=np.float64) == pytest.approx(array.mean(dtype=np.float64), rel=1e-5)
    middle = np.log2(found / array) - np.log2(found / array).mean()
    assert np.abs(middle).max() <= 1.0
    assert middle.std() < 0.35


@given(float_arrays())
def test_zeros_are_whole_rows_and_columns_and_nothing_else(array):
    array = np.abs(array)
    try:
        found = restored(Rank1(), array)
    except NotRepresentable:
        assert array.dtype == np.float64
        return
    assert np.isfinite(found.astype(np.float64)).all()
    assert (found >= 0).all()
    rows = (array if array.ndim > 1 else array[None]).reshape(
        len(array) if array.ndim > 1 else 1, -1
    )
    zeros = ((rows == 0).all(axis=1)[:, None] | (rows == 0).all(axis=0)).reshape(array.shape)
    assert ((found == 0) == zeros).all()


@given(st.sampled_from(FLOATS), st.integers(0, 100))
def test_what_underflows_does_not_become_zero(dtype, seed):
    tiny = ml_dtypes.finfo(dtype).smallest_subnormal
    array = np.full((8, 9), tiny, dtype)
    array[seed % 8, seed % 9] = 1
    assert (restored(Rank1(), array) > 0).all()


def test_it_takes_half_a_byte_a_row_and_column():
    rng = np.random.default_rng(2)
    rows, columns = np.exp2(rng.normal(0, 1.5, 512)), np.exp2(rng.normal(0, 1.5, 512))
    array = np.outer(rows, columns).astype(np.float32)
    assert byte_count(encode(parse_tree("rank1"), array)) < 0.6 * 1024 + 80


def test_what_is_no_second_moment_is_refused():
    for value in (-1.0, np.nan, np.inf):
        with pytest.raises(NotRepresentable):
            encode(parse_tree("rank1"), np.full((4, 5), value, np.float32))
    with pytest.raises(NotRepresentable, match="too large"):
        encode(parse_tree("rank1"), np.full((4, 5), 1.7e308))


@pytest.mark.parametrize("wrong", [{"scale": -1.0}, {"scale": np.nan}, {"rows": 1}])
def test_parts_out_of_range_are_damage(wrong):
    parts = transformed(Rank1(), np.ones((4, 5), np.float32))
    parts |= {name: np.full_like(parts[name], value) for name, value in wrong.items()}
    with pytest.raises(CodecError, match="out of range"):
        Rank1().decode(parts, np.empty((4, 5), np.float32))
