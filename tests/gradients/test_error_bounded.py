"""`ErrorBounded`: the bound holds for what is decoded, for every tensor."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.errors import CodecError
from tensorcomp.gradients import ErrorBounded, GradientSpec, Payload
from tensorcomp.gradients.payload.encode import tree_blob


def step(compressor, array, state=None):
    """Return what is decoded, its relative L2 and greatest errors in float64, payload and state."""
    spec = GradientSpec("w", array.shape, array.dtype)
    payload, after = compressor.step(array, state or compressor.init(spec))
    decoded = compressor.decode(Payload(payload.data, spec))
    known = np.zeros(array.size, array.dtype)
    payload.decoded.add_to(known, 1.0)
    np.testing.assert_array_equal(decoded.reshape(-1), known)
    off = decoded.astype(np.float64) - array
    norm = np.linalg.norm(array.astype(np.float64))
    rel_l2 = np.linalg.norm(off) / norm if norm else float(np.abs(off).max(initial=0) > 0)
    return rel_l2, np.abs(off).max(initial=0), payload, after


def arrays():
    shapes = st.sampled_from([(), (1,), (0,), (7,), (300,), (40, 30), (3, 4, 5)])
    kinds = st.sampled_from(["normal", "heavy", "sparse", "equal", "outlier", "zeros", "large"])
    return st.tuples(shapes, kinds, st.sampled_from([np.float32, np.float64]), st.integers(0, 99))


def made(shape, kind, dtype, seed):
    random = np.random.default_rng(seed)
    values = {
        "normal": random.standard_normal(shape),
        "heavy": random.standard_cauchy(shape) * 1e-6,
        "sparse": random.standard_normal(shape) * (random.random(shape) < 0.03),
        "equal": np.full(shape, 0.3),
        "outlier": random.standard_normal(shape) + 1e6 * (random.random(shape) < 0.01),
        "zeros": np.zeros(shape),
        "large": random.standard_normal(shape) * 1e37,
    }[kind]
    return np.asarray(values, dtype)


@given(arrays(), st.sampled_from([0.5, 0.1, 1e-2, 1e-5, 0.0]))
@settings(max_examples=60, deadline=None)
def test_relative_bound_holds(case, bound):
    rel_l2, max_abs, _, state = step(ErrorBounded(max_rel_l2=bound), made(*case))
    assert rel_l2 <= bound
    assert state.achieved == state.rel_l2 == pytest.approx(rel_l2, rel=1e-6)
    assert state.max_abs == pytest.approx(max_abs)


@given(arrays(), st.sampled_from([1.0, 1e-3, 1e-8, 0.0]))
@settings(max_examples=60, deadline=None)
def test_absolute_bound_holds(case, bound):
    _, max_abs, _, state = step(ErrorBounded(max_abs=bound), made(*case))
    assert max_abs <= bound
    assert state.achieved == state.max_abs == pytest.approx(max_abs)


@given(arrays())
@settings(max_examples=30, deadline=None)
def test_both_bounds_hold(case):
    array = made(*case)
    rel_l2, max_abs, _, _ = step(ErrorBounded(max_rel_l2=0.2, max_abs=0.1), array)
    assert rel_l2 <= 0.2
    assert max_abs <= 0.1


@pytest.mark.parametrize("bound", [0.3, 0.1, 0.03])
def test_the_bound_is_used_and_steps_are_found_at_once(bound, monkeypatch):
    encoded = []
    monkeypatch.setattr(
        "tensorcomp.gradients.compressors.error_bounded.tree_blob",
        lambda tree, *rest: encoded.append(tree) or tree_blob(tree, *rest),
    )
    random = np.random.default_rng(0)
    compressor, state = ErrorBounded(max_rel_l2=bound), None
    for count in range(20):
        array = (0.9**count * random.standard_t(4, (200, 300))).astype(np.float32)
        rel_l2, _, payload, state = step(compressor, array, state)
        assert 0.85 * bound < rel_l2 <= bound
        assert not state.lossless
        assert 8 * len(payload.data) < 8 * array.size
    assert len(encoded) <= 26


def test_an_absolute_bound_needs_one_trial_and_fewer_bits_than_lossless():
    array = np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32)
    _, max_abs, payload, state = step(ErrorBounded(max_abs=0.25), array)
    assert 0.249 < max_abs <= 0.25
    assert len(payload.data) * 8 < 3.3 * array.size
    assert state.scale == 0.5  # twice the bound


def test_a_bound_that_no_step_keeps_is_kept_without_loss():
    array = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    compressor = ErrorBounded(max_rel_l2=1e-3, tree="affine(4)")
    rel_l2, _, payload, state = step(compressor, array)
    assert rel_l2 == 0
    assert state.lossless == 1
    assert state.achieved == 0
    assert payload.data[:8] == bytes(8)
    rel_l2, _, _, state = step(ErrorBounded(max_rel_l2=0.2, tree="affine(4)"), array)
    assert 0.05 < rel_l2 < 0.2
    assert state.lossless == 0


def test_payload_is_the_factor_and_the_blob():
    array = np.random.default_rng(0).standard_normal((60, 70)).astype(np.float32)
    compressor = ErrorBounded(max_rel_l2=0.1)
    spec = GradientSpec("w", array.shape)
    payload, _ = compressor.step(array, compressor.init(spec))
    factor = struct.unpack_from("<d", payload.data)[0]
    blob = tree_blob(f"uniform({factor!r}, codes=huffman)", array, spec)
    assert payload.data[8:] == blob.data


def test_another_kind_of_gradient_is_met_within_the_step():
    random = np.random.default_rng(0)
    compressor = ErrorBounded(max_rel_l2=0.1)
    gaussian = random.standard_normal((100, 100)).astype(np.float32)
    rare = (random.random((100, 100)) < 0.002).astype(np.float32) * gaussian
    heavy = random.standard_cauchy((100, 100)).astype(np.float32)
    state = None
    for array in (heavy, gaussian, rare, heavy, gaussian):
        rel_l2, _, _, state = step(compressor, array, state)
        assert rel_l2 <= 0.1
        assert not state.lossless


def test_other_trees():
    array = np.random.default_rng(0).standard_normal((100, 90)).astype(np.float32)
    for tree in ("uniform(3)", "trellis(1)", "sparse(values=uniform(1))", "affine(8)", "raw"):
        compressor = ErrorBounded(max_rel_l2=0.05, tree=tree)
        rel_l2, _, _, state = step(compressor, array)
        assert rel_l2 <= 0.05
        assert rel_l2 > 0.03 or tree in ("affine(8)", "raw")
        assert not state.lossless


def test_zeros_keep_the_scale():
    array = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    compressor = ErrorBounded(max_rel_l2=0.1)
    *_, state = step(compressor, array)
    rel_l2, _, payload, after = step(compressor, np.zeros_like(array), state)
    assert rel_l2 == 0
    assert payload.data == b""
    assert after.scale == state.scale
    assert not after.lossless


def test_payloads_are_read_without_the_bound():
    assert ErrorBounded(max_rel_l2=0.1).text() == ErrorBounded(max_rel_l2=0.3).text()
    assert ErrorBounded(max_rel_l2=0.1).text() == ErrorBounded(max_abs=0.3).text()
    assert ErrorBounded(max_abs=1, tree="uniform(1)").text() != ErrorBounded(max_abs=1).text()
    array = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    payload, _ = ErrorBounded(max_abs=0.1).step(
        array, ErrorBounded(max_abs=0.1).init(GradientSpec("w", array.shape))
    )
    other = ErrorBounded(max_rel_l2=0.5).decode(payload)
    assert np.abs(other - array).max() <= 0.1


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf"), -float("inf")])
def test_bad_heads_are_refused(factor):
    array, spec = np.ones(50, np.float32), GradientSpec("w", (50,))
    compressor = ErrorBounded(max_abs=0.1)
    data = compressor.step(array, compressor.init(spec))[0].data
    with pytest.raises(CodecError, match="'w': expected a finite factor above 0, got"):
        compressor.receive(Payload(struct.pack("<d", factor) + data[8:], spec))
