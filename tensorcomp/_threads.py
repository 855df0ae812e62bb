"""Call functions on threads, with results in order."""

from __future__ import annotations

import contextlib
import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from tensorcomp.errors import OptionError

_MAX_ROOM = 1 << 27  # bytes of items under way, of all threads together
_KEPT_BYTES = (1 << 25) - (1 << 16)  # just below the largest threshold

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_threads() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def thread_count(threads: int | None) -> int:
    """Return the number of threads: of all available processors for None.

    Raises `OptionError` below 1.
    """
    if threads is None:
        return available_threads()
    if not isinstance(threads, (int, np.integer)) or threads < 1:
        raise OptionError(f"expected threads to be at least 1, got {threads}")
    return threads


@functools.cache
def keep_freed_memory() -> None:
    """Let the allocator keep some tens of freed megabytes, for the next chunk.

    By default glibc gives large blocks back to the system at once, and each chunk then pays for
    fresh pages, which can take longer than coding it. Freeing one block of this size raises both
    of its thresholds (mallopt(3), "dynamic mmap threshold"). Other allocators ignore it.
    """
    block = np.empty(_KEPT_BYTES, np.uint8)
    del block


class Workers:
    """Pool of threads, the caller's own among them; a context manager.

    The caller works while it would wait: waking a thread can take as long as coding a small chunk.

    Parameters
    ----------
    threads : int, optional
        At least 1; all available processors by default.
    """

    def __init__(self, threads: int | None = None) -> None:
        keep_freed_memory()
        self._threads = thread_count(threads)
        others = self._threads - 1
        self._pool = ThreadPoolExecutor(others, "tensorcomp") if others else None

    def __enter__(self) -> Workers:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the running calls end and drop those that have not begun."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def in_order(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        small: Callable[[Item], bool] = lambda _item: False,
        prefetch: int = 0,
        size: Callable[[Item], int] = lambda _item: 0,
        memory_budget: int = 0,
    ) -> Iterator[tuple[Item, Result]]:
        """Yield (item, function(item)) in the order of `items`.

        Parameters
        ----------
        function : callable
            Called on a thread; its exception is raised where its result is due.
        items : iterable
            Taken as they are needed: at most `prefetch`, or two more than threads, are under way.
        small : callable, optional
            Whether handing an item to a thread costs more than the call itself.
        prefetch : int, optional
        size : callable, optional
            Bytes of memory that an item or its result takes.
        memory_budget : int, optional
            Bytes per thread for the items under way, 128 MiB at most; one of any size always is.
        """
        if self._pool is None:
            for item in items:
                yield item, function(item)
            return
        waiting: deque[_Call[Item, Result]] = deque()
        most = max(prefetch, self._threads + 2)
        held, room = 0, min(memory_budget * self._threads, _MAX_ROOM)
        for item in items:
            held += size(item)
            while waiting and held > room:
                held -= size(waiting[0].item)
                yield _first_result(waiting)
            future = None
            if not small(item):
                with contextlib.suppress(RuntimeError):  # while Python ends, no thread takes more
                    future = self._pool.submit(function, item)
            waiting.append(_Call(function, item, future))
            while waiting and (len(waiting) > most or waiting[0].future is None):
                held -= size(waiting[0].item)
                yield _first_result(waiting)
        while waiting:
            yield _first_result(waiting)


@dataclass(eq=False)
class _Call(Generic[Item, Result]):
    """Call that a thread may have taken; without a future, left to the caller."""

    function: Callable[[Item], Result]
    item: Item
    future: Future[Result] | None

    def take(self) -> bool:
        """Run the call here, unless a thread has begun it; return whether it was run."""
        if self.future is None or not self.future.cancel():
            return False
        self.future = Future()
        try:
            self.future.set_result(self.function(self.item))
        except Exception as error:
            self.future.set_exception(error)
        return True


def _first_result(waiting: deque[_Call[Item, Result]]) -> tuple[Item, Result]:
    """Return the first call's result; run later calls until it is there."""
    first = waiting.popleft()
    if first.future is None:
        return first.item, first.function(first.item)
    first.take()
    while not first.future.done() and any(call.take() for call in waiting):
        pass
    return first.item, first.future.result()
