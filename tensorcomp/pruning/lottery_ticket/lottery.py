"""Find lottery tickets: train, prune, rewind, and train what is left."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tensorcomp._torch_arrays import torch_to_numpy
from tensorcomp.calibration.masking import Masks
from tensorcomp.calibration.preserve_state import preserve_generators
from tensorcomp.calibration.targets import Where, prunable_parameters
from tensorcomp.errors import PruningError
from tensorcomp.pruning.lottery_ticket.rewind_point import RewindPoint
from tensorcomp.pruning.lottery_ticket.store import TicketStore
from tensorcomp.pruning.lottery_ticket.training import (
    MakeModel,
    MakeOptimizer,
    Train,
    Training,
    Weights,
    state_of,
)
from tensorcomp.pruning.result import PruningResult
from tensorcomp.pruning.weights import ModelWeights
from tensorcomp.selection.granularity import NM, Granularity, parse_granularity
from tensorcomp.selection.schedules import check_schedule
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.scores.base import Score
from tensorcomp.selection.select import USUAL_FLOOR, Scope, select
from tensorcomp.selection.streaming_scores import StreamingScores

_VERSION = 1


@dataclass(frozen=True)
class Round:
    """A round of the search: what was kept, and what training made of it.

    Attributes
    ----------
    number : int
        0 is the dense network.
    result : PruningResult
        The masks that were held.
    weights : callable
        Reads the trained state dict, on the CPU.
    control : callable
        Reads that of the control; returns None where there is none.
    """

    number: int
    result: PruningResult
    weights: Callable[[], Weights] = field(repr=False)
    control: Callable[[], Weights | None] = field(default=lambda: None, repr=False)

    @property
    def sparsity(self) -> float:
        """The exact part of the prunable weights that is pruned."""
        return self.result.sparsity


@dataclass(frozen=True)
class Ticket:
    """The rounds of a search by `find_ticket`, and its rewind point.

    Attributes
    ----------
    rounds : tuple of Round
        The dense network first.
    start : RewindPoint
        The rewind point; its `restore` sets a model and an optimizer to it.
    """

    rounds: tuple[Round, ...]
    start: RewindPoint

    @property
    def result(self) -> PruningResult:
        """The masks of the last round."""
        return self.rounds[-1].result


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
    granularity: str | Granularity = "element",
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
        are compressed, losslessly. By default a temporary one, which goes with the ticket.

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
        raise PruningError(f"expected control to be 'reinitialised' or not given, got {control!r}")
    schedule = check_schedule(sparsities)
    training = Training(make_model, make_optimizer, train, steps, rewind, seed)
    parsed, unit = parse_score(score), parse_granularity(granularity)
    if parsed.statistic is not None:
        raise PruningError(f"the score {parsed} needs data; take one of weights alone")
    if isinstance(unit, NM):
        raise PruningError(f"{unit} has one sparsity only; rounds cannot raise it")
    with preserve_generators():
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
            "score": str(parsed),
            "scope": [repr(scope(name)) for name in shapes] if callable(scope) else scope,
            "granularity": str(unit),
            "floor": floor,
            "initial weights": _digest(state_of(model)),
        }
        store = TicketStore(None if folder is None else Path(folder), settings)

        def prune(last: Round, sparsity: float) -> PruningResult:
            """Prune the weights that a round has trained; what it had pruned stays so."""
            weights = last.weights()
            scores = StreamingScores(ModelWeights({name: weights[name] for name in shapes}), parsed)
            limits: dict[str, Any] = {"scope": scope, "granularity": unit, "floor": floor}
            selection = select(scores, sparsity, previous=last.result.masks, **limits)
            return PruningResult.of(selection, str(parsed))

        start = store.point(training.start)
        dense = PruningResult({name: np.ones(shape, np.bool_) for name, shape in shapes.items()})
        trained = store.weights("round-00", lambda: training.finish(start, None))
        rounds = [Round(0, dense, trained)]
        for number, sparsity in enumerate(schedule, 1):
            name = f"round-{number:02}"
            result = store.masks(name, partial(prune, rounds[-1], sparsity))
            trained = store.weights(name, partial(training.finish, start, result.masks))
            this = Round(number, result, trained)
            if control is not None:
                again = partial(replace(training, seed=seed + 1).finish, None, result.masks)
                this = replace(this, control=store.weights(f"{name}.control", again))
            rounds.append(this)
        return Ticket(tuple(rounds), start)


def train_reinitialised(
    make_model: MakeModel,
    make_optimizer: MakeOptimizer,
    train: Train,
    masks: Masks,
    *,
    steps: int,
    seed: int,
) -> Weights:
    """Train other initial weights under masks: the control of a lottery ticket.

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
    training = Training(make_model, make_optimizer, train, steps, 0, seed)
    return training.finish(None, masks)


def _digest(weights: Weights) -> str:
    """Return a digest of the names, types, shapes and values of weights."""
    digest = xxhash.xxh3_128()
    for name, tensor in weights.items():
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        digest.update(torch_to_numpy(name, tensor).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
