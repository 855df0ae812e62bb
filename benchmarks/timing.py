"""Interleaved timing: every peer runs once a round, so that drift hits all alike."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.checkpoints import Input
from benchmarks.peers import Peer, encoded_size


@dataclass
class Measurement:
    """What one peer did with one input; seconds are kept by round."""

    size: int = 0
    exact: bool = False
    error: str | None = None
    encode: dict[int, float] = field(default_factory=dict)
    decode: dict[int, float] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """Tell whether the peer gave back the input; only then do its figures count."""
        return self.error is None and self.exact


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call took, and its result.

    The result is alive when the clock stops, so that giving memory back costs nobody anything.
    """
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def run_once(peer: Peer, data: Input, buffer: bytes, threads: int) -> tuple[float, float, Any, Any]:
    """Encode and decode once; return both times, the encoding and what was decoded."""
    source = peer.fresh(data, buffer)
    encode, blob = timed(lambda: peer.encode(source, data.element, threads))
    decode, decoded = timed(lambda: peer.decode(blob, data.element, threads))
    return encode, decode, blob, decoded


def warm_up(peer: Peer, data: Input, buffer: bytes, threads: int) -> Measurement:
    """Run a peer untimed, to load and compile its code, and check its round trip."""
    try:
        _, _, blob, decoded = run_once(peer, data, buffer, threads)
        return Measurement(encoded_size(blob), peer.exact(decoded, data, buffer))
    except Exception as error:  # a peer may fail in any way; the others go on
        return Measurement(error=f"{type(error).__name__}: {error}")


def measure(
    peers: Sequence[Peer], data: Input, rounds: Mapping[str, int], threads: int
) -> dict[str, Measurement]:
    """Measure all peers on one input, `rounds[name]` times each.

    Peers with fewer rounds are spread evenly over the run. Each round starts with another peer, so
    that nobody always follows the same neighbour.
    """
    buffer = data.buffer()
    results = {peer.name: warm_up(peer, data, buffer, threads) for peer in peers}
    running = [peer for peer in peers if results[peer.name].valid]
    total = max((rounds[peer.name] for peer in running), default=0)
    gc.disable()
    try:
        for index in range(total):
            shift = index % len(running)
            for peer in running[shift:] + running[:shift]:
                wanted = rounds[peer.name]
                if (index + 1) * wanted // total == index * wanted // total:
                    continue
                result = results[peer.name]
                encode, decode = run_once(peer, data, buffer, threads)[:2]
                result.encode[index], result.decode[index] = encode, decode
            gc.collect()
    finally:
        gc.enable()
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
