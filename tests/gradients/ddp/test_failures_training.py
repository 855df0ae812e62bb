"""Public failures of gradient hooks beside what else trains: Join, AMP, accumulation, compile."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import ranks
import torch
from given_gradients import (
    Case,
    Given,
    check_invariant,
    gradients_of,
    hashed,
    loaded,
    residuals,
    run_alike,
    saved,
    steps,
    true_means,
)
from torch import distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.gradients import compress_gradients

SPARSE = "topk(0.02, values=affine(8), indices=gaps)"
INPUTS = (3, 5)  # steps by rank


def _uneven(case: Case) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    rank = distributed.get_rank()
    model = DistributedDataParallel(Given(case.shapes), **case.ddp)
    means = []
    with compress_gradients(model, case.compressor) as compression:
        with Join([model]):
            for step in range(INPUTS[rank]):
                model.zero_grad()
                given = case.gradients(rank, step)
                model({name: torch.from_numpy(g) for name, g in given.items()}).backward()
                means.append(gradients_of(model))
        left = residuals(loaded(saved(compression.state_dict())), case)
    return means, left


@pytest.mark.parametrize("compressor", [SPARSE, "powersgd(2)", "int2"])
def test_uneven_inputs_with_join(compressor):
    # pytorch#60611: a rank that has joined still takes part, with zeros.
    case = Case(compressor, range(5))
    (short, left_short), (long, left_long) = ranks.run(_uneven, case)
    for first, second in zip(short, long, strict=False):
        assert hashed(first) == hashed(second)
    for name, left in left_long.items():
        given = sum(
            case.gradients(rank, step)[name].astype(float)
            for rank in (0, 1)
            for step in range(INPUTS[rank])
        )
        kept = 2 * sum(mean[name].astype(float) for mean in long) + left + left_short[name]
        assert np.linalg.norm(kept - given) <= 1e-5 * np.linalg.norm(given), name


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("compressor", [SPARSE, "int8"])
def test_accumulation_in_no_sync(compressor, *, view):
    # pytorch#43307: results that alias buckets were accumulated into.
    ddp = {"bucket_cap_mb": 0.02, "gradient_as_bucket_view": view}
    case = Case(compressor, range(5), micro=3, ddp=ddp, keep=(4,))
    check_invariant(case, run_alike(case), rtol=0.05 if compressor == "int8" else 1e-5)


STATIC = {"bucket_cap_mb": 0.02, "static_graph": True}


def test_static_graph_works_and_is_rebuilt_later():
    case = Case(SPARSE, range(5), ddp=STATIC, keep=(4,))
    check_invariant(case, run_alike(case))


def test_static_graph_with_no_sync_first_is_explained():
    # pytorch#187732, accelerate#3679: an internal assertion, or silently no mean.
    late = Case(SPARSE, range(2), ddp=STATIC, micro=2)
    for failure in ranks.failed(steps, late).failures.values():
        assert "static_graph" in failure.message
        assert "no_sync" in failure.message


@pytest.mark.parametrize("compressor", [SPARSE, "int2", "powersgd(2)"])
def test_one_infinity_does_not_poison(compressor):
    # One step of Inf on one rank made the residuals of torch's PowerSGD non-finite for ever.
    case = Case(compressor, range(6), infinite=frozenset({(1, 2)}), keep=(1, 2, 5))
    outcomes = run_alike(case)
    assert not all(np.isfinite(g).all() for g in outcomes[0].means[2].values())
    for outcome in outcomes:
        before, after = (residuals(loaded(outcome.saved[step]), case) for step in (1, 2))
        assert hashed(before) == hashed(after)
        finite = [m for i, m in enumerate(outcome.means) if i != 2]
        assert all(np.isfinite(g).all() for mean in finite for g in mean.values())
    check_invariant(case, outcomes, skipped=[2])


def _scaled(case: Case) -> tuple[list[float], list[str], dict[str, Any]]:
    """Train under a gradient scaler; return scales, hashes of the parameters, and the residuals."""
    rank = distributed.get_rank()
    model = DistributedDataParallel(Given(case.shapes), **case.ddp)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    scales, hashes, left = [], [], {}
    with compress_gradients(model, case.compressor, scaler=scaler) as compression:
        for step in case.steps:
            optimizer.zero_grad()
            given = {n: torch.from_numpy(g.copy()) for n, g in case.gradients(rank, step).items()}
            if (rank, step) in case.infinite:
                given["p5"].view(-1)[7] = torch.inf
            scaler.scale(model(given)).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            hashes.append(hashed({n: p.detach().numpy() for n, p in model.named_parameters()}))
            left[step] = residuals(loaded(saved(compression.state_dict())), case)
    return scales, hashes, left


@pytest.mark.parametrize("compressor", [SPARSE, "int8", "powersgd(2)"])
def test_gradient_scaler_skips_on_all_ranks(compressor):
    # DeepSpeed#753, bagua#485: overflow with compressed gradients never ended.
    bad = Case(compressor, range(6), infinite=frozenset({(0, 2)}))
    outcomes = ranks.run(_scaled, bad)
    assert [scales for scales, _, _ in outcomes] == [[2**10, 2**11, 2**10, 2**10, 2**11, 2**11]] * 2
    assert outcomes[0][1] == outcomes[1][1]
    _, hashes, left = outcomes[1]
    assert hashes[2] == hashes[1]
    assert hashes[3] != hashes[2]
    assert hashed(left[2]) == hashed(left[1])


@pytest.mark.parametrize("compressor", [SPARSE, "powersgd(2)"])
def test_residuals_do_not_know_of_the_scale(compressor):
    case = Case(compressor, range(4), keep=(3,))
    plain = ranks.run(steps, case)
    scaled = ranks.run(_scaled, case)
    for rank in (0, 1):
        expected = residuals(loaded(plain[rank].saved[3]), case)
        for name, got in scaled[rank][2][3].items():
            np.testing.assert_allclose(got, expected[name], rtol=1e-5, atol=1e-6)


def test_compiled_model_is_synchronised():
    # pytorch#109774: compiled models were not synchronised, without a word.
    case = Case(SPARSE, range(3), ddp={}, keep=(2,), compiled=True)
    check_invariant(case, run_alike(case))


def test_dense_is_the_mean():
    case = Case("dense", range(4), micro=2)
    outcomes = run_alike(case, 3)
    for mean, true in zip(outcomes[0].means, true_means(replace(case), 3), strict=True):
        for name in true:
            np.testing.assert_allclose(mean[name], true[name], rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_streams_are_ordered_on_cuda():
    # pytorch#49477, #49374: a future's chain did not wait for the stream; NaN in the residuals.
    case = Case(SPARSE, range(30), ((256, 256),) * 10, device="cuda", keep=(29,))
    outcomes = ranks.run(steps, case, world=1, backend="nccl")
    check_invariant(case, outcomes)
