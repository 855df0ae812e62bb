from typing import Any

import numpy as np
import pytest
import ranks
from torch import distributed

from tensorcomp.gradients.ddp.communicator import Communicator


def _comm() -> Communicator:
    return Communicator(distributed.group.WORLD)


def _gathered() -> list[list[bytes]]:
    comm = _comm()
    seen = []
    for lengths in ([3, 0, 5], [1000, 3, 9], [0, 0, 0], [999, 1001, 1000]):
        data = bytes([comm.rank + 1]) * lengths[comm.rank]
        seen.append([row.tobytes() for row in comm.all_gather_bytes(data, "some")])
    return seen


def test_bytes_of_any_lengths_are_gathered_in_rank_order():
    expected = [
        [b"\1" * a, b"\2" * b, b"\3" * c]
        for a, b, c in ([3, 0, 5], [1000, 3, 9], [0, 0, 0], [999, 1001, 1000])
    ]
    assert ranks.run(_gathered, world=3) == [expected] * 3


def _collectives() -> tuple[Any, ...]:
    comm = _comm()
    for _ in range(3):
        comm.all_gather_bytes(bytes(10_000), "same")
    gathers = comm.take_exchanges()
    parts = [bytes([10 * comm.rank + to]) * (comm.rank + to) for to in range(3)]
    received = [row.tobytes() for row in comm.all_to_all_bytes(parts)]
    comm.take_exchanges()
    array = np.full(6, comm.rank + 1, np.float32)
    mean = comm.all_reduce_mean(array)
    rest = comm.take_exchanges()
    probe = comm.probe(100)
    return gathers, received, mean.tolist(), mean is array, rest, probe


def test_collectives_and_the_bytes_that_they_send():
    for rank, result in enumerate(ranks.run(_collectives, world=3)):
        gathers, received, mean, same, rest, probe = result
        # lengths come first once; then frames of one size: 8 bytes of head, at most 1 % of slack
        assert [one.nbytes for one in gathers[:1]] == [8]
        frames = gathers[1:]
        assert len(frames) == 3
        assert all(10_008 <= one.nbytes <= 10_150 for one in frames)
        assert all(one.bytes_sent == 2 * one.nbytes and one.seconds > 0 for one in frames)
        assert received == [bytes([10 * r + rank]) * (r + rank) for r in range(3)]
        assert mean == [2.0] * 6
        assert same
        assert [(one.kind, one.bytes_sent) for one in rest] == [
            ("all_reduce", pytest.approx(2 * 2 / 3 * 24))
        ]
        assert (probe.kind, probe.nbytes, probe.bytes_sent) == ("all_gather", 100, 200)


def _alone() -> tuple[Any, ...]:
    comm = _comm()
    array = np.arange(3.0)
    gathered = comm.all_gather_bytes(b"abc", "x")
    with pytest.raises(ValueError, match="2 parts for 1 ranks"):
        comm.all_to_all_bytes([b"", b""])
    received = comm.all_to_all_bytes([b"abc"])
    return gathered, received, comm.all_reduce_mean(array) is array, comm.take_exchanges()


def test_a_rank_alone_sends_nothing():
    ((gathered, received, same, exchanges),) = ranks.run(_alone, world=1)
    assert [row.tobytes() for row in gathered] == [b"abc"]
    assert [row.tobytes() for row in received] == [b"abc"]
    assert same
    assert exchanges == []
