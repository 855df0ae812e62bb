import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.planning.allocation import _hull, allocate, least_bits
from tensorcomp.planning.rate_distortion import RDCurve, measure_curve

TEMPLATES = ("uniform($step)", "affine(4)")


def options(bits: list[float], mse: list[float], weights: int = 100) -> RDCurve:
    return RDCurve(weights, 1.0, np.array(bits), np.array(mse), (("", None),), (0,))


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[RDCurve], list[float], float]:
    """Draw a few tensors with a few options each, their importance, and bits for all of them."""
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    tensors = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 6))
        bits = np.sort(random.uniform(0.1, 8, count))
        mse = np.sort(random.uniform(0, 1, count))[::-1] * 10.0 ** random.integers(-6, 3)
        tensors.append(options(list(bits), list(mse), int(random.integers(1, 1000))))
    importance = list(10.0 ** random.uniform(-3, 3, len(tensors)))
    least = least_bits(tensors)
    most = sum(item.weights * item.bits.max() for item in tensors)
    return tensors, importance, least + draw(st.floats(0, 1.1)) * (most - least)


def spent(tensors: list[RDCurve], chosen: tuple[int, ...] | list[int]) -> float:
    return sum(
        item.weights * float(item.bits[option])
        for item, option in zip(tensors, chosen, strict=True)
    )


def lost(tensors: list[RDCurve], importance: list[float], chosen: list[int]) -> float:
    return sum(
        weight * item.weights * float(item.mse[option])
        for item, weight, option in zip(tensors, importance, chosen, strict=True)
    )


def of_slope(tensors: list[RDCurve], importance: list[float], slope: float) -> list[int]:
    return [
        int(np.argmin(weight * item.mse + slope * item.bits))
        for item, weight in zip(tensors, importance, strict=True)
    ]


@settings(max_examples=300)
@given(problems())
def test_allocation_against_all_there_is(problem):
    """It is no better than the best of all choices, and no worse than the best of one slope."""
    tensors, importance, available = problem
    chosen = allocate(tensors, importance, available)
    rate = spent(tensors, chosen)
    assert rate <= available * (1 + 1e-9)
    everything = list(itertools.product(*(range(item.bits.size) for item in tensors)))
    possible = [choice for choice in everything if spent(tensors, choice) <= available]
    best = min(lost(tensors, importance, list(choice)) for choice in possible)
    found = lost(tensors, importance, chosen)
    at_slopes = (of_slope(tensors, importance, slope) for slope in np.logspace(-12, 9, 400))
    fitting = [choice for choice in at_slopes if spent(tensors, choice) <= available]
    at_best = min(lost(tensors, importance, choice) for choice in fitting)
    assert best * (1 - 1e-9) <= found <= at_best * (1 + 1e-9)


@settings(max_examples=100)
@given(problems())
def test_on_the_hull_it_is_the_best(problem):
    """A choice of one slope is the best of all that take as many bits (Everett 1963)."""
    tensors, importance, _ = problem
    for slope in np.logspace(-8, 4, 9):
        ideal = of_slope(tensors, importance, slope)
        rate = spent(tensors, ideal)
        chosen = allocate(tensors, importance, rate)
        assert spent(tensors, chosen) <= rate * (1 + 1e-9)
        wanted = lost(tensors, importance, ideal)
        assert lost(tensors, importance, chosen) <= wanted * (1 + 1e-6) + 1e-12


def curve(scale: float, weights: int = 1000) -> RDCurve:
    """Return a fine curve of 6.02 dB a bit."""
    bits = np.linspace(0, 12, 1201)
    return RDCurve(weights, scale, bits, scale**2 * 4.0**-bits, (("", None),), (0,))


def test_slopes_are_equal():
    tensors = [curve(scale) for scale in (0.1, 1, 3)]
    importance = [1.0, 1.0, 5.0]
    chosen = allocate(tensors, importance, 1000 * 3 * 5.0)
    weighted = [
        weight * item.mse[option]
        for item, weight, option in zip(tensors, importance, chosen, strict=True)
    ]
    assert max(weighted) / min(weighted) < 4**0.03
    assert spent(tensors, chosen) / 15_000 == pytest.approx(1, abs=1e-3)


def test_what_counts_more_gets_more():
    tensors = [curve(1), curve(1)]
    first, second = allocate(tensors, [1, 16], 8000)
    assert tensors[0].bits[second] - tensors[0].bits[first] == pytest.approx(2, abs=0.03)


@settings(max_examples=200)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 300), ties=st.booleans())
def test_the_hull_holds_what_any_slope_chooses(seed, count, ties):
    random = np.random.default_rng(seed)
    bits = np.append(random.uniform(0, 9, count), [0, np.inf])
    errors = np.append(random.permutation(0.1 * 4.0 ** -bits[:count]), [3, 0.0])
    if ties:
        bits, errors = np.round(bits), np.round(100 * errors)
    near, slopes = _hull(bits, errors)
    assert (np.diff(bits[near]) > 0).all()
    assert (np.diff(slopes) < 0).all()
    for slope in 2.0 ** np.linspace(-40, 60, 50):
        costs = errors + slope * bits
        chosen = near[np.searchsorted(-slopes, -slope)]
        assert costs[chosen] == pytest.approx(costs.min(), rel=1e-9)


