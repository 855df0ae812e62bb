"""`PowerSgd`: projections, warm starts, and nothing that divides by zero."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_randomk import summed

from tensorcomp.codecs import parse_tree
from tensorcomp.gradients import Dense, ErrorFeedback, GradientSpec, Payload, PowerSgd, StepInfo
from tensorcomp.gradients.payload.receive import receive_blob


def low_rank(rows, columns, rank, seed=0, dtype=np.float32):
    random = np.random.default_rng(seed)
    left, right = random.standard_normal((rows, rank)), random.standard_normal((rank, columns))
    return (left @ right).astype(dtype)


def alone(compressor, gradient, state=None):
    spec = GradientSpec("w", gradient.shape, gradient.dtype)
    (mean,), (sent,), (after,) = summed(compressor, [gradient], [state or compressor.init(spec)])
    return mean, sent, after


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_matrix_of_low_rank_is_exact(dtype):
    array = low_rank(30, 40, 2, dtype=dtype)
    mean, sent, state = alone(PowerSgd(3), array)
    assert mean.dtype == dtype
    np.testing.assert_allclose(mean, array, atol=2e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(sent.values.reshape(array.shape), mean)
    assert state.right.shape == (40, 3)


def test_what_is_sent_is_a_projection():
    random = np.random.default_rng(0)
    gradients = [random.standard_normal((12, 5, 2, 2)).astype(np.float32) for _ in range(3)]
    compressor = PowerSgd(2)
    spec = GradientSpec("w", gradients[0].shape)
    states = [compressor.init(spec) for _ in range(3)]
    means, sents, after = summed(compressor, gradients, states)
    left = sents[0].left.astype(np.float64)
    np.testing.assert_allclose(left.T @ left, np.eye(2), atol=1e-6)
    matrices = [gradient.reshape(12, 20) for gradient in gradients]
    # P spans the mean of the workers' products with the same Q.
    start = np.mean(matrices, axis=0) @ states[0].right
    np.testing.assert_allclose(left @ (left.T @ start), start, atol=1e-5)
    for matrix, sent in zip(matrices, sents, strict=True):
        np.testing.assert_allclose(sent.values.reshape(12, 20), left @ (left.T @ matrix), atol=1e-5)
    expected = left @ (left.T @ np.mean(matrices, axis=0))
    np.testing.assert_allclose(means[0].reshape(12, 20), expected, atol=1e-5)
    for mean, state in zip(means[1:], after[1:], strict=True):
        np.testing.assert_array_equal(mean, means[0])
        np.testing.assert_array_equal(state.right, after[0].right)


def test_a_warm_start_comes_near_the_best():
    random = np.random.default_rng(1)
    array = random.standard_normal((60, 50)).astype(np.float32)
    array += 3 * low_rank(60, 50, 4, seed=2)
    values = np.linalg.svd(array, compute_uv=False)
    best = np.sqrt((values[4:] ** 2).sum())

    def error(compressor):
        state = None
        for _ in range(8):
            mean, _, state = alone(compressor, array, state)
        return np.linalg.norm(array - mean)

    assert error(PowerSgd(4)) < 1.001 * best
    assert error(PowerSgd(4, warm_start=False)) > 1.01 * best


def test_all_is_sent_in_time():
    array = np.random.default_rng(0).standard_normal((20, 30)).astype(np.float32)
    compressor = ErrorFeedback(PowerSgd(2))
    state = compressor.init(GradientSpec("w", array.shape))
    total, times = np.zeros(array.shape), 40
    for _ in range(times):
        (mean,), _, (state,) = summed(compressor, [array], [state])
        total += mean
    left = state.residual.reshape(array.shape)
    np.testing.assert_allclose(total + left, times * array.astype(np.float64), rtol=1e-3, atol=1e-3)
    assert np.linalg.norm(left) < 15 * np.linalg.norm(array)


@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_and_dependent_rows_give_no_nan_and_lose_no_direction(warm_start, dtype):
    compressor = PowerSgd(4, warm_start)
    zeros = np.zeros((20, 30), dtype)
    rank_one = low_rank(20, 30, 1, dtype=dtype)
    array = low_rank(20, 30, 4, seed=3, dtype=dtype)
    state = None
    for gradient in (zeros, zeros, rank_one, rank_one, zeros, array, array):
        mean, sent, state = alone(compressor, gradient, state)
        assert np.isfinite(mean).all()
        assert np.isfinite(state.right).all()
        gram = sent.left.T @ sent.left
        np.testing.assert_allclose(gram, np.eye(4), atol=1e-5)
        np.testing.assert_allclose(mean, gradient, atol=1e-4)


@given(
    st.integers(0, 999),
    st.integers(1, 6),
    st.sampled_from(["equal", "few", "tiny", "large", "one row", "rank one"]),
    st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_gradient_everything_is_finite(seed, rank, kind, dtype):
    random = np.random.default_rng(seed)
    values = random.standard_normal((15, 16))
    array = {
        "equal": np.ones((15, 16)),
        "few": values * (random.random((15, 16)) < 0.02),
        "tiny": values * 1e-38,
        "large": values * 1e30,
        "one row": values * (np.arange(15) == 3)[:, None],
        "rank one": np.outer(values[:, 0], values[0]),
    }[kind].astype(dtype)
    state = None
    for _ in range(3):
        mean, _, state = alone(PowerSgd(rank), array, state)
        assert np.isfinite(mean).all()
        assert np.isfinite(state.right).all()
        norm = np.linalg.norm(array.astype(np.float64))
        assert np.linalg.norm(mean.astype(np.float64)) <= norm * 1.001 + 1e-37


def test_payload_is_that_of_the_tree():
    array = np.random.default_rng(0).standard_normal((30, 10, 2)).astype(np.float32)
    compressor = PowerSgd(3)
    spec = GradientSpec("w", array.shape)
    payload, after = compressor.step(array, compressor.init(spec))
    mean, _, other = alone(compressor, array)
    read = receive_blob(parse_tree("svd(3, left=raw, right=raw)"), payload)
    np.testing.assert_array_equal(read.values.reshape(array.shape), mean)
    np.testing.assert_array_equal(compressor.decode(Payload(payload.data, spec)), mean)
    np.testing.assert_array_equal(after.right, other.right)
    assert len(payload.data) == 4 * 3 * (30 + 20) + 1 + 2 * 9 + 8


def test_payload_of_many_chunks():
    array = low_rank(1100, 1000, 2)
    compressor, spec = PowerSgd(2), GradientSpec("w", array.shape)
    payload, _ = compressor.step(array, compressor.init(spec))
    decoded = compressor.decode(Payload(payload.data, spec))
    np.testing.assert_allclose(decoded, array, atol=1e-3)
    np.testing.assert_array_equal(payload.decoded.values, decoded.reshape(-1))
    assert len(payload.data) < 4 * 2 * (1100 + 2 * 1000) + 200


@pytest.mark.parametrize(
    ("shape", "rank", "factored"),
    [
        ((), 1, False),
        ((500,), 1, False),
        ((0, 5), 1, False),
        ((10, 10), 4, True),
        ((10, 10), 5, False),
        ((2, 500), 1, True),
        ((2, 500), 4, False),
        ((8, 4, 3, 3), 4, True),
    ],
    ids=str,
)
def test_what_factors_do_not_make_smaller_is_sent_dense(shape, rank, factored):
    compressor, spec = PowerSgd(rank), GradientSpec("w", shape)
    chosen = compressor.at(StepInfo(), spec)
    assert chosen == (compressor if factored else Dense())
    array = np.full(shape, 0.5, np.float32)
    mean, sent, state = alone(compressor, array)  # as a unit of several tensors may be
    np.testing.assert_allclose(mean, array, rtol=1e-6)
    assert sent.count == array.size
    payload, _ = compressor.step(array, compressor.init(spec))
    np.testing.assert_allclose(compressor.decode(Payload(payload.data, spec)), array, rtol=1e-6)
    assert state.count == int(factored)


def test_draws_depend_on_the_seed_and_not_on_the_worker():
    first, second = (GradientSpec("w", (20, 30), worker=worker) for worker in (1, 2))
    right = PowerSgd(2).init(first).right
    np.testing.assert_array_equal(PowerSgd(2).init(second).right, right)
    assert not np.array_equal(PowerSgd(2, seed=1).init(first).right, right)
    assert PowerSgd(2).text() != PowerSgd(3).text()
