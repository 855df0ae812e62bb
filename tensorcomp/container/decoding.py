"""Decode the chunks of many tensors on threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from typing import TypeAlias

import numpy as np

from tensorcomp._threads import Workers
from tensorcomp.container.tensor_blob import ChunkedTensor
from tensorcomp.errors import FormatError
from tensorcomp.io.memory_pages import populate

_LARGE = 1 << 18  # bytes of a chunk that takes longer than Python takes to hand it over
_AHEAD = 8  # large chunks that have memory before they are decoded

Job: TypeAlias = tuple[ChunkedTensor, int, np.ndarray]  # a chunk, and what it is decoded into


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
        _Sharing(jobs).run(threads)
    except FormatError:
        _decode_in_order(jobs)
        raise


def _decode_in_order(jobs: Sequence[Job]) -> None:
    for tensor, index, out in jobs:
        tensor.decode_chunk(index, out)


class _Sharing:
    """Queues of chunks for threads: one starts with small, others with large ones.

    Two threads at small chunks would wait for each other: half of their time is Python's. The one
    at the small chunks also provides the memory of the large ones, somewhat ahead of the others:
    where several threads touch fresh pages, that can take longer than decoding does.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        by_size = sorted(jobs, key=lambda job: job[2].nbytes)
        self._small = deque(job for job in by_size if job[2].nbytes < _LARGE)
        self._large = by_size[len(self._small) :][::-1]
        self._populated: SimpleQueue[Job | None] = SimpleQueue()  # None: no more will come
        self._stopped = Event()

    def run(self, threads: int) -> None:
        """Decode all chunks; raise the first exception, after which no other chunk is begun."""
        works = [self._begin_with_small] + [self._begin_with_large] * (threads - 1)
        with Workers(threads) as workers:
            workers.map_all(self._attempt, works)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            self._stopped.set()
            raise

    def _begin_with_small(self) -> None:
        try:
            self._populate()
        finally:
            self._populated.put(None)
        self._drain(self._small.popleft)
        self._drain(self._take_populated)

    def _begin_with_large(self) -> None:
        self._drain(self._take_populated)
        self._drain(self._small.pop)

    def _populate(self) -> None:
        for job in self._large:
            while self._populated.qsize() >= _AHEAD:
                with suppress(Empty):  # another thread may have taken the last one
                    job_ahead = self._populated.get_nowait()
                    assert job_ahead is not None  # which comes when this has ended
                    self._decode(job_ahead)
            if self._stopped.is_set():
                return
            populate(job[2])
            self._populated.put(job)

    def _take_populated(self) -> Job:
        """Return the next large chunk; raise IndexError once there will be no other."""
        job = self._populated.get()
        if job is None:
            self._populated.put(None)  # for the next thread
            raise IndexError
        return job

    def _drain(self, take: Callable[[], Job]) -> None:
        """Decode what is taken until nothing is left."""
        while True:
            try:
                job = take()
            except IndexError:
                return
            self._decode(job)

    def _decode(self, job: Job) -> None:
        if not self._stopped.is_set():
            tensor, index, out = job
            tensor.decode_chunk(index, out)
