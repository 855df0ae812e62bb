"""Public failures of gradient hooks in what ranks exchange, one test each."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import ranks
import torch
from given_gradients import (
    EIGHT_BUCKETS,
    SHAPES,
    Case,
    Given,
    Outcome,
    check_invariant,
    check_ranks_equal,
    gradients_of,
    run_alike,
    steps,
    true_means,
)
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.gradients import compress_gradients

SPARSE = "topk(0.02, values=affine(8), indices=gaps)"
# One of each way to exchange: gather, owners, sums of one and of two phases.
EXCHANGES = [SPARSE, "int8", "randomk(0.05)", "powersgd(2)", "dense"]
LARGE = ((64, 65), (4099,), (33, 3), (80, 64))  # tiny payloads are raw where that is shorter
CLOSE = {"int8": 0.03, "dense": 1e-6}  # rel-L2 of a step


@pytest.mark.parametrize("compressor", EXCHANGES)
@pytest.mark.parametrize("world", [2, 3])
def test_many_buckets_neither_hang_nor_mix(compressor, world):
    # pytorch#48478: callbacks that wait for a second collective; pytorch#49477: and mix results.
    case = Case(compressor, range(5), EIGHT_BUCKETS, keep=(4,))
    outcomes = ranks.run(steps, case, world=world)
    assert outcomes[0].buckets >= 8
    check_ranks_equal(outcomes)
    if compressor in CLOSE:
        _check_close(outcomes[0], true_means(case, world), CLOSE[compressor])
    elif "randomk" not in compressor:
        check_invariant(case, outcomes)


def _check_close(outcome: Outcome, truth: list[dict[str, np.ndarray]], rtol: float) -> None:
    for mean, true in zip(outcome.means, truth, strict=True):
        got, expected = (np.concatenate([one[n].ravel() for n in true]) for one in (mean, true))
        assert np.linalg.norm(got - expected) <= rtol * np.linalg.norm(expected)


@pytest.mark.parametrize("compressor", ["topk(0.5, values=raw)", "dense", "int4"])
def test_three_ranks_add_in_the_same_order(compressor):
    case = Case(compressor, range(3), keep=(2,))
    check_invariant(case, run_alike(case, 3), rtol=0.5 if compressor == "int4" else 1e-5)


@pytest.mark.parametrize("compressor", [SPARSE, "int8"])
@pytest.mark.parametrize("zeros", [{(0, 1)}, {(0, 1), (1, 1), (0, 2), (1, 2)}])
def test_gradients_of_zeros_are_ordinary(compressor, zeros):
    # grace#16, pytorch#85234: an empty selection hung, or killed the process.
    case = Case(compressor, range(4), zeros=frozenset(zeros), keep=(3,))
    check_invariant(case, run_alike(case), rtol=0.3 if compressor == "int8" else 1e-5)


def test_nothing_above_the_threshold_sends_nothing():
    case = Case("threshold(1e9)", range(3), LARGE, keep=(2,), options={"feedback": True})
    outcomes = ranks.run(steps, case)
    assert all(not mean[name].any() for mean in outcomes[0].means for name in mean)
    check_invariant(case, outcomes)


@pytest.mark.parametrize("world", [2, 3])
def test_power_sgd_outlives_steps_of_zeros(world):
    # One step of zeros made torch's PowerSGD all NaN.
    zeros = frozenset((rank, step) for rank in range(world) for step in (0, 2))
    case = Case("powersgd(2)", range(5), zeros=zeros, keep=(4,))
    outcomes = run_alike(case, world)
    assert all(np.isfinite(g).all() for mean in outcomes[0].means for g in mean.values())
    check_invariant(case, outcomes)


@pytest.mark.parametrize("world", [2, 3])
def test_payloads_of_very_different_lengths(world):
    # pytorch#156627, nccl#1394: an uneven all-gather is refused, hangs or returns garbage.
    case = Case(
        "threshold(2.0)",
        range(4),
        LARGE,
        scale=0.25,
        options={"feedback": False},
        zeros=frozenset({(0, 2)}),
    )
    outcomes = run_alike(case, world)
    for mean, step in zip(outcomes[0].means, case.steps, strict=True):
        for name, got in mean.items():
            local = [case.gradients(rank, step)[name] for rank in range(world)]
            kept = [np.where(np.abs(g) >= 2, g, 0).astype(float) for g in local]
            np.testing.assert_allclose(got, np.mean(kept, axis=0), rtol=1e-6, atol=1e-7)


def _far_positions(dtype: torch.dtype) -> list[int]:
    model = Given(((70_001,),)).to(dtype)
    ddp = DistributedDataParallel(model)
    gradient = torch.zeros(70_001, dtype=dtype)
    gradient[[5, 65_535, 65_536, 65_537, 70_000]] = torch.tensor([1, 2, 4, 8, 16], dtype=dtype)
    with compress_gradients(ddp, "topk(0.0001, values=raw, indices=gaps)"):
        ddp({"p0": gradient}).backward()
    grad = model.p0.grad
    assert grad.dtype == dtype
    return [(i, grad[i].item()) for i in torch.nonzero(grad).flatten().tolist()]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_positions_beyond_16_bits(dtype):
    # byteps#299: indices took the width of the values.
    expected = [(5, 1.0), (65_535, 2.0), (65_536, 4.0), (65_537, 8.0), (70_000, 16.0)]
    assert ranks.run(_far_positions, dtype) == [expected] * 2


@pytest.mark.parametrize("compressor", EXCHANGES)
@pytest.mark.parametrize("shapes", [SHAPES, ((1,), (2,)), ((5, 7),)], ids=["odd", "tiny", "one"])
def test_sizes_that_ranks_do_not_divide(compressor, shapes):
    # DeepSpeed#5056, #5054: all-to-all of sizes that do not divide by the number of ranks.
    case = Case(compressor, range(3), shapes)
    outcomes = run_alike(case, 3)
    if compressor in CLOSE:
        _check_close(outcomes[0], true_means(case, 3), CLOSE[compressor])


def _other_order() -> None:
    order = [0, 1, 2] if distributed.get_rank() == 0 else [0, 2, 1]
    model = DistributedDataParallel(Given(((9, 9), (50,), (50,)), order))
    with compress_gradients(model, SPARSE):
        model(
            {f"p{i}": torch.ones(shape) for i, shape in enumerate([(9, 9), (50,), (50,)])}
        ).backward()


def test_parameters_in_another_order_are_named():
    # grace#7: equal shapes in another order were averaged with each other.
    for failure in ranks.failed(_other_order).failures.values():
        assert "order" in failure.message or "p1" in failure.message, failure
        assert failure.kind in ("GradientError", "RuntimeError")


def _other_compressor() -> None:
    model = DistributedDataParallel(Given(((9, 9),)))
    text = [SPARSE, "topk(0.02, values=affine(4), indices=gaps)"][distributed.get_rank()]
    with compress_gradients(model, text):
        model({"p0": torch.ones(9, 9)}).backward()


def test_ranks_with_other_compressors_are_told():
    failures = ranks.failed(_other_compressor).failures.values()
    assert all("affine" in failure.message for failure in failures)


def test_unused_parameters_that_differ_by_rank_and_step():
    # A rank that does not use a parameter keeps its residual; one that all leave out is dropped.
    unused = {
        (0, 0): ("p0",),
        (1, 1): ("p2", "p5"),
        (None, 2): ("p1", "p2"),
        (None, 3): ("p0",),
        (1, 3): ("p1", "p6"),
    }
    ddp = {"bucket_cap_mb": 0.02, "find_unused_parameters": True}
    case = Case(SPARSE, range(6), ddp=ddp, unused=unused, keep=(5,))
    check_invariant(case, run_alike(case))


def _churned(case: Case) -> Outcome:
    """Do the steps while another thread allocates and frees what could be a frame's memory."""
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for size in (100, 700, 4_000, 20_000):
                torch.full((size,), torch.nan)
                np.full(size, 255, np.uint8)

    thread = threading.Thread(target=churn, daemon=True)
    thread.start()
    try:
        return steps(case)
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("compressor", [SPARSE, "int8"])
def test_memory_that_is_reused_at_once(compressor):
    # nanochat#843: what an asynchronous gather read was freed before it had been sent.
    case = Case(compressor, range(12), EIGHT_BUCKETS)
    churned, calm = ranks.run(_churned, case), ranks.run(steps, case)
    check_ranks_equal([*churned, *calm])


