"""Error feedback loses nothing, and a step can be undone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import GradientError
from tensorcomp.gradients import Dense, ErrorFeedback, GradientSpec, TreeCompressor
from tensorcomp.gradients.payload.states import carry, flatten, join, split, unflatten
from tensorcomp.gradients.wrappers.base import leaf_of, map_leaf

SPEC = GradientSpec("layer.weight", (30, 20))


def gradients(count: int, shape: tuple[int, ...] = SPEC.shape) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.standard_t(3, shape).astype(np.float32) for _ in range(count)]


@given(
    st.sampled_from(["topk(0.02)", "topk(0.05, values=affine(4))", "sign", "affine(2)", "raw"]),
    st.integers(1, 12),
)
def test_sent_and_residual_add_up_to_the_gradients(text, steps):
    compressor = ErrorFeedback(TreeCompressor.of(text))
    state = compressor.init(SPEC)
    sent, total = np.zeros(SPEC.shape), np.zeros(SPEC.shape)
    for gradient in gradients(steps):
        before = gradient.copy()
        payload, state = compressor.step(gradient, state)
        np.testing.assert_array_equal(gradient, before)
        sent += compressor.decode(payload)
        total += gradient
    error = np.linalg.norm(sent.reshape(-1) + state.residual - total.reshape(-1))
    assert error <= 1e-5 * np.linalg.norm(total)


def test_decay_and_bfloat16():
    (first, second) = gradients(2)
    decayed = ErrorFeedback(TreeCompressor.of("topk(0)"), decay=0.5)
    _, state = decayed.step(first, decayed.init(SPEC))
    _, state = decayed.step(second, state)
    np.testing.assert_allclose(state.residual.reshape(SPEC.shape), first / 2 + second, rtol=1e-6)
    small = ErrorFeedback(TreeCompressor.of("topk(0)"), dtype="bfloat16")
    _, state = small.step(first, small.init(SPEC))
    assert state.residual.dtype.name == "bfloat16"
    np.testing.assert_array_equal(
        state.residual.astype(np.float32), first.reshape(-1).astype(state.residual.dtype)
    )


def test_double_gradients_keep_double_residuals():
    spec = GradientSpec("w", (50,), np.dtype(np.float64))
    compressor = ErrorFeedback(TreeCompressor.of("topk(5)"))
    gradient = np.random.default_rng(0).standard_normal(50)
    payload, state = compressor.step(gradient, compressor.init(spec))
    assert state.residual.dtype == np.float64
    np.testing.assert_array_equal(state.residual + compressor.decode(payload), gradient)


def test_states_are_cut_and_joined():
    compressor = ErrorFeedback(TreeCompressor.of("topk(0.1)"))
    specs = [GradientSpec("a", (10,)), GradientSpec("b", (4, 5)), GradientSpec("c", (0,))]
    whole = GradientSpec("a+b+c", (30,))
    _, state = compressor.step(gradients(1, (30,))[0], compressor.init(whole))
    parts = split(state, specs)
    assert [part.residual.size for part in parts] == [10, 20, 0]
    assert [part.spec for part in parts] == specs
    assert parts[1].inner.spec == specs[1]
    again = join(parts, whole)
    np.testing.assert_array_equal(again.residual, state.residual)
    assert again.spare.size == 30
    parts[0].residual[:] = 0
    assert again.residual[:10].any()
    with pytest.raises(GradientError, match="expected sizes that sum to 30, got 10"):
        split(state, specs[:1])


def test_states_as_mappings():
    compressor = ErrorFeedback(TreeCompressor.of("topk(0.1)"))
    _, state = compressor.step(gradients(1)[0], compressor.init(SPEC))
    flat = flatten(state)
    assert list(flat) == ["residual"]
    again = unflatten(compressor.init(SPEC), flat)
    np.testing.assert_array_equal(again.residual, state.residual)
    with pytest.raises(GradientError, match=r"layer\.weight: residual"):
        unflatten(compressor.init(SPEC), {})
    with pytest.raises(GradientError, match="expected 600 elements"):
        unflatten(compressor.init(SPEC), {"residual": np.zeros(3)})


def test_residuals_are_carried_to_another_compressor():
    sparse = ErrorFeedback(TreeCompressor.of("topk(0.1)"))
    _, state = sparse.step(gradients(1)[0], sparse.init(SPEC))
    other = ErrorFeedback(Dense(), decay=0.9)
    carried = carry(other, state)
    np.testing.assert_array_equal(carried.residual, state.residual)
    assert type(carry(Dense(), state)) is type(Dense().init(SPEC))


def test_the_innermost_compressor_is_changed():
    compressor = ErrorFeedback(TreeCompressor.of("topk(0.1, values=affine(8))"), decay=0.5)
    less = map_leaf(compressor, lambda leaf: leaf.with_keep(0.01))
    assert less.decay == 0.5
    assert leaf_of(less).keep == 0.01
    assert map_leaf(compressor, lambda leaf: Dense()) == ErrorFeedback(Dense(), decay=0.5)
    with pytest.raises(GradientError, match="expected a compressor with a ratio"):
        TreeCompressor.of("sign").with_keep(0.1)
