"""Interleaved timing: every peer runs once a round, so that drift hits all alike.

Each codec has a process of its own, so that none gains from another's allocator settings. It is new
for each input and builds it itself, as a program would: an input that came in a message would pass
through large buffers, whose sizes the allocator remembers. It takes its own times, so that no
message is in them.
"""

import gc
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import median
from typing import Any, TypeVar

from benchmarks.common.checkpoints import Input, load
from benchmarks.common.peers import Peer, encoded_size

Result = TypeVar("Result")


@dataclass
class Measurement:
    """Size and seconds by round of one peer with one input."""

    input: str
    codec: str
    size: int = 0
    exact: bool = False
    error: str | None = None
    encode: dict[int, float] = field(default_factory=dict)
    decode: dict[int, float] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """Return whether the peer gave back the input; only then do its figures count."""
        return self.error is None and self.exact


@dataclass(frozen=True)
class Codec:
    """A peer at work in a process of its own, which waits, asleep, while it is not asked."""

    peer: Peer
    data: Input
    buffer: bytes
    threads: int

    def run(self) -> tuple[float, float, Any, Any]:
        """Encode and decode once; return both times, the encoding and what was decoded."""
        peer, element = self.peer, self.data.element
        source = peer.fresh(self.data, self.buffer)
        encode, blob = timed(lambda: peer.encode(source, element, self.threads))
        decode, decoded = timed(lambda: peer.decode(blob, element, self.threads))
        return encode, decode, blob, decoded


def timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds that a call took, and its result.

    The result is alive when the clock stops, so that giving memory back costs nobody anything.
    """
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


_codec: Codec  # of this process


def _begin(peer: Peer, input_name: str, threads: int) -> None:
    global _codec
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the asker too, which ends this
    data = load(input_name)
    _codec = Codec(peer, data, data.buffer(), threads)


def _check() -> tuple[int, bool]:
    """Run to load and compile the codec's code; return its bytes, and whether it is exact."""
    _, _, blob, decoded = _codec.run()
    return encoded_size(blob), _codec.peer.exact(decoded, _codec.data, _codec.buffer)


def _take_times() -> tuple[float, float]:
    """Run without garbage collection, which is made up for once the clock has stopped."""
    gc.disable()
    try:
        encode, decode, _, _ = _codec.run()
    finally:
        gc.enable()
    gc.collect()
    return encode, decode


def takes_part(index: int, wanted: int, total: int) -> bool:
    """Return whether a peer runs in a round, so that its rounds are spread evenly over them all."""
    return (index + 1) * wanted // total > index * wanted // total


def measure(
    peers: Sequence[Peer], input_name: str, rounds: Mapping[str, int], threads: int
) -> dict[str, Measurement]:
    """Measure all peers on one input, `rounds[name]` times each.

    One peer works at a time. Each round starts with another, so that nobody always follows the
    same neighbour. A codec may fail in any way, and its process may die; the others go on.
    """
    results = {peer.name: Measurement(input_name, peer.name) for peer in peers}
    with ExitStack() as stack:
        workers = {
            peer.name: stack.enter_context(
                ProcessPoolExecutor(1, get_context("spawn"), _begin, (peer, input_name, threads))
            )
            for peer in peers
        }

        def ask(name: str, work: Callable[[], Result]) -> Result | None:
            try:
                return workers[name].submit(work).result()
            except Exception as error:
                results[name].error = f"{type(error).__name__}: {error}"
                return None

        for name, result in results.items():
            if (checked := ask(name, _check)) is not None:
                result.size, result.exact = checked
        running = [name for name, result in results.items() if result.valid]
        total = max((rounds[name] for name in running), default=0)
        for index in range(total):
            shift = index % len(running)
            for name in running[shift:] + running[:shift]:
                result = results[name]
                if not result.valid or not takes_part(index, rounds[name], total):
                    continue
                if (taken := ask(name, _take_times)) is not None:
                    result.encode[index], result.decode[index] = taken
    return results


def speed(nbytes: int, seconds: Mapping[int, float]) -> float:
    """Return the median speed in MB/s (10⁶ bytes of the uncompressed input)."""
    return nbytes / median(seconds.values()) / 1e6


def times_faster(ours: Mapping[int, float], reference: Mapping[int, float]) -> float | None:
    """Return the median over common rounds of how many times faster `ours` was.

    Both sides of each quotient ran within a second or so of one another, which on a shared machine
    repeats better than the quotient of two medians.
    """
    common = ours.keys() & reference.keys()
    if not common:
        return None
    return median(reference[index] / ours[index] for index in common)
