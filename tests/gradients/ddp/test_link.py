from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import ranks
from torch import distributed

from tensorcomp.gradients.ddp.communicator import Link


def _link() -> Link:
    return Link(distributed.group.WORLD)


def _gathered() -> list[list[bytes]]:
    link = _link()
    seen = []
    for lengths in ([3, 0, 5], [1000, 3, 9], [0, 0, 0], [999, 1001, 1000]):
        data = bytes([link.rank + 1]) * lengths[link.rank]
        pieces = [data[:2], np.frombuffer(data[2:], np.uint8)]
        seen.append([row.tobytes() for row in link.all_gather_bytes(pieces, "some")])
    return seen


def test_bytes_of_any_lengths_are_gathered_in_rank_order() -> None:
    expected = [
        [b"\1" * a, b"\2" * b, b"\3" * c]
        for a, b, c in ([3, 0, 5], [1000, 3, 9], [0, 0, 0], [999, 1001, 1000])
    ]
    assert ranks.run(_gathered, world=3) == [expected] * 3


def _collectives() -> tuple[Any, ...]:
    link = _link()
    for _ in range(3):
        link.all_gather_bytes(bytes(10_000), "same")
    gathers = link.take_exchanges()
    parts = [bytes([10 * link.rank + to]) * (link.rank + to) for to in range(3)]
    received = [row.tobytes() for row in link.all_to_all_bytes(parts)]
    link.take_exchanges()
    array = np.full(6, link.rank + 1, np.float32)
    mean = link.all_reduce_mean(array)
    told = link.broadcast_bytes(b"from rank %d" % link.rank, 2)
    rest = link.take_exchanges()
    probe = link.probe(100)
    return gathers, received, mean.tolist(), mean is array, told, rest, probe


def test_collectives_and_the_bytes_that_they_send() -> None:
    for rank, result in enumerate(ranks.run(_collectives, world=3)):
        gathers, received, mean, same, told, rest, probe = result
        # lengths come first once; then frames of one size: 8 bytes of head, at most 1 % of slack
        assert [one.nbytes for one in gathers[:1]] == [8]
        frames = gathers[1:]
        assert len(frames) == 3
        assert all(10_008 <= one.nbytes <= 10_150 for one in frames)
        assert all(one.bytes_sent == 2 * one.nbytes and one.seconds > 0 for one in frames)
        assert received == [bytes([10 * r + rank]) * (r + rank) for r in range(3)]
        assert mean == [2.0] * 6
        assert same
        assert told == b"from rank 2"
        assert [(one.kind, one.bytes_sent) for one in rest] == [
            ("all_reduce", pytest.approx(2 * 2 / 3 * 24)),
            ("broadcast", 11.0 if rank == 2 else 0.0),
        ]
        assert (probe.kind, probe.nbytes, probe.bytes_sent) == ("all_gather", 100, 200)


def _alone() -> tuple[Any, ...]:
    link = _link()
    array = np.arange(3.0)
    gathered = link.all_gather_bytes([b"ab", b"c"], "x")
    with pytest.raises(ValueError, match="2 parts for 1 ranks"):
        link.all_to_all_bytes([b"", b""])
    received = link.all_to_all_bytes([b"abc"])
    told = link.broadcast_bytes(b"x")
    return gathered, received, link.all_reduce_mean(array) is array, told, link.take_exchanges()


def test_a_rank_alone_sends_nothing() -> None:
    ((gathered, received, same, told, exchanges),) = ranks.run(_alone, world=1)
    assert [row.tobytes() for row in gathered] == [b"abc"]
    assert [row.tobytes() for row in received] == [b"abc"]
    assert same
    assert told == b"x"
    assert exchanges == []
