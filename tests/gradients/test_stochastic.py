"""`Qsgd`: right on average, within a step of every element, and the same again and again."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.gradients import GradientSpec, Payload, Qsgd, TreeCompressor
from tensorcomp.gradients.draws import own_key, shared_key

SPEC = GradientSpec("w", (3, 5))


def steps_of(array, bits, group):
    """Return the step of every element, by slices alone: 11 bits, rounded up."""
    rows = array.reshape(array.shape[0], -1).astype(np.float64)
    steps = np.zeros_like(rows)
    for row, out in zip(rows, steps, strict=True):
        for at in range(0, row.size, group):
            reach = np.abs(row[at : at + group]).max() / (2 ** (bits - 1) - 1)
            mantissa, exponent = np.frexp(reach)
            out[at : at + group] = np.ldexp(np.ceil(mantissa * 2048) / 2048, exponent)
    return steps.reshape(array.shape)


def once(array, compressor, state=None):
    spec = GradientSpec("w", array.shape, array.dtype)
    payload, state = compressor.step(array, state or compressor.init(spec))
    return compressor.decode(Payload(payload.data, spec)), state


@given(
    st.integers(0, 10**6),
    st.integers(2, 8),
    st.sampled_from([1, 3, 128]),
    st.sampled_from([np.float32, np.float64]),
    st.integers(-30, 30),
)
@settings(max_examples=60, deadline=None)
def test_every_element_becomes_one_of_its_neighbours(seed, bits, group, dtype, exponent):
    random = np.random.default_rng(seed)
    array = np.ldexp(random.standard_t(3, (4, 37)), exponent).astype(dtype)
    steps = steps_of(array, bits, group)
    found, _ = once(array, Qsgd(bits, group))
    lower = np.floor(array.astype(np.float64) / steps)
    codes = found.astype(np.float64) / steps
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-4)
    assert ((np.rint(codes) == lower) | (np.rint(codes) == lower + 1) | (codes == lower)).all()


def test_the_average_of_many_is_the_gradient():
    array = np.random.default_rng(0).standard_t(3, (2, 300)).astype(np.float32)
    compressor, state = Qsgd(3, 100), None
    steps = steps_of(array, 3, 100)
    total, squares, times = np.zeros(array.shape), np.zeros(array.shape), 2000
    for _ in range(times):
        found, state = once(array, compressor, state)
        total += found
        squares += (found - array.astype(np.float64)) ** 2
    fraction = array / steps - np.floor(array / steps)
    variance = steps**2 * fraction * (1 - fraction)
    deviation = np.sqrt(variance / times)
    off = np.abs(total / times - array) / np.maximum(deviation, 1e-12 + 1e-6 * np.abs(array))
    assert off.max() < 5.5  # of 600 elements
    assert np.mean(off > 2) < 0.09
    assert np.mean(squares) / times == pytest.approx(variance.mean(), rel=0.02)
    assert state.count == times


def test_by_hand():
    array = np.tile(np.array([-7, 7, 0, 3.5], np.float32), 100)
    found = once(array, Qsgd(4, 4))[0].reshape(-1, 4)
    np.testing.assert_array_equal(found[:, :3], np.tile([-7, 7, 0], (100, 1)))
    assert set(found[:, 3]) == {3.0, 4.0}
    assert 30 < np.count_nonzero(found[:, 3] == 3) < 70


def test_what_is_drawn_depends_on_name_worker_step_and_seed():
    array = np.linspace(-1, 1, 500, dtype=np.float32)
    compressor = Qsgd(2)

    def data(name="w", worker=0, steps=1, seed=0):
        spec = GradientSpec(name, array.shape, worker=worker)
        compressor = Qsgd(2, seed=seed)
        state = compressor.init(spec)
        for _ in range(steps):
            payload, state = compressor.step(array, state)
        return payload.data

    assert data() == data()
    assert len({data(), data("v"), data(worker=1), data(steps=2), data(seed=1)}) == 5
    assert compressor.text() == TreeCompressor.of("affine(2)").text()


def test_chunks_draw_the_numbers_of_the_whole():
    array = np.random.default_rng(0).standard_normal(((1 << 20) + 300,)).astype(np.float32)
    long, _ = once(array, Qsgd(2, 128))
    short, _ = once(array[: 1 << 19], Qsgd(2, 128))
    np.testing.assert_array_equal(long[: 1 << 19], short)
    tail = array[1 << 20 :]
    assert not np.array_equal(once(tail, Qsgd(2, 128))[0], long[1 << 20 :])


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (2, 0), (5, 1, 1)], ids=str)
def test_shapes(shape):
    array = np.full(shape, -0.3, np.float32)
    found, _ = once(array, Qsgd(4))
    assert found.shape == shape
    np.testing.assert_allclose(found, array, rtol=1e-3)


@pytest.mark.parametrize("scale", [0.0, 1e-45, 1e-40, 1e-38, 3e38, np.finfo(np.float32).max])
def test_extremes(scale):
    array = np.array([scale, -scale, scale / 3, 0], np.float32)
    found, _ = once(array, Qsgd(2))
    assert np.isfinite(found).all()
    step = max(np.abs(found).max(), 2e-45)
    assert (np.abs(found - array.astype(np.float64)) <= step).all()
    assert found[3] == 0


def test_keys_are_fixed_for_ever():
    assert int(own_key(SPEC, 0, 0)) == 5998844767439357063
    assert int(shared_key(SPEC, 0, 0)) == 8760729404212215899
    keys = {
        int(own_key(GradientSpec("w", (), worker=worker), seed, step))
        for worker, seed, step in itertools.product(range(9), repeat=3)
    }
    assert len(keys) == 729
