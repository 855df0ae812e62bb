"""Public failures of gradient hooks in what they remember: rebuild, resume, elastic restart."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
import ranks
import torch
from given_gradients import (
    Case,
    Outcome,
    check_invariant,
    check_ranks_equal,
    loaded,
    residuals,
    run_alike,
    steps,
)
from torch import distributed

SPARSE = "topk(0.02, values=affine(8), indices=gaps)"
REMEMBERING = [
    SPARSE,
    "sign",
    "powersgd(2)",
    "int2",
    "dgc(0.02)",
    "adaptive_threshold(0.02)",
    "qsgd(4)",
    "randomk(0.05)",
]


@pytest.mark.parametrize("compressor", [SPARSE, "sign", "powersgd(2)", "int2"])
@pytest.mark.parametrize("world", [2, 3])
def test_nothing_is_lost_when_buckets_are_rebuilt(compressor, world):
    # pytorch#48670, #48867, #49418: residuals of tensors by hash, then by the index of a bucket.
    case = Case(compressor, range(4), keep=(0, 1, 2, 3))
    outcomes = run_alike(case, world)
    for last in range(4):
        upto = replace(case, steps=range(last + 1))
        check_invariant(upto, outcomes)


@pytest.mark.parametrize("compressor", REMEMBERING)
def test_resumed_run_is_the_uninterrupted_one(compressor):
    # pytorch#75666, #79334, #102721: hook state was not in checkpoints, or permuted when resumed.
    whole = ranks.run(steps, Case(compressor, range(7), keep=(3, 6)))
    check_ranks_equal(whole)
    saved = tuple(outcome.saved[3] for outcome in whole)
    case = Case(compressor, range(4, 7), load=saved, keep=(6,))
    resumed = ranks.run(steps, case)
    for before, after in zip(whole, resumed, strict=True):
        assert after.hashes == before.hashes[4:]
        assert after.saved[6] == before.saved[6]


def test_invariant_holds_through_a_change_of_codec():
    first = Case(SPARSE, range(3), keep=(2,))
    outcomes = ranks.run(steps, first)
    middle = check_invariant(first, outcomes)
    saved = tuple(outcome.saved[2] for outcome in outcomes)
    for other in ("sign", "topk(0.1, values=affine(4), indices=runlength)", "powersgd(2)"):
        second = Case(other, range(3, 6), load=saved, strict=False, keep=(5,))
        check_invariant(second, ranks.run(steps, second), before=middle)


def test_invariant_holds_when_the_compressor_changes_during_training():
    case = Case("warmup(topk(0.01), steps=3)", range(8), keep=(7,))
    check_invariant(case, run_alike(case))


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (3, 1), (1, 2)])
def test_invariant_holds_for_the_mean_on_another_number_of_ranks(before, after):
    first = Case(SPARSE, range(3), keep=(2,), mode="mean")
    exact = check_invariant(
        replace(first, mode="exact"), ranks.run(steps, replace(first, mode="exact"), world=before)
    )
    outcomes = ranks.run(steps, first, world=before)
    assert len({outcome.saved[2] for outcome in outcomes}) == 1
    mean = residuals(loaded(outcomes[0].saved[2]), first)
    for name in mean:
        np.testing.assert_allclose(mean[name], exact[name], rtol=1e-5, atol=1e-6)
    second = Case(SPARSE, range(3, 6), load=(outcomes[0].saved[2],), keep=(5,))
    resumed = run_alike(second, after)
    check_invariant(second, resumed, before=mean)


def _restarted(case: Case) -> tuple[list[Outcome], int]:
    """Train; then rank 1 restarts with nothing but its saved state, rank 0 goes on."""
    first = steps(case)
    default = distributed.distributed_c10d._get_default_store()
    again = distributed.PrefixStore("again", default)
    rank, world = distributed.get_rank(), distributed.get_world_size()
    distributed.destroy_process_group()
    distributed.init_process_group(
        "gloo", store=again, rank=rank, world_size=world, timeout=timedelta(seconds=30)
    )
    last = case.steps[-1]
    saved = first.saved[last]
    later = replace(case, steps=range(last + 1, last + 4), load=(saved,), keep=(last + 3,))
    return [first, steps(later)], torch.get_num_threads()


def test_rank_that_recovers_meets_ranks_that_went_on():
    # torchft#41, PiPPy#665, pytorch#72843: layouts of old and new ranks differed and hung.
    case = Case(SPARSE, range(4), keep=(3,))
    both = ranks.run(_restarted, case)
    for part in (0, 1):
        check_ranks_equal([outcomes[part] for outcomes, _ in both])
    whole = ranks.run(steps, replace(case, steps=range(7), keep=(6,)))
    assert both[0][0][1].hashes == whole[0].hashes[4:]
