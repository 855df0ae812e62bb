"""`affine`: half a step for every element of every group, whatever the group."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantizer_cases import FLOATS, float_arrays, half_unit, restored, transformed

from tensorcomp.codecs import encode, parse_tree
from tensorcomp.codecs.base import ArraySpec
from tensorcomp.codecs.payload import byte_count
from tensorcomp.codecs.quantize.affine import Affine
from tensorcomp.codecs.quantize.groups import Groups, short
from tensorcomp.errors import NotRepresentable

GROUPS = st.sampled_from([-1, 0, 1, 2, 3, 32, 128, 1 << 20])


def by_group(array, group):
    """Return the runs of an array that share a scale, by slices alone."""
    if array.size == 0:
        return []
    rows = array.reshape(len(array), -1) if array.ndim > 1 and group else array.reshape(1, -1)
    length = group if group > 0 else max(rows.shape[1], 1)
    return [row[at : at + length] for row in rows for at in range(0, rows.shape[1], length)]


@given(float_arrays(), st.integers(2, 8), GROUPS, st.booleans())
def test_no_element_is_off_by_more_than_half_a_step(array, bits, group, symmetric):
    codec = Affine(bits, group, symmetric)
    try:
        found = restored(codec, array)
    except NotRepresentable:
        wide = array.astype(np.float64)
        assert array.dtype == np.float64
        assert not symmetric
        assert wide.max() / 2 - wide.min() / 2 > 2.0**1022
        return
    scales = transformed(codec, array)["scales"].astype(np.float64)
    runs = by_group(array, group)
    assert len(runs) == scales.size
    for run, values, scale in zip(runs, by_group(found, group), scales, strict=True):
        run, values = run.astype(np.float64), values.astype(np.float64)
        with np.errstate(over="ignore"):
            reach = np.abs(run).max() if symmetric else run.max() - run.min()
            levels = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
            least = np.nextafter(scale, 0) * levels
            assert (scale == 0) == (reach == 0)
            assert scale == 0 or least <= reach * (1 + 2.0**-11)
            slack = half_unit(values, array.dtype) + np.abs(values) * 2.0**-51
            assert (np.abs(run - values) <= 0.5 * scale * (1 + 1e-6) + slack).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_symmetric_codes_by_hand(dtype):
    array = np.array([[-3.5, 1.5, 0.5, 0, -0.0, 3.5], [0, 0, 0, 0, 0, 0]], dtype)
    parts = transformed(Affine(4, -1), array)
    assert parts["scales"].tolist() == [0.5, 0]
    assert parts["codes"].tolist() == [[-7, 3, 1, 0, 0, 7], [0] * 6]
    assert (restored(Affine(4, -1), array) == array).all()


def test_asymmetric_codes_by_hand():
    array = np.array([[1, 2, 3, 4], [-10, 20, 10.1, 19], [5, 5, 5, 5]], np.float32)
    parts = transformed(Affine(2, 4, symmetric=False), array)
    assert list(parts) == ["scales", "zeros", "codes"]
    assert parts["scales"].tolist() == [1, 10, 0]
    assert parts["zeros"].tolist() == [1, -10, 5]
    assert parts["codes"].tolist() == [[0, 1, 2, 3], [0, 3, 2, 3], [0, 0, 0, 0]]
    wanted = [[1, 2, 3, 4], [-10, 20, 10, 20], [5, 5, 5, 5]]
    assert restored(Affine(2, 4, symmetric=False), array).tolist() == wanted


@pytest.mark.parametrize(
    ("shape", "group", "count"),
    [
        ((3, 10), 4, 9),
        ((3, 10), 10, 3),
        ((3, 10), 11, 3),
        ((3, 10), -1, 3),
        ((3, 10), 0, 1),
        ((3, 10), 1, 30),
        ((30,), -1, 1),
        ((30,), 7, 5),
        ((8, 4, 3, 3), -1, 8),
        ((8, 4, 3, 3), 32, 16),
        ((), 128, 1),
        ((), 0, 1),
        ((0, 5), -1, 0),
        ((5, 0), 0, 0),
    ],
)
def test_groups_are_runs_within_rows(shape, group, count):
    groups = Groups.of(shape, group)
    assert groups.count == count
    assert groups.rows * groups.columns == np.prod(shape)
    codec = Affine(4, group)
    assert codec.parts(ArraySpec(shape, np.dtype("f4")))["scales"].shape == (count,)
    array = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    scales = transformed(codec, array)["scales"]
    wanted = [short(run.max(keepdims=True) / np.float32(7))[0] for run in by_group(array, group)]
    assert scales.tolist() == wanted


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_smallest_numbers_keep_their_steps(dtype, bits, symmetric):
    top = 2 ** (bits - 1) - 1
    tiny = np.array(np.finfo(dtype).smallest_subnormal, dtype)
    for most in (1, 2, 3, top, top + 1, 2 * top + 1, 5 * top + 3):
        array = tiny * np.arange(-most, most + 1).astype(dtype)
        off = np.abs(restored(Affine(bits, 0, symmetric), array) / tiny - array / tiny)
        step = transformed(Affine(bits, 0, symmetric), array)["scales"][0] / tiny
        assert step <= 2 * most / (top if symmetric else 2 * top + 1) + 1
        assert off.max() <= step / 2 + 0.5
        if most <= top:
            assert off.max() == 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_largest_numbers_stay_finite(dtype, symmetric):
    limit = ml_dtypes.finfo(dtype).max
    array = np.array([limit, limit, 0, -limit], dtype)
    for bits in range(2, 9):
        try:
            found = restored(Affine(bits, 0, symmetric), array).astype(np.float64)
        except NotRepresentable:
            assert dtype == np.float64
            assert not symmetric
            continue
        assert np.isfinite(found).all()
        assert found[0] >= float(limit) * 0.99 or array.itemsize == 1


def test_scales_have_eleven_significant_bits():
    array = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    scales = transformed(Affine(4, 32), array)["scales"]
    assert (scales.view(np.uint32) & 0x1FFF == 0).all()
    values = np.concatenate([array.reshape(-1), [0, 1e-45, 3e-45, 1e-40, 3.4e38, 3.4028235e38]])
    rounded = short(np.abs(values).astype(np.float32))
    assert np.isfinite(rounded).all()
    assert ((rounded == 0) == (values == 0)).all()
    assert (np.abs(rounded - np.abs(values)) <= np.abs(values) * 2.0**-11 + 1e-45).all()


def test_an_outlier_spoils_its_own_group_only():
    array = np.random.default_rng(1).standard_normal((4, 1024)).astype(np.float32)
    array[1, 700] = 1e30
    off = np.abs(restored(Affine(8, 128), array) - array)
    off[1, 640:768] = 0
    assert off.max() < 0.02


def test_int4_groups_of_128_take_a_quarter_of_a_bit_for_scales_at_most():
    array = (0.02 * np.random.default_rng(2).standard_normal((512, 1024))).astype(np.float32)
    size = byte_count(encode(parse_tree("affine(4, 128, codes=bitpack(bytes=zstd))"), array))
    assert 8 * size / array.size < 4.15
    asymmetric = byte_count(encode(parse_tree("affine(4, 128, false)"), array))
    assert 8 * asymmetric / array.size < 4.4
