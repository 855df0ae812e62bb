"""The mean of arrays that are summed on the way: all units of a bucket in lockstep."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tensorcomp.gradients.base import Phases, State, leaf_of
from tensorcomp.gradients.ddp.coding_groups import Context, UnitWork
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.lockstep import in_lockstep
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient


def reduce(works: Sequence[UnitWork], link: Link, context: Context) -> bool:
    """Run the phases of all units together, one all-reduce for each phase.

    Parameters
    ----------
    works : sequence of UnitWork
        The same units in the same order on all ranks.
    link : Link
    context : Context

    Returns
    -------
    bool
        Whether some rank's gradient has a value that is not finite; means and states are untouched
        then.
    """
    phases = [_counted(_phases(work, finite=context.finite), work) for work in works]
    ended = in_lockstep(phases, link.all_reduce_mean, nonfinite=not context.finite)
    if ended is None:
        return True
    for work, (mean, sent, state) in zip(works, ended, strict=True):
        work.mean[:] = mean.reshape(-1)
        if work.silent:
            work.sent = EmptyGradient()
            work.new_state = _with_leaf(work.state, state)
        else:
            work.sent, work.new_state = sent, state
    return False


def _phases(work: UnitWork, *, finite: bool) -> Phases:
    if finite and not work.silent:
        return work.unit.compressor.phases(work.gradient, work.state)
    # Others need this rank's arrays all the same, and it needs to stay in step with them.
    state = _leaf_state(work.state) if work.silent else work.state
    compressor = leaf_of(work.unit.compressor) if work.silent else work.unit.compressor
    return compressor.phases(np.zeros_like(work.gradient), state)


def _counted(phases: Phases, work: UnitWork) -> Phases:
    """Do the same, and note what is sent and how long it takes to make it."""
    given: np.ndarray | None = None
    while True:
        started = time.perf_counter()
        try:
            array = next(phases) if given is None else phases.send(given)
        except StopIteration as end:
            ended: tuple[np.ndarray, DecodedGradient, State] = end.value
            return ended
        finally:
            work.encode_seconds += time.perf_counter() - started
        work.payload_bytes += array.nbytes
        given = yield array


def _leaf_state(state: State) -> State:
    inner = getattr(state, "inner", None)
    return state if inner is None else _leaf_state(inner)


def _with_leaf(state: State, leaf: State) -> State:
    """Return the state of a compressor whose innermost one has another state."""
    inner = getattr(state, "inner", None)
    if inner is None:
        return leaf
    return replace(state, inner=_with_leaf(inner, leaf))  # type: ignore[call-arg]
