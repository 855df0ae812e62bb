import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.errors import GradientError
from tensorcomp.gradients.payload.decoded import (
    DecodedGradient,
    DenseGradient,
    EmptyGradient,
    SparseGradient,
)
from tensorcomp.gradients.wrappers.packet_loss import PacketLoss, divide


def as_array(sent: DecodedGradient, size: int) -> np.ndarray:
    out = np.zeros(size, np.float32)
    sent.add_to(out, 1.0)
    return out


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(0, 3000),
    chunk=st.integers(1, 300),
    loss=st.floats(0, 1),
    tolerance=st.floats(0, 1),
    seed=st.integers(0, 2**40),
)
def test_no_more_chunks_stay_lost_than_tolerated(size, chunk, loss, tolerance, seed):
    packet_loss = PacketLoss(loss, tolerance, chunk, seed)
    lost = packet_loss.lost(size, name="w", step=3, sender=1)
    assert lost.shape == (-(-size // chunk),)
    assert lost.sum() <= tolerance * lost.size


def test_chunks_are_lost_with_the_probability_asked_for():
    packet_loss = PacketLoss(0.02, 1.0, chunk=4)
    lost = packet_loss.lost(400_000, name="w", step=0, sender=0)
    assert abs(lost.mean() - 0.02) < 4 * np.sqrt(0.02 * 0.98 / 100_000)


def test_certain_loss_is_cut_down_to_the_tolerance_of_the_phase():
    packet_loss = PacketLoss(1.0, {"beginning": 0.5, "middle": 0.2, "final": 0.0}, chunk=1)
    kept = [
        packet_loss.lost(1000, name="w", step=0, sender=0, phase=phase).sum()
        for phase in ("beginning", "middle", "final")
    ]
    assert kept == [500, 200, 0]


def test_what_is_lost_depends_on_step_sender_name_and_seed_only():
    packet_loss = PacketLoss(0.5, 1.0, chunk=1)
    first = packet_loss.lost(500, name="w", step=1, sender=2)
    assert np.array_equal(
        first, PacketLoss(0.5, 1.0, chunk=1).lost(500, name="w", step=1, sender=2)
    )
    others = [
        packet_loss.lost(500, name="v", step=1, sender=2),
        packet_loss.lost(500, name="w", step=2, sender=2),
        packet_loss.lost(500, name="w", step=1, sender=3),
        PacketLoss(0.5, 1.0, 1, seed=1).lost(500, name="w", step=1, sender=2),
    ]
    assert all(not np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_the_mean_is_over_what_arrived(form):
    rng = np.random.default_rng(0)
    size, chunk, world = 1000, 64, 3
    gradients = rng.standard_normal((world, size)).astype(np.float32)
    sent: list[DecodedGradient] = [DenseGradient(gradient.copy()) for gradient in gradients]
    if form == "sparse":
        sent = []
        for gradient in gradients:
            positions = np.sort(rng.choice(size, 200, replace=False)).astype(np.int64)
            sent.append(SparseGradient(positions, gradient[positions]))
        gradients = np.stack([as_array(one, size) for one in sent])
    packet_loss = PacketLoss(0.4, 1.0, chunk, seed=7)
    mean, dropped = packet_loss.mean(sent, size, name="w", step=5, owner=1)
    lost = np.stack(
        [
            np.repeat(packet_loss.lost(size, name="w", step=5, sender=s), chunk)[:size]
            for s in range(3)
        ]
    )
    lost[1] = False
    expected = np.where(lost, 0, gradients).sum(0) / np.maximum(1, (~lost).sum(0))
    assert np.allclose(mean, expected, atol=1e-6)
    assert lost.any()
    for sender, one in enumerate(dropped):
        assert np.array_equal(as_array(one, size), np.where(lost[sender], gradients[sender], 0))
    assert isinstance(dropped[1], EmptyGradient)


def test_where_nothing_arrives_the_mean_is_zero():
    mean, dropped = PacketLoss(1.0, 1.0).mean(
        [DenseGradient(np.ones(9, np.float32))], 9, name="w", step=0
    )
    assert not mean.any()
    assert np.array_equal(as_array(dropped[0], 9), np.ones(9))


def test_without_loss_the_mean_is_the_mean():
    sent = [DenseGradient(np.full(5, 2.0)), DenseGradient(np.full(5, 4.0)), EmptyGradient()]
    mean, dropped = PacketLoss(0.0).mean(sent, 5, name="w", step=0, dtype=np.float64)
    assert mean.dtype == np.float64
    assert np.array_equal(mean, np.full(5, 2.0))
    assert all(isinstance(one, EmptyGradient) for one in dropped)


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 400), chunk=st.integers(1, 50), seed=st.integers(0, 999))
def test_arrived_and_lost_are_all_that_was_sent(size, chunk, seed):
    rng = np.random.default_rng(seed)
    lost = rng.random(-(-size // chunk)) < 0.5
    values = rng.standard_normal(size).astype(np.float32)
    positions = np.flatnonzero(rng.random(size) < 0.3)
    for sent in (
        DenseGradient(values),
        SparseGradient(positions, values[positions]),
        EmptyGradient(),
    ):
        arrived, gone = (as_array(one, size) for one in divide(sent, lost, chunk))
        assert np.array_equal(arrived + gone, as_array(sent, size))
        assert not gone[~np.repeat(lost, chunk)[:size]].any()
        assert not arrived[np.repeat(lost, chunk)[:size]].any()


def test_an_unknown_phase_is_refused():
    with pytest.raises(GradientError, match=r"expected a phase among .*, got 'late'"):
        PacketLoss().lost(9, name="w", step=0, sender=0, phase="late")
