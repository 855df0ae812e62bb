"""Thresholds: which elements are sent, how many, and how thresholds follow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.gradients import (
    AdaptiveThreshold,
    ErrorFeedback,
    GradientSpec,
    Payload,
    SampledThreshold,
    Threshold,
)
from tensorcomp.gradients.compressors.thresholds import ThresholdState

ALL = [Threshold(0.5), AdaptiveThreshold(0.05), SampledThreshold(0.05)]


def run(compressor, gradients, shape=None):
    """Return the number of elements sent at each step, and the last state."""
    spec = GradientSpec("w", shape or gradients[0].shape, gradients[0].dtype)
    state, counts = compressor.init(spec), []
    for gradient in gradients:
        payload, state = compressor.step(gradient, state)
        counts.append(payload.decoded.count)
    return counts, state


def heavy(size, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_t(3, size)).astype(np.float32)


def test_absolute_by_hand():
    array = np.zeros((2, 50), np.float32)
    array[0, [3, 7, 8]] = 0.5, -0.5, 0.49
    array[1, 2] = -9
    compressor = Threshold(0.5)
    payload, _ = compressor.step(array, compressor.init(GradientSpec("w", array.shape)))
    np.testing.assert_array_equal(payload.decoded.positions, [3, 7, 52])
    np.testing.assert_array_equal(payload.decoded.values, np.float32([0.5, -0.5, -9]))
    expected = np.where(np.abs(array) >= 0.5, array, 0)
    np.testing.assert_array_equal(compressor.decode(payload), expected)


def test_a_threshold_of_zero_leaves_zeros_out():
    array = np.zeros(500, np.float32)
    array[[4, 5]] = 1e-45, -3
    for dtype in (np.float32, np.float64):
        assert run(Threshold(0), [array.astype(dtype)])[0] == [2]


@given(
    st.integers(1, 3000),
    st.floats(0.001, 0.3),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(["adaptive", "sampled"]),
)
@settings(max_examples=60, deadline=None)
def test_what_is_sent_is_largest_and_exact(size, density, dtype, kind):
    array = heavy(size, size).astype(dtype)
    compressor = {"adaptive": AdaptiveThreshold, "sampled": SampledThreshold}[kind](density)
    spec = GradientSpec("w", array.shape, array.dtype)
    payload, _ = compressor.step(array, compressor.init(spec))
    decoded = compressor.decode(Payload(payload.data, spec))
    kept = decoded != 0
    np.testing.assert_array_equal(decoded[kept], array[kept])
    if kept.any() and not kept.all():
        assert np.abs(array[~kept]).max() <= np.abs(array[kept]).min()
    assert np.count_nonzero(kept) >= 1


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1])
def test_adaptive_density_follows(density):
    size = 200_000
    drift = [heavy(size, step, 0.97**step) for step in range(40)]
    counts, _ = run(AdaptiveThreshold(density), drift)
    wanted = density * size
    assert np.abs(np.array(counts[3:]) / wanted - 1).max() < 0.4
    assert abs(np.mean(counts[3:]) / wanted - 1) < 0.1


def test_adaptive_density_follows_what_error_feedback_gives_it():
    size, density = 100_000, 0.01
    counts, _ = run(ErrorFeedback(AdaptiveThreshold(density)), [heavy(size, s) for s in range(30)])
    assert np.abs(np.array(counts[5:]) / (density * size) - 1).max() < 0.5


def test_a_jump_is_confined_at_once_and_a_fall_sampled_anew():
    size, density = 50_000, 0.01
    gradients = [heavy(size, 1), heavy(size, 2, 1e4), heavy(size, 3), heavy(size, 4)]
    counts, state = run(AdaptiveThreshold(density), gradients)
    assert counts[1] == 500  # the threshold was raised within the step
    assert counts[2] * 8 < 500
    assert 350 < counts[3] < 700
    assert state.threshold > 0


def test_the_correction_by_hand():
    # Magnitudes with the tail P(v > x) = x**-3: a third of log of the count's ratio.
    compressor, spec = AdaptiveThreshold(0.01), GradientSpec("w", (10_000,))
    ranks = np.arange(1, 10_001) / 10_000
    pareto = (ranks ** (-1 / 3)).astype(np.float32)
    threshold = float((0.005) ** (-1 / 3)) * 0.9999
    _, after = compressor.step(pareto, ThresholdState(spec, 1, threshold))
    kept = pareto[pareto >= threshold].astype(np.float64)
    assert kept.size == 50
    exponent = np.log(kept).mean() - np.log(threshold)
    assert after.threshold == pytest.approx(threshold * (50 / 100) ** exponent)
    assert after.threshold == pytest.approx(0.01 ** (-1 / 3), rel=0.05)


def test_sampled_threshold_raises_what_is_far_too_low():
    # Of a sample of few of the many zeros the threshold is zero; there are 3,000 other elements.
    array = np.zeros(300_000, np.float32)
    array[::100] = heavy(3000)
    counts, _ = run(SampledThreshold(0.0099), [array])
    assert counts[0] <= 1.5 * 0.0099 * array.size
    # With equal ones no threshold could tell them apart.
    assert run(SampledThreshold(0.01), [np.ones(5000, np.float32)])[0] == [5000]


@pytest.mark.parametrize("density", [0.001, 0.01])
def test_sampled_density(density):
    counts, _ = run(SampledThreshold(density), [heavy(300_000, seed) for seed in range(10)])
    ratio = np.array(counts) / (density * 300_000)
    assert ratio.max() <= 1.5
    assert ratio.min() > 0.5
    assert abs(ratio.mean() - 1) < 0.15


def test_other_steps_and_workers_sample_other_elements():
    array = heavy(300_000)
    compressor = SampledThreshold(0.01)

    def threshold(worker, steps):
        state = compressor.init(GradientSpec("w", array.shape, worker=worker))
        for _ in range(steps):
            _, state = compressor.step(array, state)
        return state.threshold

    assert threshold(0, 1) == threshold(0, 1)
    assert len({threshold(0, 1), threshold(0, 2), threshold(1, 1)}) == 3


@pytest.mark.parametrize("compressor", ALL, ids=repr)
def test_zeros_and_next_to_nothing(compressor):
    zeros = np.zeros((30, 40), np.float32)
    counts, _ = run(compressor, [zeros, zeros])
    assert counts == [0, 0]
    spec = GradientSpec("w", zeros.shape)
    payload, state = compressor.step(zeros, compressor.init(spec))
    assert len(payload.data) < 60
    assert not compressor.decode(payload).any()
    array = heavy((30, 40))
    payload, _ = compressor.step(array, state)  # what follows is not lost
    assert payload.decoded.count > 0
    for shape in [(), (1,), (0,), (3, 0)]:
        spec, array = GradientSpec("w", shape), np.full(shape, -2, np.float32)
        payload, _ = compressor.step(array, compressor.init(spec))
        np.testing.assert_array_equal(compressor.decode(Payload(payload.data, spec)), array)


def test_lossy_values_in_chunks():
    array = heavy(((1 << 20) + 999,))
    compressor = SampledThreshold(0.01, values="affine(8)")
    spec = GradientSpec("w", array.shape)
    payload, _ = compressor.step(array, compressor.init(spec))
    decoded = compressor.decode(Payload(payload.data, spec))
    places = payload.decoded.positions
    np.testing.assert_array_equal(np.flatnonzero(decoded), places)
    assert np.abs(decoded[places] / array[places] - 1).max() < 0.3
    assert 8 * len(payload.data) < 17 * payload.decoded.count


def test_payloads_are_read_without_the_threshold():
    texts = {c.text() for c in (Threshold(1), Threshold(2), *ALL[1:])}
    assert len(texts) == 1
    array = heavy(5000)
    spec = GradientSpec("w", array.shape)
    payload, _ = ALL[1].step(array, ALL[1].init(spec))
    np.testing.assert_array_equal(Threshold(7).decode(payload), ALL[1].decode(payload))
    assert Threshold(1, values="raw").text() not in texts


def test_another_density():
    assert AdaptiveThreshold(0.01, values="raw").with_keep(0.2) == AdaptiveThreshold(
        0.2, values="raw"
    )
    assert SampledThreshold(0.01).with_keep(1.0).keep == 1.0
    assert run(SampledThreshold(1.0), [heavy(5000)])[0] == [5000]
