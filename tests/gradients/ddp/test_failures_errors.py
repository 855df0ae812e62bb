"""An exception on one rank ends all ranks with its message; nothing hangs."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import ranks
import torch
from given_gradients import SHAPES, Given
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.gradients import Payload, State, TreeCompressor, compress_gradients

SPARSE = "topk(0.02, values=affine(8), indices=gaps)"
COMPRESSORS = [SPARSE, "int8", "powersgd(2)"]


def _train(compressor: Any, fail_in_step: Any = None) -> None:
    model = DistributedDataParallel(Given(SHAPES), bucket_cap_mb=0.02)
    with compress_gradients(model, compressor):
        for step in range(6):
            if fail_in_step is not None:
                fail_in_step(step)
            model({f"p{i}": torch.ones(shape) for i, shape in enumerate(SHAPES)}).backward()


def _user_code_fails(compressor: str) -> None:
    def fail(step: int) -> None:
        if distributed.get_rank() == distributed.get_world_size() - 1 and step == 3:
            raise LookupError("sample 17 is missing")

    _train(compressor, fail)


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("world", [2, 3])
def test_exception_in_user_code_ends_all_ranks(compressor, world):
    error = ranks.failed(_user_code_fails, compressor, world=world)
    failures = error.failures
    assert failures[world - 1].kind == "LookupError"
    for rank in range(world - 1):
        assert "sample 17 is missing" in failures[rank].message
        assert f"rank {world - 1}" in failures[rank].message
    assert error.seconds < 10


def _rank_0_fails_with_the_store() -> None:
    def fail(step: int) -> None:
        if distributed.get_rank() == 0 and step == 2:
            raise LookupError("sample 17 is missing")

    _train(SPARSE, fail)


def test_message_of_the_rank_that_holds_the_store_arrives():
    error = ranks.failed(_rank_0_fails_with_the_store, store="rank 0")
    assert "sample 17 is missing" in error.failures[1].message
    assert error.seconds < 10


@dataclass(frozen=True)
class _Failing(TreeCompressor):
    """A compressor that fails on rank 1 in the third step of a tensor."""

    def step(self, gradient: np.ndarray, state: State) -> tuple[Payload, State]:
        _Failing.calls[state.spec.name] = _Failing.calls.get(state.spec.name, 0) + 1
        if distributed.get_rank() == 1 and _Failing.calls[state.spec.name] == 3:
            raise ArithmeticError("cannot be halved")
        return super().step(gradient, state)


_Failing.calls = {}


def _encoder_fails() -> None:
    _train(_Failing.of("topk(0.02)"))


@pytest.mark.parametrize("world", [2, 3])
def test_exception_in_a_compressor_ends_all_ranks(world):
    error = ranks.failed(_encoder_fails, world=world)
    assert all("cannot be halved" in failure.message for failure in error.failures.values())
    assert "rank 1" in error.failures[0].message
    assert error.seconds < 10


def _dies() -> None:
    def fail(step: int) -> None:
        if distributed.get_rank() == 1 and step == 2:
            os._exit(9)

    _train(SPARSE, fail)


@pytest.mark.parametrize("world", [2, 3])
def test_rank_that_is_killed_does_not_leave_others_waiting(world):
    error = ranks.failed(_dies, world=world)
    assert error.failures[1].kind == "died"
    others = [failure for rank, failure in error.failures.items() if rank != 1]
    assert all(failure.kind == "GradientError" for failure in others)
    assert all("no answer from rank 1:" in failure.message for failure in others)
    assert error.seconds < 10


def _closed_and_used_again() -> float:
    model = DistributedDataParallel(Given(((8, 8),)))
    given = {"p0": torch.full((8, 8), 2.0 + distributed.get_rank())}
    with compress_gradients(model, "topk(0.1)"):
        model(given).backward()
    with compress_gradients(DistributedDataParallel(model.module), "int8"):
        pass
    return float(model.module.p0.grad.sum())


def test_leaving_the_context_ends_its_thread():
    assert ranks.run(_closed_and_used_again) == [6 * 2.5] * 2