def test_all_bits_are_used_where_one_tensor_has_a_gap():
    gap = options([1, 7.9, 8], [1, 0.5, 0.4])
    assert allocate([gap], [1.0], 100 * 7.95) == [1]  # between two slopes
    assert allocate([gap], [1.0], 100 * 8.0) == [2]
    assert allocate([gap], [1.0], 100 * 1.5) == [0]


def test_impossible_bits_give_the_cheapest():
    tensors = [options([2, 1, 4], [1, 2, 0]), options([3, 5], [1, 0])]
    assert allocate(tensors, [1, 1], 1.0) == [1, 0]
    assert allocate(tensors, [1, 1], -1.0) == [1, 0]
    assert allocate(tensors, [1, 1], 0.0) == [1, 0]
    assert allocate(tensors, [1, 1], 1e9) == [2, 1]
    assert allocate([], [], 100.0) == []
    assert least_bits(tensors) == 400


def test_no_importance_takes_no_bits():
    tensors = [options([2, 9], [1, 0]), options([2, 9], [1, 0])]
    assert allocate(tensors, [0.0, 1.0], 1100) == [0, 1]


def sample(scale: float = 0.02, shape: tuple[int, ...] = (128, 128)) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) * scale).astype(np.float32)


def test_options_of_a_sample():
    found = measure_curve(sample(), 10**6, TEMPLATES, 27.0)
    assert found.weights == 10**6
    assert found.scale == pytest.approx(0.02, rel=0.02)
    assert found.tree(0) is None  # lossless is always there
    assert found.bits[0] == 27
    assert found.mse[0] == 0
    assert [template for template, _ in found.trees] == ["", *TEMPLATES]
    last = found.tree(found.bits.size - 1)
    assert last is not None
    assert last.codec.id == "affine"
    steps = [found.tree(i).codec.step for i in range(1, found.bits.size - 1)]
    assert steps == sorted(steps)
    assert steps[-1] / steps[0] > 100
    assert (np.diff(found.bits[1:-1]) <= 1e-9).all()
    assert (np.diff(found.mse[1:-1]) >= 0).all()


@pytest.mark.parametrize("bits", [2.0, 4.0, 6.5])
def test_predictions_hold_between_the_steps_that_were_tried(bits):
    from tensorcomp.planning.trials import run_trial

    array = sample()
    found = measure_curve(array, array.size, TEMPLATES[:1], 27.0)
    option = 1 + int(np.argmin(np.abs(found.bits[1:] - bits)))
    tree = found.tree(option)
    assert tree is not None
    trial = run_trial(tree, array)
    assert trial is not None
    assert trial.bits == pytest.approx(found.bits[option], abs=0.06)
    assert trial.errors.rel_l2 == pytest.approx(found.rel_l2(option), rel=0.06)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((64, 64), np.float32),
        np.zeros((0, 64), np.float32),
        sample(1e-40),
        sample(1e30),
        sample(1e30).astype(np.float64) * 1e200,
        sample().astype(np.float64) * 1e-250,
        np.full((64, 64), 3.0, np.float32),
    ],
    ids=["zeros", "empty", "subnormal", "large", "huge", "tiny", "constant"],
)
def test_odd_samples_have_options_that_are_numbers(array):
    found = measure_curve(array, 100, TEMPLATES, 20.0)
    assert found.bits[0] == 20
    assert np.isfinite(found.bits).all()
    assert np.isfinite(found.mse).all()
    for option in range(0, found.bits.size, 97):
        assert math.isfinite(found.rel_l2(option))
        found.tree(option)


def test_steps_too_fine_for_the_largest_element_are_no_options():
    array = sample()
    finest = {}
    for largest in (0.08, 40.0, 1e9):
        found = measure_curve(array, array.size, TEMPLATES[:1], 27.0, largest)
        trees = [found.tree(i) for i in range(found.bits.size)]
        finest[largest] = min((t.codec.step for t in trees if t is not None), default=math.inf)
    assert finest[0.08] < finest[40.0]
    assert finest[40.0] * 32767 >= 40
    assert finest[1e9] == math.inf  # lossless alone is left


def test_bits_that_one_tensor_cannot_use_are_for_the_others():
    dear = options([1, 10, 26], [1, 1e-3, 0])
    cheap = options([1, 4, 8], [1, 1e-2, 1e-4])
    assert allocate([dear, cheap], [1e30, 1.0], 100 * 20.0) == [1, 2]
    assert allocate([dear, cheap], [1e30, 1.0], 100 * 14.5) == [1, 1]
    assert allocate([dear, cheap], [1e30, 1.0], 100 * 27.0) == [2, 0]
