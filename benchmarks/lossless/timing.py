"""Interleaved timing: every peer runs once a round, so that drift hits all alike."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from benchmarks.common.peers import Peer
from benchmarks.lossless.workers import Worker, WorkerError, started


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


def warm_up(worker: Worker) -> Measurement:
    """Run a peer untimed, and tell what its round trip gave."""
    try:
        found = worker.check()
    except WorkerError as error:
        return Measurement(error=str(error))
    return Measurement(found.size, found.exact)


def add_round(worker: Worker, index: int, result: Measurement) -> None:
    """Run a peer once more, and note its times or its failure."""
    try:
        times = worker.take_times()
    except WorkerError as error:
        result.error = str(error)
    else:
        result.encode[index], result.decode[index] = times.encode, times.decode


def takes_part(index: int, wanted: int, total: int) -> bool:
    """Tell whether a peer runs in a round, so that its rounds are spread evenly over them all."""
    return (index + 1) * wanted // total > index * wanted // total


def measure(
    peers: Sequence[Peer], input_name: str, rounds: Mapping[str, int], threads: int
) -> dict[str, Measurement]:
    """Measure all peers on one input, `rounds[name]` times each.

    One peer works at a time. Each round starts with another, so that nobody always follows the
    same neighbour.
    """
    with ExitStack() as stack:
        workers = {
            peer.name: stack.enter_context(started(peer, input_name, threads)) for peer in peers
        }
        results = {name: warm_up(worker) for name, worker in workers.items()}
        running = [name for name in workers if results[name].valid]
        total = max((rounds[name] for name in running), default=0)
        for index in range(total):
            shift = index % len(running)
            for name in running[shift:] + running[:shift]:
                if results[name].valid and takes_part(index, rounds[name], total):
                    add_round(workers[name], index, results[name])
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
