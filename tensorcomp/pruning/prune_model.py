"""Prune a model: score its weights, then select; the model is left as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcomp.calibration.calibrate import calibrate
from tensorcomp.calibration.losses import example_of
from tensorcomp.calibration.preserve_state import preserve_state
from tensorcomp.calibration.signal_flow import synaptic_flow
from tensorcomp.calibration.targets import Where, prunable_parameters
from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import SOURCES, Statistics
from tensorcomp.pruning.result import PruningResult
from tensorcomp.pruning.weights import ModelWeights
from tensorcomp.selection.checks import require_count
from tensorcomp.selection.granularity import Granularity, parse_granularity
from tensorcomp.selection.schedules import exponential
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.scores.base import Score
from tensorcomp.selection.select import USUAL_FLOOR, Scope, select
from tensorcomp.selection.streaming_scores import StreamingScores

if TYPE_CHECKING:
    import torch


def prune(
    model: torch.nn.Module,
    score: str | Score = "magnitude",
    sparsity: float | Mapping[str, float] | None = None,
    *,
    data: Iterable[Any] | None = None,
    loss: Callable[..., torch.Tensor] | None = None,
    batches: int | None = None,
    example: torch.Tensor | None = None,
    statistics: Statistics | None = None,
    train_mode: bool | None = None,
    where: Where | None = None,
    scope: Scope | None = None,
    granularity: str | Granularity = "element",
    floor: float = USUAL_FLOOR,
    ceiling: float = 1.0,
    previous: PruningResult | None = None,
    rounds: int | None = None,
    threads: int | None = None,
) -> PruningResult:
    """Score the weights of a model and select those to prune.

    Parameters
    ----------
    model : torch.nn.Module
        Left as it was: weights, buffers, train flag, gradients, random numbers.
    score : str or Score
        ``magnitude``, ``random(SEED)``, ``gradient``, ``taylor``, ``snip``, ``grasp``, ``synflow``,
        ``wanda``, ``lamp`` or ``obd``.
    sparsity : float or mapping of str to float, optional
        The exact part of the selected weights that is pruned, or that of each tensor; not given for
        an ``nm`` granularity.
    data : iterable, optional
        Minibatches, for the scores that need them; see `calibrate`, also for `loss` and `batches`.
    example : torch.Tensor, optional
        An input, of which SynFlow takes the shape; by default that of the first minibatch.
    statistics : Statistics, optional
        In place of data: what `calibrate` measured.
    train_mode : bool, optional
        Whether dropout and batch normalisation act as in training while data are measured. By
        default gradients (SNIP, GraSP, Taylor …) are those of the model in the mode that it is in,
        and what Wanda measures is that of the model in use; see `calibrate`.
    where : str, sequence of str or callable, optional
        Which parameters; by default the weights of linear and convolutional layers.
    scope, granularity, floor, ceiling, threads : optional
        See `select`.
    previous : PruningResult, optional
        Earlier pruning of the model; what it dropped is dropped again.
    rounds : int, optional
        In how many rounds, with densities that fall by an equal factor, weights are scored and
        selected; 100 for SynFlow by default, else 1.

    Raises
    ------
    PruningError
        If the weights cannot be scored, or no selection obeys.
    """
    parsed, unit = parse_score(score), parse_granularity(granularity)
    parameters = prunable_parameters(model, where)
    weights = ModelWeights(parameters)

    def measure(masks: Mapping[str, np.ndarray] | None) -> Statistics | None:
        """Measure what the score needs beside the weights, under masks."""
        nonlocal example
        name = parsed.statistic
        if name is None or statistics is not None:
            return statistics
        if name == "synflow":
            example = _first_input(model, data) if example is None else example
            return Statistics({name: synaptic_flow(model, example, list(weights), masks)})
        if data is None:
            raise PruningError(
                f"the score {parsed} needs data: give minibatches, or the statistics that "
                "calibrate measured"
            )
        how: dict[str, Any] = {"loss": loss, "batches": batches, "train_mode": train_mode}
        return calibrate(
            model, data, statistics=SOURCES.get(name, (name,)), where=where, masks=masks, **how
        )

    limits: dict[str, Any] = {"granularity": unit, "floor": floor, "ceiling": ceiling}
    limits["threads"] = threads
    masks = None if previous is None else previous.masks
    if rounds is None:
        rounds = 1 if statistics else parsed.rounds
    size = sum(parameter.numel() for parameter in parameters.values())
    dropped = 0 if previous is None else sum(previous.pruned.values())
    for part in _parts(sparsity, rounds, dropped / max(size, 1)):
        scores = StreamingScores(weights, parsed, measure(masks))
        selection = select(scores, part, scope=scope, previous=masks, **limits)
        masks = {name: selection.mask(name) for name in selection.names}
    return PruningResult.of(selection, str(parsed))


def _first_input(model: torch.nn.Module, data: Iterable[Any] | None) -> Any:
    """Return the input of the first minibatch."""
    with preserve_state(model, weights=False):
        for batch in data or ():
            return example_of(batch)
    raise PruningError("the score synflow needs the shape of an input: give an example")


def _parts(
    sparsity: float | Mapping[str, float] | None, rounds: int, start: float
) -> Iterable[float | Mapping[str, float] | None]:
    """Return the sparsity of each round, of which the first begins with `start`."""
    if require_count("rounds", rounds) == 1 or sparsity is None:
        return [sparsity]
    if isinstance(sparsity, Mapping):
        raise PruningError("rounds go with one sparsity for all tensors; give rounds=1")
    if isinstance(sparsity, Real) and sparsity <= start:
        return [sparsity]  # nothing more to prune, which selection settles
    return exponential(sparsity, rounds, start)
