"""Lottery tickets: train, prune the lowest, go back to an early step, and train what is left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xxhash

from tensorcomp._torch_arrays import torch_to_numpy
from tensorcomp.errors import PruningError
from tensorcomp.pruning.lottery_ticket.rounds import (
    Choice,
    MakeModel,
    MakeOptimizer,
    Round,
    Search,
    Ticket,
    Train,
    Training,
    state_of,
)
from tensorcomp.pruning.lottery_ticket.store import FolderShelf, MemoryShelf, Weights
from tensorcomp.pruning.masking import Masks
from tensorcomp.pruning.preserve_state import generators, set_generators
from tensorcomp.pruning.targets import Where, prunable_parameters
from tensorcomp.selection.granularity import Element, Granularity, parse_granularity
from tensorcomp.selection.schedules import check_schedule
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.scores.base import Score
from tensorcomp.selection.select import USUAL_FLOOR, Scope

__all__ = ["Round", "Ticket", "find_ticket", "train_reinitialised"]

_VERSION = 1
_TOO_MUCH = (1 << 63) - 1  # for torch as a seed, if one is added


def find_ticket(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    train: Train,
    *,
    steps: int,
    sparsities: Sequence[float],
    rewind: int = 0,
    score: str | Score = "magnitude",
    scope: Scope | None = None,
    granularity: str | Granularity = Element(),  # noqa: B008 - a frozen value
    floor: float = USUAL_FLOOR,
    where: Where = None,
    seed: int = 0,
    control: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Ticket:
    """Find a lottery ticket by iterative pruning with rewinding.

    The network is trained from step 0 to `rewind`, which is the point to go back to, and on to the
    end. Then, in each round, the lowest weights of the network just trained are pruned, beside
    those that are pruned already; weights, buffers, optimizer state and the global generators of
    random numbers (torch, NumPy, ``random``) go back to that point, and what is left is trained to
    the end with its masks held.

    With a folder, each round is on disk when it is done. A search that was killed goes on with the
    round it was in, and finds what it would have found, bit for bit, as far as training repeats
    itself. The generators are in the end as they were before.

    Parameters
    ----------
    make_model : callable
        Without arguments; returns the model, its weights drawn from the global generators.
    make_optimizer : callable
        Takes the model; returns its optimizer.
    train : callable
        ``train(model, optimizer, start, stop)`` trains from step `start` to step `stop`. It must
        draw the order of the data, and all else at random, from the global generators or derive it
        from the number of the step; so must learning rates follow from that number.
    steps : int
        Of the whole training.
    sparsities : sequence of float
        One a round, increasing: a schedule, such as ``exponential(0.95, 13)``.
    rewind : int
        The step to go back to: 0 is initialisation.
    score, scope, granularity, floor : optional
        What is lowest, as for `select`; scores of the weights alone.
    where : str, sequence of str or callable, optional
        Which parameters are pruned; see `prunable_parameters`.
    seed : int
        What the generators start from.
    control : {"reinitialised"}, optional
        Whether each round's masks are trained a second time from other initial weights, by
        `train_reinitialised` with the next seed.
    folder : str or path-like, optional
        Where rounds are kept; made if it is not there. It is small where much is pruned: weights
        are compressed, losslessly.

    Returns
    -------
    Ticket

    Raises
    ------
    PruningError
        If an argument is not as above, the score needs data, or the folder is of other settings.
    CheckpointError, FormatError
        If the folder cannot be written, or a file in it is damaged.

    References
    ----------
    Frankle & Carbin 2019, "The Lottery Ticket Hypothesis: finding sparse, trainable neural
    networks"; rewinding to a later step: Frankle, Dziugaite, Roy & Carbin 2020, "Linear mode
    connectivity and the lottery ticket hypothesis".
    """
    if control not in (None, "reinitialised"):
        raise PruningError(f"control is 'reinitialised' or not given; got {control!r}")
    schedule = check_schedule(sparsities)
    if _count("rewind", rewind, 0) >= _count("steps", steps, 1):
        raise PruningError(f"rewind is less than the {steps} steps; got {rewind}")
    training = Training(make_model, make_optimizer, train, steps, rewind, _count("seed", seed, 0))
    choice = Choice(parse_score(score), scope, parse_granularity(granularity), floor)
    choice.check()
    before = generators()
    try:
        model, optimizer = training.fresh()
        parameters = prunable_parameters(model, where)
        shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        settings = {
            "version": _VERSION,
            "steps": steps,
            "rewind": rewind,
            "sparsities": schedule,
            "seed": seed,
            "control": control,
            "tensors": shapes,
            "optimizer": type(optimizer).__name__,
            **choice.settings(shapes),
            "initial weights": _digest(state_of(model)),
        }
        shelf = MemoryShelf() if folder is None else FolderShelf(Path(folder), settings)
        return Search(training, choice, shelf, control is not None).run(shapes, schedule)
    finally:
        set_generators(before)


def train_reinitialised(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    train: Train,
    masks: Masks,
    *,
    steps: int,
    seed: int,
) -> Weights:
    """Train other initial weights under masks, from step 0: the control of a lottery ticket.

    Parameters
    ----------
    make_model, make_optimizer, train, steps
        As for `find_ticket`.
    masks : mapping of str to numpy.ndarray or torch.Tensor
        As for `hold`.
    seed : int
        What the generators start from; another one than the ticket's.

    Returns
    -------
    dict of str to torch.Tensor
        The trained state dict, on the CPU. The generators are as they were before.

    Raises
    ------
    PruningError
        If the masks do not fit the model.

    References
    ----------
    Frankle & Carbin 2019, "The Lottery Ticket Hypothesis", section 2: winning tickets learn worse
    from another initialisation.
    """
    _count("steps", steps, 1)
    training = Training(make_model, make_optimizer, train, steps, 0, _count("seed", seed, 0))
    return training.from_scratch(masks)


def _count(what: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PruningError(f"{what} is an integer of at least {least}; got {value!r}")
    if value >= _TOO_MUCH:
        raise PruningError(f"{what} is less than 2**63 - 1; got {value!r}")
    return value


def _digest(weights: Weights) -> str:
    """Return a digest of the names, types, shapes and values of weights."""
    digest = xxhash.xxh3_128()
    for name, tensor in weights.items():
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        digest.update(torch_to_numpy(name, tensor).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
