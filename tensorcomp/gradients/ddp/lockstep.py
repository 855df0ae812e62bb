"""Many tensors' phases at once: what they yield in the same phase is averaged in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeAlias

import numpy as np

from tensorcomp.gradients.base import Phases, State
from tensorcomp.gradients.payload.decoded import DecodedGradient

Average: TypeAlias = Callable[[np.ndarray], np.ndarray]
Ended: TypeAlias = "tuple[np.ndarray, DecodedGradient, State]"


def in_lockstep(
    phases: Sequence[Phases], average: Average, *, nonfinite: bool = False
) -> list[Ended] | None:
    """Run the phases of several tensors, and average what they yield over all ranks.

    With the arrays of the first phase goes one number that tells whether any rank has a value that
    is not finite; then nothing is run on.

    Parameters
    ----------
    phases : sequence of generator
        As `Compressor.phases` makes them; of the same compressors, in the same order, on all ranks.
    average : callable
        Given a flat array, which it may overwrite, returns its mean over all ranks. It is called
        once for each phase and dtype.
    nonfinite : bool
        Whether this rank has such a value; its tensors must have been replaced by finite ones.

    Returns
    -------
    list of (mean, sent, state), or None
        For each generator what it returns; None if some rank has a value that is not finite.
    """
    ended: dict[int, Ended] = {}
    running: list[tuple[int, Phases]] = []
    arrays: list[np.ndarray] = []

    def advance(index: int, one: Phases, given: np.ndarray | None) -> None:
        try:
            arrays.append(next(one) if given is None else one.send(given))
            running.append((index, one))
        except StopIteration as end:
            ended[index] = end.value

    for index, one in enumerate(phases):
        advance(index, one, None)
    means, anywhere = _averages(arrays, average, flag=nonfinite)
    while running and not anywhere:
        before, running, arrays = running, [], []
        for (index, one), mean in zip(before, means, strict=True):
            advance(index, one, mean)
        if running:
            means, _ = _averages(arrays, average)
    for _, one in running:
        one.close()
    return None if anywhere else [ended[index] for index in range(len(phases))]


def _averages(
    arrays: Sequence[np.ndarray], average: Average, *, flag: bool | None = None
) -> tuple[list[np.ndarray], bool]:
    """Return arrays' means, averaged as one array for each dtype, and whether a flag is up."""
    means: dict[int, np.ndarray] = {}
    up = False
    order = sorted(range(len(arrays)), key=lambda index: arrays[index].dtype.str)
    groups = [list(group) for _, group in groupby(order, lambda index: arrays[index].dtype.str)]
    for number, group in enumerate(groups or [[]]):
        flagged = flag is not None and number == 0
        dtype = arrays[group[0]].dtype if group else np.dtype(np.float32)
        sizes = [arrays[index].size for index in group]
        joined = np.empty(sum(sizes) + flagged, dtype)
        ends = np.cumsum([0, *sizes])
        for index, start, stop in zip(group, ends, ends[1:], strict=False):
            joined[start:stop] = arrays[index].reshape(-1)
        if flagged:
            joined[-1] = bool(flag)
        if joined.size:
            joined = average(joined)
        if flagged:
            up = bool(joined[-1] > 0)
        for index, start, stop in zip(group, ends, ends[1:], strict=False):
            means[index] = joined[start:stop].reshape(arrays[index].shape)
    return [means[index] for index in range(len(arrays))], up
