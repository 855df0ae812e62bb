"""Average arrays by all-reduce: all groups of a bucket in lockstep."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tensorcomp.gradients.base import Phases, State
from tensorcomp.gradients.ddp.reduce_context import GroupWork, ReduceContext
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.wrappers.base import leaf_of

Ended: TypeAlias = "tuple[np.ndarray, DecodedGradient, State]"


def reduce_sum(works: Sequence[GroupWork], context: ReduceContext) -> bool:
    """Run the phases of all groups together, one all-reduce for each phase.

    Arguments and result are those of `averaging.gather`.
    """
    phases = [_phases(work, finite=context.finite) for work in works]
    ended = in_lockstep(phases, context.comm.all_reduce_mean, nonfinite=not context.finite)
    if ended is None:
        return True
    for work, (mean, decoded, state) in zip(works, ended, strict=True):
        work.mean[:] = mean.reshape(-1)
        work.decoded = work.decoded if work.silent else decoded
        work.new_state = _with_leaf(work.state, state) if work.silent else state
    return False


def in_lockstep(
    phases: Sequence[Phases],
    average: Callable[[np.ndarray], np.ndarray],
    *,
    nonfinite: bool = False,
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
        What each generator returns; None if some rank has a value that is not finite.
    """
    ended: dict[int, Ended] = {}
    means: dict[int, Any] = dict.fromkeys(range(len(phases)))  # None begins a generator
    flag = [nonfinite]
    while means or flag:
        arrays: dict[int, np.ndarray] = {}
        for index, mean in means.items():
            try:
                arrays[index] = phases[index].send(mean)
            except StopIteration as end:
                ended[index] = end.value
        dtype = next((array.dtype for array in arrays.values()), np.dtype(np.float32))
        flat = [array.reshape(-1) for array in arrays.values()]
        joined = np.concatenate([*flat, np.array(flag, dtype)])
        if joined.size:
            joined = average(joined)
        if flag and joined[-1] > 0:
            for one in phases:
                one.close()
            return None
        flag, means, start = [], {}, 0
        for index, array in arrays.items():
            means[index] = joined[start : start + array.size].reshape(array.shape)
            start += array.size
    return [ended[index] for index in range(len(phases))]


def _phases(work: GroupWork, *, finite: bool) -> Phases:
    """Run a group's phases; note what is sent, and how long it takes to make it."""
    compressor, gradient, state = work.group.compressor, work.gradient, work.state
    if work.silent or not finite:
        # Others need this rank's arrays all the same, and it needs to stay in step with them.
        gradient = np.zeros_like(gradient)
    if work.silent:
        compressor = leaf_of(compressor)
        while (inner := getattr(state, "inner", None)) is not None:
            state = inner
    phases = compressor.phases(gradient, state)
    given: np.ndarray | None = None
    while True:
        started = time.perf_counter()
        try:
            array = phases.send(given)
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
