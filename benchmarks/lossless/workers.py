"""A process of its own for each codec, so that none gains from another's allocator settings.

A process is new for each input and builds it itself, as a program would: an input that came in a
message would pass through large buffers, whose sizes the allocator remembers. The process takes its
own times, so that no message is in them.
"""

import gc
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from benchmarks.common.checkpoints import Input, load
from benchmarks.common.peers import Peer, encoded_size

GONE = (EOFError, ConnectionError)  # what a connection raises whose other end is closed
GRACE_SECONDS = 5.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class Check:
    """What the untimed first run found."""

    size: int
    exact: bool


@dataclass(frozen=True)
class Times:
    """The seconds of one run."""

    encode: float
    decode: float


@dataclass(frozen=True)
class Failure:
    """What a worker answers when its codec raised an error."""

    message: str


class WorkerError(Exception):
    """A codec failed, or its process died."""


def timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds that a call took, and its result.

    The result is alive when the clock stops, so that giving memory back costs nobody anything.
    """
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def run_once(peer: Peer, data: Input, buffer: bytes, threads: int) -> tuple[Times, Any, Any]:
    """Encode and decode once; return both times, the encoding and what was decoded."""
    source = peer.fresh(data, buffer)
    encode, blob = timed(lambda: peer.encode(source, data.element, threads))
    decode, decoded = timed(lambda: peer.decode(blob, data.element, threads))
    return Times(encode, decode), blob, decoded


def check(peer: Peer, data: Input, buffer: bytes, threads: int) -> Check:
    """Run a codec to load and compile its code, and check its round trip."""
    _, blob, decoded = run_once(peer, data, buffer, threads)
    return Check(encoded_size(blob), peer.exact(decoded, data, buffer))


def take_times(peer: Peer, data: Input, buffer: bytes, threads: int) -> Times:
    """Run a codec without garbage collection, which is made up for once the clock has stopped."""
    gc.disable()
    try:
        times, _, _ = run_once(peer, data, buffer, threads)
    finally:
        gc.enable()
    gc.collect()
    return times


def attempt(call: Callable[[], Result]) -> Result | Failure:
    """Return a call's result, or its error in words."""
    try:
        return call()
    except Exception as error:  # a codec may fail in any way; the others go on
        return Failure(f"{type(error).__name__}: {error}")


def serve(connection: Connection, peer: Peer, input_name: str, threads: int) -> None:
    """Check the codec at the first request, take times at each other, until nobody asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the asker too, which ends this
    data = load(input_name)
    run = (peer, data, data.buffer(), threads)
    with suppress(*GONE):
        for step in chain((check,), repeat(take_times)):
            connection.recv()
            connection.send(attempt(partial(step, *run)))


@dataclass(frozen=True)
class Worker:
    """The process of one codec, as seen by who asks it; it waits, asleep, while nobody does."""

    process: SpawnProcess
    connection: Connection

    def check(self) -> Check:
        """Have the codec's first run done, which is untimed, and return what it found."""
        found: Check = self._ask()
        return found

    def take_times(self) -> Times:
        """Return the times of one more run."""
        times: Times = self._ask()
        return times

    def _ask(self) -> Any:
        try:
            self.connection.send(None)
            answer = self.connection.recv()
        except GONE:
            self.process.join(GRACE_SECONDS)
            message = f"its process died with exit code {self.process.exitcode}"
            raise WorkerError(message) from None
        if isinstance(answer, Failure):
            raise WorkerError(answer.message)
        return answer


@contextmanager
def started(peer: Peer, input_name: str, threads: int) -> Iterator[Worker]:
    """Start a process for a codec and an input, and end it on leaving."""
    context = get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, peer, input_name, threads))
    process.start()
    theirs.close()  # else the end of the process would not end the conversation
    try:
        yield Worker(process, mine)
    finally:
        mine.close()
        process.join(GRACE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
