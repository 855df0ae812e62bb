"""Copies of pruned tensors in memory: as many as there is room for."""

import time
import weakref

import numpy as np
import pytest
from lossy_cases import weights
from pruned_cases import HALF

from tensorcomp._threads import Workers
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.container.writer import SizeOnly
from tensorcomp.pipeline import prepare as jobs
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.progress import Progress
from tensorcomp.selection.stored.pruned_checkpoint import PrunedCheckpoint, PrunedTensor

COUNT, BYTES = 40, 1 << 18


class Late(Progress):
    """Keeps whoever writes waiting, so that others get as far ahead as they may."""

    def advance(self, name: str, nbytes: int) -> None:
        time.sleep(0.06)


@pytest.mark.parametrize(("room", "least", "most"), [(BYTES, 2, 8), (1 << 40, 20, COUNT)])
def test_copies_of_pruned_tensors_do_not_pile_up(monkeypatch, room, least, most):
    alive: list[weakref.ref[np.ndarray]] = []
    counts = []
    prune = PrunedCheckpoint.prune

    def counted(source: PrunedCheckpoint, name: str) -> PrunedTensor | None:
        found = prune(source, name)
        assert found is not None
        alive.append(weakref.ref(found.data))
        counts.append(sum(array() is not None for array in alive))
        return found

    monkeypatch.setattr(jobs, "ROOM", room)
    tensors = {f"layers.{i}.mlp.weight": weights(256, 256, seed=i) for i in range(COUNT)}
    options = CompressOptions(effort="fast", threads=2, prune=HALF)
    monkeypatch.setattr(PrunedCheckpoint, "prune", counted)
    compress_source(MemoryCheckpoint(tensors), SizeOnly(), options, Late())
    assert len(counts) == COUNT  # each once
    assert least <= max(counts) <= most


@pytest.mark.parametrize("threads", [2, 4])
def test_workers_keep_within_the_room(threads):
    begun, ended, most = [0], 0, 0

    def work(item: int) -> int:
        begun[0] += 1
        return item

    with Workers(threads) as workers:
        items = range(50)
        for item, result in workers.in_order(
            work, items, prefetch=32, size=lambda _: 10, memory_budget=20
        ):
            assert item == result
            most = max(most, begun[0] - ended)
            ended += 1
            time.sleep(0.002)
    assert ended == 50
    assert 2 <= most <= 2 * threads + 1
