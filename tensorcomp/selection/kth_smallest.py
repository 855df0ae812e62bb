"""Find the lowest k of many scores by (score, flat index).

Scores become integer keys in their order (kernels/scores.c); a radix search finds the k-th, 16 bits
a pass, so that nothing is sorted or gathered, and scores are computed anew in each pass.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tensorcomp._threads import Workers
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.errors import PruningError
from tensorcomp.io.memory_pages import scratch
from tensorcomp.kernels import native
from tensorcomp.selection.streaming_scores import StreamingScores

_DIGIT = 16  # bits of a key that a pass decides
_RUNS = 16  # of a tensor that a thread takes at a time

# Runs of one tensor that stand side by side: its name and where they start and stop.
_Part: TypeAlias = "tuple[str, list[tuple[int, int]]]"


@dataclass(frozen=True, slots=True)
class Cut:
    """The `count` lowest elements of a tensor.

    Those whose key is lower, and, of equal ones, those whose flat index is below `stop`.
    """

    key: int
    stop: int
    count: int

    def mask(self, scores: StreamingScores, name: str) -> np.ndarray:
        """Return the mask of the elements that a cut leaves, bool, flat."""
        mask = scratch(scores.sizes[name], np.dtype(np.bool_))
        for start, run in scores.runs(name):
            places = mask[start : start + run.size]
            native.scores_mark_above(as_words(run), self.key, self.stop - start, places)
        return mask


def kth_smallest(
    scores: StreamingScores, names: Sequence[str], k: int, workers: Workers
) -> dict[str, Cut]:
    """Find the cuts of tensors whose lowest k scores are looked for together.

    The order of the names decides between equal scores.
    """
    bits = 8 * scores.dtype.itemsize
    parts = _parts(scores, names) if any(scores.sizes[name] for name in names) else []
    # Even if none is to go, all are looked at: a NaN is an error whatever the number.
    limit = _kth_key(scores, parts, max(k, 1), bits, workers) if parts else 0

    def count(part: _Part) -> tuple[int, list[tuple[int, int, int]]]:
        below, equal, found = 0, [], np.empty(2, np.int64)
        for start, run in scores.runs(*part):
            native.scores_count_below(as_words(run), limit, found)
            below += int(found[0])
            equal.append((start, start + run.size, int(found[1])))
        return below, equal

    if not k:
        parts = []
    counts = [found for _, found in workers.in_order(count, parts)]
    ties = k - sum(below for below, _ in counts)
    cuts = {name: Cut(limit, 0, 0) for name in names}
    for (name, _), (below, equal) in zip(parts, counts, strict=True):
        cut = cuts[name]
        stop, taken = cut.stop, 0
        for start, end, same in equal:
            if not ties:
                break
            stop, part = end, min(same, ties)
            if same > ties:  # the last that counts is within the run
                _, run = next(scores.runs(name, [(start, end)]))
                stop = start + 1 + native.scores_find_equal(as_words(run), limit, ties)
            taken, ties = taken + part, ties - part
        cuts[name] = Cut(limit, stop, cut.count + below + taken)
    return cuts


def not_a_number(name: str) -> PruningError:
    """Return the error of a NaN among a tensor's scores."""
    return PruningError(
        f"tensor {name!r}: a score is NaN; its weights or its statistics are broken"
    )


def _kth_key(
    scores: StreamingScores, parts: list[_Part], k: int, bits: int, workers: Workers
) -> int:
    """Return the k-th lowest key (from 1)."""
    found, lock = 0, threading.Lock()
    for shift in range(bits - _DIGIT, -1, -_DIGIT):
        totals = np.zeros(1 << _DIGIT, np.int64)

        def count(
            part: _Part, shift: int = shift, found: int = found, totals: np.ndarray = totals
        ) -> None:
            counts = np.zeros(1 << _DIGIT, np.int64)
            for _, run in scores.runs(*part):
                if native.scores_count_digits(as_words(run), found, shift, counts):
                    raise not_a_number(part[0])
            with lock:  # half a megabyte is not to wait for its turn
                totals += counts

        for _ in workers.in_order(count, parts):
            pass
        totals = np.cumsum(totals)
        digit = int(np.searchsorted(totals, k))
        k -= int(totals[digit - 1]) if digit else 0
        found = found << _DIGIT | digit
    return found


def _parts(scores: StreamingScores, names: Sequence[str]) -> list[_Part]:
    """Cut tensors into parts of a few runs each, for threads."""
    runs = ((name, scores.bounds(name)) for name in names)
    return [(name, own[i : i + _RUNS]) for name, own in runs for i in range(0, len(own), _RUNS)]
