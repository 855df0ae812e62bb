"""`RandomK`: the same elements by all workers, unbiased when they are scaled up."""

import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.codecs.sparse.randomk import RandomK as Codec
from tensorcomp.errors import CodecError, TensorcompError
from tensorcomp.gradients import ErrorFeedback, GradientSpec, Payload, RandomK
from tensorcomp.gradients.draws import draw


def summed(compressor, gradients, states):
    """Run the phases of all workers in lockstep; return their means, what they sent, states."""
    runs = [compressor.phases(*pair) for pair in zip(gradients, states, strict=True)]
    given = [next(run) for run in runs]
    while True:
        mean = np.mean(given, axis=0, dtype=given[0].dtype)
        given, done = [], []
        for run in runs:
            try:
                given.append(run.send(mean))
            except StopIteration as stop:
                done.append(stop.value)
        if done:
            assert not given
            return zip(*done, strict=True)


@given(st.integers(0, 2**64 - 1), st.integers(1, 3000), st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_places_are_those_of_the_codec(seed, size, part):
    count = round(part * size)
    positions, _ = draw(seed, size, count)
    array = np.arange(1, size + 1, dtype=np.float32)
    kept = Codec(count, seed).encode(array)["values"]
    np.testing.assert_array_equal(positions + 1, kept)
    assert positions.dtype == np.int64


def test_a_limit_that_is_too_low_or_too_high_is_mended(monkeypatch):
    expected = draw(3, 5000, 50)
    for deviations in (-6.5, 1000.0):  # the first finds too few, the second has no room to spare
        monkeypatch.setattr("tensorcomp.gradients.draws._DEVIATIONS", deviations)
        found = draw(3, 5000, 50)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


def test_two_workers_by_hand():
    gradients = [np.arange(1, 101, dtype=np.float32), np.arange(101, 201, dtype=np.float32)]
    compressor = RandomK(0.1)
    states = [compressor.init(GradientSpec("w", (100,), worker=w)) for w in range(2)]
    means, sents, after = summed(compressor, gradients, states)
    places = sents[0].positions
    assert places.size == 10
    np.testing.assert_array_equal(places, sents[1].positions)
    np.testing.assert_array_equal(sents[0].values, 10 * gradients[0][places])
    expected = np.zeros(100, np.float32)
    expected[places] = 10 * (gradients[0] + gradients[1])[places] / 2
    np.testing.assert_allclose(means[0], expected)
    np.testing.assert_array_equal(means[0], means[1])
    assert [state.count for state in after] == [1, 1]


def test_unbiased_when_scaled():
    array = np.random.default_rng(0).standard_normal((5, 20)).astype(np.float32)
    compressor, times = RandomK(0.2), 4000
    assert compressor.unbiased
    state = compressor.init(GradientSpec("w", array.shape))
    total = np.zeros(array.shape)
    for _ in range(times):
        payload, state = compressor.step(array, state)
        total += compressor.decode(payload)
    deviation = np.abs(array) * np.sqrt((5 - 1) / times)
    off = np.abs(total / times - array) / deviation
    assert off.max() < 4.5
    assert np.mean(off > 2) < 0.15


def test_error_feedback_sends_everything_in_time():
    array = np.random.default_rng(0).standard_normal(200).astype(np.float32)
    compressor = ErrorFeedback(RandomK(0.25, scale=False))
    assert not compressor.unbiased
    spec = GradientSpec("w", array.shape)
    state, total, times = compressor.init(spec), np.zeros(200), 60
    for _ in range(times):
        (mean,), _, (state,) = summed(compressor, [array], [state])
        total += mean
    np.testing.assert_allclose(total + state.residual, times * array.astype(np.float64), rtol=1e-4)
    assert np.abs(state.residual / array).max() < 45


def test_a_step_sends_what_the_phases_sum():
    array = np.random.default_rng(0).standard_normal((30, 40)).astype(np.float64)
    for scale in (False, True):
        compressor = RandomK(0.05, seed=9, scale=scale)
        state = compressor.init(GradientSpec("w", array.shape, array.dtype))
        _, state = compressor.step(array, state)
        payload, _ = compressor.step(array, state)
        (mean,), _, _ = summed(compressor, [array], [state])
        np.testing.assert_array_equal(compressor.decode(payload), mean)
        assert mean.dtype == np.float64
        assert mean.shape == array.shape


def test_steps_names_and_seeds_draw_anew_but_not_workers():
    array = np.ones(1000, np.float32)

    def places(name="w", worker=0, steps=1, seed=0):
        compressor = RandomK(0.01, seed)
        state = compressor.init(GradientSpec(name, array.shape, worker=worker))
        for _ in range(steps):
            payload, state = compressor.step(array, state)
        return tuple(payload.decoded.positions)

    assert places() == places(worker=3)
    assert len({places(), places("v"), places(steps=2), places(seed=1)}) == 4


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (7,), (2, 3)], ids=str)
def test_next_to_nothing(shape):
    array = np.full(shape, -2, np.float32)
    compressor, spec = RandomK(0.01), GradientSpec("w", shape)
    payload, state = compressor.step(array, compressor.init(spec))
    (mean,), (sent,), _ = summed(compressor, [array], [compressor.init(spec)])
    np.testing.assert_array_equal(compressor.decode(Payload(payload.data, spec)), mean)
    assert sent.count == min(array.size, 1)
    assert mean.sum() == -2 * array.size  # one element, times n
    assert state.count == 1


def test_the_array_that_is_summed_is_not_what_was_sent():
    array = np.ones(1000, np.float32)
    compressor = RandomK(0.01)
    run = compressor.phases(array, compressor.init(GradientSpec("w", array.shape)))
    given = next(run)
    given *= 3
    with pytest.raises(StopIteration) as stop:
        run.send(given)
    assert (stop.value.value[1].values == 100).all()
    assert (array == 1).all()


def test_ratios():
    array = np.ones(1000, np.float32)
    for keep, count in ((0.25, 250), (1.0, 1000)):
        compressor = RandomK(0.01).with_keep(keep)
        payload, _ = compressor.step(array, compressor.init(GradientSpec("w", array.shape)))
        assert payload.decoded.count == count


def hostile(first, limit, claimed):
    values = np.ones(min(claimed, 3000), np.float32).tobytes()
    state = struct.pack("<QB3Q", 25, 0, 1, first, limit)
    body = b"\1" + state + struct.pack("<QQ", claimed, 1 + len(values)) + b"\0" + values
    data = body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))
    return RandomK(0.1).receive(Payload(data, GradientSpec("w", (3000,))))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 5000))
@settings(max_examples=40, deadline=None)
def test_hostile_states_are_refused(first, limit, claimed):
    try:
        found = hostile(first, limit, claimed)
    except TensorcompError:
        return
    assert found.count == claimed
    assert found.count == 0 or found.positions[-1] < 3000


@pytest.mark.parametrize("claimed", [1, 2999])
def test_limits_that_keep_another_number_of_elements_are_refused(claimed):
    assert hostile(0, 2**64 - 1, 3000).count == 3000
    with pytest.raises(CodecError, match="places, as many as values"):
        hostile(0, 2**64 - 1, claimed)
    with pytest.raises(CodecError, match="places, as many as values"):
        hostile(0, 0, claimed)
