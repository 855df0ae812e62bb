"""Reductions by owners and by sums in a model, whose buckets change and whose states are saved."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from ranks import run
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.gradients import compress_gradients
from tensorcomp.gradients.base import Compressor, GradientSpec, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.wrappers.base import Wrapper
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.packet_loss import PacketLoss
from tensorcomp.gradients.wrappers.reduce_scatter import ReduceScatter


def model_of() -> DistributedDataParallel:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(20, 70), nn.Tanh(), nn.Linear(70, 90), nn.Tanh(), nn.Linear(90, 3)
    )
    return DistributedDataParallel(model, bucket_cap_mb=0.01)


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    torch.manual_seed(1000 * step + rank)
    return nn.functional.mse_loss(model(torch.randn(8, 20)), torch.randn(8, 3))


def gradients(model: nn.Module) -> dict[str, np.ndarray]:
    return {
        name: one.grad.double().numpy().reshape(-1).copy() for name, one in model.named_parameters()
    }


class Sums:
    """The sums of the means that arrived, and of those that should have."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.model = model
        self.got: dict[str, np.ndarray] = {}
        self.due: dict[str, np.ndarray] = {}

    def step(self, step: int) -> dict[str, np.ndarray]:
        world = dist.get_world_size()
        self.model.zero_grad()
        for rank in range(world):
            (loss_of(self.model.module, step, rank) / world).backward()
        self._add(self.due, gradients(self.model.module))
        self.model.zero_grad()
        loss_of(self.model, step, dist.get_rank()).backward()
        found = gradients(self.model.module)
        self._add(self.got, found)
        return found

    def error(self, state: Any) -> float:
        """Return what is neither sent nor in the state, relative to the gradients."""
        worst = 0.0
        for name, due in self.due.items():
            left = self.got[name] - due
            for kind in ("states", "means"):
                residual = state[kind].get(name, {})
                for field, value in residual.items():
                    if field.split(".")[-1] == "residual":
                        left = left + value.double().numpy().reshape(-1)
            worst = max(worst, float(np.abs(left).sum() / np.abs(due).sum()))
        return worst

    @staticmethod
    def _add(sums: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
        for name, one in found.items():
            sums[name] = sums.get(name, 0) + one


TEXTS = [
    "feedback(int8)",
    "owners(topk(0.05, values=affine(8), mask=gaps))",
    "owners(adaptive_threshold(0.05))",
    "powersgd(1)",
    "randomk(0.1, scale=false)",
    "per_role(feedback(int4), small=1000)",
]


def nothing_is_lost() -> list[tuple[str, float]]:
    errors = []
    for text in TEXTS:
        model = model_of()
        sums = Sums(model)
        with compress_gradients(model, text, check_ranks=1, observe=1) as compression:
            for step in range(5):
                sums.step(step)
            last = compression.metrics.last
            assert last is not None
            assert 0 < last.payload_bytes < last.raw_bytes / 2
            assert last.cosine is not None
            assert 0.1 < last.cosine <= 1
            errors.append((text, sums.error(compression.state_dict("mean"))))
    return errors


@pytest.mark.parametrize("world", [2, 3])
def test_nothing_is_lost_while_buckets_change(world):
    (errors, *others) = run(nothing_is_lost, world=world)
    assert all(other == errors for other in others)
    for text, error in errors:
        assert error < 1e-5, text


def resumed() -> list[str]:
    texts = ["owners(topk(0.05))", "feedback(int4)", "qsgd(4)", "powersgd(1)"]
    for text in texts:
        model = model_of()
        with compress_gradients(model, text) as compression:
            sums = Sums(model)
            for step in range(3):
                sums.step(step)
            file = io.BytesIO()
            torch.save(compression.state_dict(), file)
            straight = [sums.step(step) for step in range(3, 5)]
        again = model_of()
        loss_of(again, 9, 0).backward()  # builds the buckets anew, as after some steps
        again.zero_grad()
        loss_of(again, 9, 0).backward()
        with compress_gradients(again, text) as compression:
            file.seek(0)
            compression.load_state_dict(torch.load(file, weights_only=True))
            sums = Sums(again)
            for step, expected in zip(range(3, 5), straight, strict=True):
                found = sums.step(step)
                assert all(np.array_equal(found[name], expected[name]) for name in expected), text
    return texts


def test_resuming_is_going_on_bit_for_bit():
    run(resumed, world=2)


def saved_mean() -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    model = model_of()
    sums = Sums(model)
    with compress_gradients(model, "owners(topk(0.05))") as compression:
        for step in range(3):
            sums.step(step)
        return compression.state_dict("mean"), sums.got, sums.due


def loaded_mean(
    state: dict[str, Any], got: dict[str, np.ndarray], due: dict[str, np.ndarray]
) -> float:
    model = model_of()
    sums = Sums(model)
    sums.got, sums.due = dict(got), dict(due)
    with compress_gradients(model, "owners(topk(0.05))") as compression:
        compression.load_state_dict(state)
        for step in range(3, 6):
            sums.step(step)
        return sums.error(compression.state_dict("mean"))


def test_nothing_is_lost_when_the_number_of_ranks_changes():
    state, got, due = run(saved_mean, world=3)[0]
    assert any(bool(fields["residual"].any()) for fields in state["means"].values())
    for error in run(loaded_mean, state, got, due, world=2):
        assert error < 1e-5


@dataclass(frozen=True)
class Switching(Wrapper):
    """Reduces by owners at first, then gathers, then sends what is left as it is."""

    inner: Compressor

    def at(self, info: StepInfo, spec: GradientSpec) -> Compressor:
        topk = TreeCompressor.of("topk(0.05)")
        if info.step < 3:
            return ErrorFeedback(ReduceScatter(topk))
        return ErrorFeedback(topk if info.step < 5 else Dense())

    def text(self) -> str:
        return "switching"

    def before(self, gradient: Any, state: Any) -> Any:
        raise NotImplementedError

    def after(self, given: Any, sent: Any, state: Any, inner: Any) -> Any:
        raise NotImplementedError


def switched() -> list[float]:
    model = model_of()
    sums = Sums(model)
    errors = []
    with compress_gradients(model, Switching(Dense()), check_ranks=1) as compression:
        for step in range(8):
            sums.step(step)
            errors.append(sums.error(compression.state_dict("mean")))
        assert not compression.state_dict("mean")["means"]
        errors.append(sums.error({"states": {}, "means": {}}))
    return errors


def test_what_owners_left_out_is_sent_when_others_reduce():
    for errors in run(switched, world=2):
        assert max(errors) < 1e-5


def lossy() -> list[float]:
    found = []
    for text, acknowledged in [("topk(0.2)", True), ("topk(0.2)", False), ("dense", False)]:
        model = model_of()
        sums = Sums(model)
        loss = PacketLoss(0.5, 0.5, chunk=16, acknowledged=acknowledged)
        with compress_gradients(model, text, packet_loss=loss, check_ranks=1) as compression:
            for step in range(3):
                sums.step(step)
            found.append(sums.error(compression.state_dict("mean")))
    return found


def test_chunks_are_lost_where_a_simulator_says_so():
    first, second = run(lossy, world=2)
    assert first == second
    # The mean is over those whose chunk arrived, so even acknowledged loss changes sums.
    assert all(error > 1e-3 for error in first)
