from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.payload.states import flatten
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.momentum import MomentumCorrection, check_optimizer, for_workers
from tensorcomp.gradients.wrappers.per_role import PerRole

TOP1 = ErrorFeedback(TreeCompressor.of("topk(1, values=raw)"))
EXACT = ErrorFeedback(Dense())


SIZE = 64  # of fewer elements, all would be sent as they are


def padded(*values):
    return np.float32([*values, *[0] * (SIZE - len(values))])


def first(array, count=2):
    """Return the first elements, after a look at the others, which are zero."""
    assert not array[count:].any()
    return array[:count].tolist()


def steps(compressor, gradients, state=None):
    """Return what every step sends, as arrays, and the last state."""
    spec = GradientSpec("w", np.shape(gradients[0]))
    state = compressor.init(spec) if state is None else state
    sent = []
    for gradient in gradients:
        payload, state = compressor.step(np.asarray(gradient, np.float32), state)
        sent.append(compressor.decode(payload))
    return sent, state


def test_velocity_is_masked_where_it_was_sent():
    sent, state = steps(MomentumCorrection(TOP1, momentum=0.5), [padded(4, 1)])
    assert first(sent[0]) == [4, 0]
    assert first(state.velocity) == [0, 1]
    assert first(state.inner.residual) == [0, 1]
    assert {"velocity", "inner.residual"} <= set(flatten(state))
    # u = 0.5 · (0, 1) + (1, 1); with the residual (1, 2.5) is compressed.
    sent, state = steps(MomentumCorrection(TOP1, momentum=0.5), [padded(1, 1)], state)
    assert first(sent[0]) == [0, 2.5]
    assert first(state.velocity) == [1, 0]
    assert first(state.inner.residual) == [1, 0]


def test_velocity_is_kept_without_masking():
    compressor = MomentumCorrection(TOP1, momentum=0.5, masking=False)
    _, state = steps(compressor, [padded(4, 1), padded(1, 1)])
    assert first(state.velocity) == [3, 1.5]


@pytest.mark.parametrize("nesterov", [False, True])
def test_everything_sent_is_sgd_with_momentum(nesterov):
    torch = pytest.importorskip("torch")
    gradients = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    weight = torch.zeros(5, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.9, nesterov=nesterov)
    for gradient in gradients:
        weight.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
    sent, state = steps(MomentumCorrection(EXACT, nesterov=nesterov), gradients)
    np.testing.assert_allclose(-np.sum(sent, axis=0), weight.detach().numpy(), rtol=1e-5)
    velocity = optimizer.state[weight]["momentum_buffer"].numpy()
    np.testing.assert_allclose(state.velocity, velocity, rtol=1e-5)


def test_nesterov_looks_ahead_and_masks_the_velocity():
    compressor = MomentumCorrection(TOP1, momentum=0.5, nesterov=True)
    sent, state = steps(compressor, [padded(4, 1)])
    assert first(sent[0]) == [6, 0]  # g + 0.5 · u
    np.testing.assert_allclose(first(state.velocity), [0, 1])
    np.testing.assert_allclose(first(state.inner.residual), [0, 1.5])


def test_a_gradient_of_zeros_gives_on_the_residual_alone():
    compressor = MomentumCorrection(TOP1, momentum=0.5)
    _, state = steps(compressor, [padded(4, 3, 2)])
    assert first(state.velocity, 3) == [0, 3, 2]
    sent, after = steps(compressor, [padded()], state)
    assert first(sent[0], 3) == [0, 3, 0]  # of the residual (0, 3, 2)
    assert first(after.inner.residual, 3) == [0, 0, 2]
    assert first(after.velocity, 3) == [0, 0, 2]  # masked, but not multiplied by 0.5
    assert first(state.velocity, 3) == [0, 3, 2]


def test_a_velocity_that_cancels_out_is_no_gradient_of_zeros():
    compressor = MomentumCorrection(ErrorFeedback(TreeCompressor.of("topk(0, values=raw)")), 0.5)
    _, state = steps(compressor, [padded(2.0, 4.0)])
    assert first(state.velocity) == [2, 4]
    _, state = steps(compressor, [padded(-1.0, -2.0)], state)
    assert first(state.velocity) == [0, 0]