def _beside_another_group(case: Case) -> list[dict[str, np.ndarray]]:
    """Issue collectives of one's own from the backward pass, and between the steps."""
    model, other = (DistributedDataParallel(Given(case.shapes), **case.ddp) for _ in range(2))
    metric = torch.zeros(1)
    seen = []
    with compress_gradients(model, case.compressor), compress_gradients(other, "int8"):
        for step in case.steps:
            model.zero_grad()
            other.zero_grad()
            given = {
                name: _Statistics.apply(torch.from_numpy(g))
                for name, g in case.gradients(distributed.get_rank(), step).items()
            }
            work = distributed.all_reduce(metric, async_op=True)
            loss = _Statistics.apply(model(given))
            (loss + other(given)).backward()
            work.wait()
            seen.append(
                {**gradients_of(model), **{f"o{k}": v for k, v in gradients_of(other).items()}}
            )
    return seen


class _Statistics(torch.autograd.Function):
    """Sums over ranks on the way and on the way back, as synchronised batch norms do."""

    @staticmethod
    def forward(ctx: object, values: torch.Tensor) -> torch.Tensor:
        distributed.all_reduce(values.sum())
        return values.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        distributed.all_reduce(gradient.sum())
        return gradient


def test_other_collectives_and_a_second_model():
    # torch_cgx#5, #3: collectives of others were taken for the hook's own.
    case = Case(SPARSE, range(4), EIGHT_BUCKETS)
    first, second = ranks.run(_beside_another_group, case)
    alone = ranks.run(steps, case)
    other = ranks.run(steps, replace(case, compressor="int8"))
    for step in case.steps:
        for name, mean in alone[0].means[step].items():
            np.testing.assert_array_equal(first[step][name], mean)
            np.testing.assert_array_equal(first[step][f"o{name}"], other[0].means[step][name])
            np.testing.assert_array_equal(second[step][name], mean)
