import os
import time

import pytest
import ranks
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


def _summed(start: int) -> tuple[int, float]:
    mine = torch.tensor([float(start + distributed.get_rank())])
    distributed.all_reduce(mine)
    return distributed.get_rank(), mine.item()


def _one_raises() -> None:
    if distributed.get_rank() == 1:
        raise ValueError("no such day")
    distributed.barrier()


def _one_dies() -> None:
    if distributed.get_rank() == 0:
        os._exit(7)
    distributed.barrier()


def _waits_for_ever() -> None:
    while True:
        time.sleep(0.1)


def _large() -> torch.Tensor:
    return torch.arange(1_000_000)


def _trained() -> list[float]:
    torch.manual_seed(distributed.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.ones(3, 4)).sum().backward()
    return [float(p.sum()) for p in model.parameters()]


@pytest.mark.parametrize("store", ["test", "rank 0"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_all_ranks_meet_and_return_in_order(world, store):
    total = sum(range(5, 5 + world))
    assert ranks.run(_summed, 5, world=world, store=store) == [(r, total) for r in range(world)]


def test_results_may_be_large():
    assert [r.sum().item() for r in ranks.run(_large)] == [499_999_500_000] * 2


def test_exception_of_a_rank_is_raised_with_its_number():
    with pytest.raises(ranks.RanksFailed, match="rank 1: ValueError: no such day") as caught:
        ranks.run(_one_raises)
    assert caught.value.failures[1].kind == "ValueError"
    assert "_one_raises" in caught.value.failures[1].trace
    assert caught.value.failures[0].kind != "stuck"  # its connection broke


def test_rank_that_dies_is_found():
    with pytest.raises(ranks.RanksFailed, match="rank 0: died: exit code 7"):
        ranks.run(_one_dies)


def test_stuck_ranks_are_killed_and_show_where():
    with pytest.raises(ranks.RanksFailed) as caught:
        ranks.run(_waits_for_ever, timeout=1)
    assert caught.value.seconds < 20  # from their deadline until all have ended
    assert {f.kind for f in caught.value.failures.values()} == {"stuck"}
    assert all("_waits_for_ever" in f.trace for f in caught.value.failures.values())


def test_ddp_runs():
    first, second = ranks.run(_trained)
    assert first == second