@pytest.mark.parametrize(("workers", "limit"), [(1, 2.0), (4, 1.0)])
def test_clipping_keeps_the_norm_of_each_workers_gradient(workers, limit):
    compressor = MomentumCorrection(EXACT, momentum=0.0, clip=2.0, workers=workers)
    (sent,), _ = steps(compressor, [[3, -4]])
    np.testing.assert_allclose(sent, np.float32([0.6, -0.8]) * limit, rtol=1e-6)
    (small,), _ = steps(compressor, [[0.3, -0.4]])
    assert small.tolist() == [np.float32(0.3), np.float32(-0.4)]
    (huge,), _ = steps(compressor, [[3e30, -4e30]])  # whose squares overflow
    np.testing.assert_allclose(huge, np.float32([0.6, -0.8]) * limit, rtol=1e-6)


def test_workers_are_counted_later():
    clipped = MomentumCorrection(TOP1, clip=2.0)
    assert for_workers(PerRole(clipped), 4) == PerRole(MomentumCorrection(TOP1, 0.9, 2.0, 4))
    told = MomentumCorrection(TOP1, clip=2.0, workers=7)
    assert for_workers(told, 4) is told
    assert for_workers(TOP1, 4) is TOP1


@given(
    st.lists(
        st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4), min_size=1, max_size=6
    ),
    st.sampled_from([0.0, 0.5, 0.9]),
)
def test_what_is_sent_and_what_is_left_are_the_sum_of_velocities(gradients, momentum):
    compressor = MomentumCorrection(TOP1, momentum=momentum, masking=False)
    gradients = [padded(*gradient) for gradient in gradients]
    sent, state = steps(compressor, gradients)
    velocity, total = np.zeros(SIZE), np.zeros(SIZE)
    for gradient in gradients:
        if gradient.any():
            velocity = momentum * velocity + np.float64(gradient)
            total += velocity
    scale = max(1.0, float(np.abs(gradients).max())) * len(gradients) ** 2
    np.testing.assert_allclose(
        np.sum(sent, axis=0) + state.inner.residual, total, atol=1e-5 * scale
    )


def test_empty_and_scalar_tensors():
    compressor = MomentumCorrection(EXACT)
    (sent,), _ = steps(compressor, [np.zeros((0, 3))])
    assert sent.shape == (0, 3)
    sent, _ = steps(compressor, [np.float32(1), np.float32(1)])
    assert [float(one) for one in sent] == [1, np.float32(1.9)]


def test_what_decides_inside_is_resolved_within():
    compressor = MomentumCorrection(PerRole(TOP1, small=3))
    small = compressor.at(StepInfo(), GradientSpec("w", (2,)))
    assert small == MomentumCorrection(EXACT)
    assert compressor.at(StepInfo(), GradientSpec("w", (4,))) == MomentumCorrection(TOP1)
    assert small.text() == "dense"


def test_optimizers_with_momentum_are_refused():
    torch = pytest.importorskip("torch")
    weight = torch.zeros(1, requires_grad=True)
    check_optimizer(torch.optim.SGD([weight], lr=0.1, weight_decay=1e-4))
    check_optimizer(torch.optim.SGD([{"params": [weight], "momentum": 0.0}], lr=0.1))
    with pytest.raises(GradientError, match=r"SGD has momentum 0\.9 in parameter group 0"):
        check_optimizer(torch.optim.SGD([weight], lr=0.1, momentum=0.9))
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad):
        with pytest.raises(GradientError, match=f"the optimizer is {kind.__name__}"):
            check_optimizer(kind([weight], lr=0.1))


def test_any_group_is_looked_at():
    optimizer = SimpleNamespace(param_groups=[{"momentum": 0}, {"momentum": 0.5}])
    with pytest.raises(GradientError, match="parameter group 1"):
        check_optimizer(optimizer)
