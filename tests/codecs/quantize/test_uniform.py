"""`uniform`: its bound, its rate on Gaussian weights, centroids, damaged parts."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.quantize.uniform import Uniform, fill_values
from tensorcomp.errors import CodecError, NotRepresentable

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
SHAPES = st.sampled_from([(), (1,), (0, 3), (7,), (300,), (17, 31), (3, 5, 40)])
EXPONENTS = {np.float64: 300, np.float32: 30, np.float16: 3, ml_dtypes.bfloat16: 30}


def decoded(codec, array):
    """Return what the codec makes of an array."""
    parts = codec.encode(array)
    for part in parts.values():
        part.flags.writeable = False
    out = np.empty(array.shape, array.dtype)
    codec.decode(parts, out)
    return out


def drawn(seed, shape, dtype, spread):
    """Return values of a dtype whose scale is drawn too."""
    rng = np.random.default_rng(seed)
    most = EXPONENTS.get(dtype, 1)
    scale = 10.0 ** rng.uniform(-most, most) if spread else 1.0
    tails = rng.standard_t(2, shape).clip(-300, 300)
    with np.errstate(over="ignore"):
        array = np.asarray(scale * tails, np.float64).astype(dtype)
    keep = np.isfinite(array.astype(np.float64))
    return np.where(keep, array, np.zeros((), dtype)).astype(dtype), scale


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=SHAPES,
    dtype=st.sampled_from(DTYPES),
    width=st.floats(0.01, 4),
    spread=st.booleans(),
)
def test_bounded_errors_keep_the_bound(seed, shape, dtype, width, spread):
    array, scale = drawn(seed, shape, dtype, spread)
    step = width * scale
    try:
        found = decoded(Uniform(step, bounded=True), array)
    except NotRepresentable:
        fine = np.spacing(np.abs(array).max()) if dtype in (np.float32, np.float64) else np.inf
        assert fine > step / 3 or np.abs(array).max(initial=0) / step > 32_000
        return
    error = np.abs(found.astype(np.float64) - array.astype(np.float64))
    assert not error.size or error.max() <= step / 2


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shape=SHAPES, width=st.floats(0.05, 4))
def test_plain_errors_stay_below_a_step(seed, shape, width):
    array, scale = drawn(seed, shape, np.float32, spread=True)
    step = width * scale
    found = decoded(Uniform(step), array)
    assert np.abs(found - array.astype(np.float64)).max(initial=0) < step


def test_values_halfway_between_two_points_keep_the_bound():
    step = 0.1
    halfway = ((np.arange(-3000, 3000) + 0.5) * step).astype(np.float32)
    around = [halfway, np.nextafter(halfway, np.float32(9e9)), np.nextafter(halfway, -halfway)]
    array = np.concatenate(around)
    parts = Uniform(step * (1 + 2e-6), bounded=True).encode(array)
    out = np.empty_like(array)
    Uniform(step * (1 + 2e-6), bounded=True).decode(parts, out)
    assert np.abs(out.astype(np.float64) - array).max() <= step * (1 + 2e-6) / 2


def test_bfloat16_too_coarse_for_the_bound_is_refused():
    array = np.linspace(100, 200, 999).astype(ml_dtypes.bfloat16)  # 0.5 and 1 apart
    with pytest.raises(NotRepresentable, match="too coarse"):
        Uniform(0.71, bounded=True).encode(array)
    found = decoded(Uniform(0.05, bounded=True), array)  # fine steps give every value back
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("step", [1.2, 0.5, 0.125, 0.0625])
def test_rate_on_gaussian_weights(step):
    array = np.random.default_rng(5).standard_normal((512, 1024)).astype(np.float32)
    node = parse_tree(f"uniform({step})")
    payload = join(encode(node, array))
    error = decode(node, payload, spec_of(array)) - array.astype(np.float64)
    limit = np.log2((array.astype(np.float64) ** 2).mean() / (error**2).mean()) / 2
    assert 8 * len(payload) / array.size - limit < 0.265


def test_centroids_by_hand():
    # Code 1 of step 1 gets 0.6 and 1.0: mean 0.8, which lies 0.2 = 51 / 256 below 1.
    array = np.tile(np.array([0.6, 1.0, 0.0, -0.6, -1.0], np.float32), 100)
    parts = Uniform(1.0).encode(array)
    assert parts["centroids"].tolist() == [51]
    assert parts["codes"][:5].tolist() == [1, 1, 0, -1, -1]
    assert decoded(Uniform(1.0), array)[:5].tolist() == [
        np.float32(s * (1 - 51 / 256)) for s in (1, 1, 0, -1, -1)
    ]


def test_centroids_of_cells_without_elements_are_zero():
    # A mean of a quarter of 1/256 above cell 1 rounds to 0; so does that of cell 2, without any.
    above = {1: 0.25 / 256, 3: 0.25, 4: -0.25}
    for middles, expected in (([1], []), ([1, 3, 4], [0, 0, -64, 64])):
        array = np.repeat([k + above[k] for k in middles], 200)
        assert Uniform(1.0).encode(array)["centroids"].tolist() == expected


@pytest.mark.parametrize(("value", "expected"), [(1.4999, -128), (0.5001, 127), (2.4999, -128)])
def test_centroids_are_clipped(value, expected):
    assert Uniform(1.0).encode(np.full(256, -value))["centroids"][-1] == expected


def test_few_elements_have_no_centroids():
    array = np.full(255, 0.6, np.float32)
    assert Uniform(1.0).encode(array)["centroids"].size == 0
    assert decoded(Uniform(1.0), array)[0] == 1


def test_values_overflow_to_the_largest_number():
    table = np.empty(3, np.float16)
    fill_values(-1, 1, 70_000.0, np.empty(0, np.int8), table)
    assert table.tolist() == [-65_504, 0, 65_504]
    wide = np.empty(3)
    fill_values(-1, 1, 1.7e308, np.array([-128], np.int8), wide)
    assert wide.tolist() == [-np.finfo(np.float64).max, 0, np.finfo(np.float64).max]


@pytest.mark.parametrize(
    ("array", "step"),
    [
        (np.array([1.0, np.nan], np.float32), 1.0),
        (np.array([1.0, np.inf]), 1.0),
        (np.array([1, 2]), 1.0),
        (np.array([40_000.0], np.float32), 1.0),
        (np.array([-3e38, 3e38], np.float32), 1e30),
        (np.array([0.0, 1e-30], np.float32), 1e-45),
        (np.array([1.0, 2.0]), 5e-324),
    ],
)
def test_what_has_no_codes_is_refused(array, step):
    for bounded in (False, True):
        with pytest.raises(NotRepresentable):
            Uniform(step, bounded=bounded).encode(array)


def test_codes_reach_to_the_end_of_their_range():
    array = np.array([-32_767.0, 32_767.0], np.float32)
    for bounded in (False, True):
        codec = Uniform(1.0, bounded=bounded)
        assert codec.encode(array)["codes"].tolist() == [-32_767, 32_767]
        assert decoded(codec, array).tolist() == array.tolist()


def test_too_many_centroids_are_damage():
    parts = {"codes": np.zeros(9, np.int16), "centroids": np.zeros(9, np.int8)}
    with pytest.raises(CodecError, match="at most 8 centroids, got 9"):
        Uniform(1.0).decode(parts, np.empty(9, np.float32))


@pytest.mark.parametrize("step", [0, -1.0, float("nan"), float("inf"), 10**400, "1", True, None])
def test_steps_that_are_no_widths_are_refused(step):
    with pytest.raises(ValueError, match="expected step to be a finite number above 0, got"):
        Uniform(step)


def test_bounded_is_a_flag():
    with pytest.raises(ValueError, match="expected bounded to be true or false, got"):
        Uniform(1.0, bounded=1)
