"""Average arrays by all-reduce: all groups of a bucket in lockstep."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from tensorcomp.gradients.base import Phases, State
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.reduce_context import GroupWork, ReduceContext
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient
from tensorcomp.gradients.wrappers.base import leaf_of

Average: TypeAlias = Callable[[np.ndarray], np.ndarray]
Ended: TypeAlias = "tuple[np.ndarray, DecodedGradient, State]"


def reduce(works: Sequence[GroupWork], comm: Communicator, context: ReduceContext) -> bool:
    """Run the phases of all groups together, one all-reduce for each phase.

    Parameters
    ----------
    works : sequence of GroupWork
        The same groups in the same order on all ranks.
    comm : Communicator
    context : ReduceContext

    Returns
    -------
    bool
        Whether some rank's gradient has a value that is not finite; means and states are untouched
        then.
    """
    phases = [_timed(_phases(work, finite=context.finite), work) for work in works]
    ended = in_lockstep(phases, comm.all_reduce_mean, nonfinite=not context.finite)
    if ended is None:
        return True
    for work, (mean, decoded, state) in zip(works, ended, strict=True):
        work.mean[:] = mean.reshape(-1)
        work.decoded = EmptyGradient() if work.silent else decoded
        work.new_state = _with_leaf(work.state, state) if work.silent else state
    return False


def in_lockstep(
    phases: Sequence[Phases], average: Average, *, nonfinite: bool = False
) -> list[Ended] | None:
    """Run the phases of several tensors; average what they yield over ranks.

    With the arrays of the first phase goes one number that says whether any rank has a value that
    is not finite; then nothing is run on.

    Parameters
    ----------
    phases : sequence of generator
        As `Compressor.phases` makes them; of the same compressors, in the same order, on all ranks,
        and of one dtype.
    average : callable
        Given a flat array, which it may overwrite, returns its mean over all ranks. It is called
        once for each phase.
    nonfinite : bool
        Whether this rank has such a value; its tensors must have been replaced by finite ones.

    Returns
    -------
    list of (mean, decoded, state), or None
        For each generator what it returns; None if some rank has a value that is not finite.
    """
    ended: dict[int, Ended] = {}
    running: list[int] = []
    arrays: list[np.ndarray] = []

    def advance(index: int, given: np.ndarray | None) -> None:
        one = phases[index]
        try:
            arrays.append(next(one) if given is None else one.send(given))
            running.append(index)
        except StopIteration as end:
            ended[index] = end.value

    for index in range(len(phases)):
        advance(index, None)
    means, anywhere = _averages(arrays, average, flag=nonfinite)
    while running and not anywhere:
        before, running, arrays = running, [], []
        for index, mean in zip(before, means, strict=True):
            advance(index, mean)
        if running:
            means, _ = _averages(arrays, average)
    for one in phases if anywhere else ():
        one.close()
    return None if anywhere else [ended[index] for index in range(len(phases))]


def _averages(
    arrays: Sequence[np.ndarray], average: Average, *, flag: bool | None = None
) -> tuple[list[np.ndarray], bool]:
    """Return the means of arrays of one dtype, and whether a flag is up."""
    dtype = arrays[0].dtype if arrays else np.dtype(np.float32)
    flags = np.array([] if flag is None else [flag], dtype)
    joined = np.concatenate([*(array.reshape(-1) for array in arrays), flags])
    if joined.size:
        joined = average(joined)
    means, start = [], 0
    for array in arrays:
        means.append(joined[start : start + array.size].reshape(array.shape))
        start += array.size
    return means, bool((joined[start:] > 0).any())


def _phases(work: GroupWork, *, finite: bool) -> Phases:
    if finite and not work.silent:
        return work.group.compressor.phases(work.gradient, work.state)
    # Others need this rank's arrays all the same, and it needs to stay in step with them.
    state, compressor = work.state, work.group.compressor
    if work.silent:
        compressor = leaf_of(compressor)
        while (inner := getattr(state, "inner", None)) is not None:
            state = inner
    return compressor.phases(np.zeros_like(work.gradient), state)


def _timed(phases: Phases, work: GroupWork) -> Phases:
    """Do the same, and note what is sent and how long it takes to make it."""
    given: np.ndarray | None = None
    while True:
        started = time.perf_counter()
        try:
            array = next(phases) if given is None else phases.send(given)
        except StopIteration as end:
            ended: Ended = end.value
            return ended
        finally:
            work.encode_seconds += time.perf_counter() - started
        work.payload_bytes += array.nbytes
        given = yield array


def _with_leaf(state: State, leaf: State) -> State:
    """Return the state of a compressor whose innermost one has another state."""
    inner = getattr(state, "inner", None)
    if inner is None:
        return leaf
    return replace(state, inner=_with_leaf(inner, leaf))  # type: ignore[call-arg]
