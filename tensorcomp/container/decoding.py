"""Decode the chunks of many tensors on threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TypeAlias

import numpy as np

from tensorcomp._threads import Workers
from tensorcomp.container.tensor_blob import ChunkedTensor
from tensorcomp.errors import FormatError
from tensorcomp.io.memory_pages import populate

_LARGE = 1 << 18  # bytes of a chunk for which fresh memory is provided at once

Job: TypeAlias = tuple[ChunkedTensor, int, np.ndarray]  # a chunk, and what it is decoded into


def decode_jobs(tensor: ChunkedTensor, out: np.ndarray) -> list[Job]:
    """Return the decoding of a tensor into `out` as jobs, one a chunk."""
    if tensor.grid.count == 1:
        return [(tensor, 0, out)]
    return [(tensor, index, out[start:stop]) for index, start, stop in tensor.grid.chunks()]


def decode_all(jobs: Sequence[Job], threads: int) -> None:
    """Decode every chunk.

    Parameters
    ----------
    jobs : sequence of (ChunkedTensor, int, numpy.ndarray)
        A tensor, the number of its chunk, and an array of the chunk's shape and dtype.
    threads : int
        The caller's own among them.

    Raises
    ------
    FormatError
        If a chunk is damaged: of the first one, whatever the number of threads.
    """
    if threads == 1:
        _decode_in_order(jobs)
        return
    try:
        _decode_on_threads(jobs, threads)
    except FormatError:
        _decode_in_order(jobs)
        raise


def _decode_in_order(jobs: Sequence[Job]) -> None:
    for tensor, index, out in jobs:
        tensor.decode_chunk(index, out)


def _decode_on_threads(jobs: Sequence[Job], threads: int) -> None:
    """Decode chunks: one thread from the smallest, others from the largest.

    Two threads at small chunks would wait for each other: half of their time is Python's. Fresh
    pages are touched by one thread at a time: by several, that can take longer than decoding.
    """
    waiting = deque(sorted(jobs, key=lambda job: job[2].nbytes))
    touching = Lock()

    def work(take: Callable[[], Job]) -> None:
        try:
            while True:
                try:
                    tensor, index, out = take()
                except IndexError:
                    return
                if out.nbytes >= _LARGE:
                    with touching:
                        populate(out)
                tensor.decode_chunk(index, out)
        except BaseException:
            waiting.clear()  # so that no other chunk is begun
            raise

    with Workers(threads) as workers:
        for _ in workers.in_order(work, [waiting.popleft, *[waiting.pop] * (threads - 1)]):
            pass
