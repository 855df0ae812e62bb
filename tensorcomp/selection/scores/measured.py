"""Score weights by what was measured on the model: gradients, inputs, flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.selection.scores.base import Score, widened


class Measured(Score):
    """Base of the scores that equal a statistic."""

    statistic: ClassVar[str]

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return what was measured."""
        assert statistic is not None
        return widened(statistic)


@dataclass(frozen=True)
class Gradient(Measured):
    """Score |g|: the running mean of the gradient's magnitude over minibatches.

    Notes
    -----
    `calibrate` takes the plain mean over its minibatches, or an exponential one with ``decay``;
    `GradientHistory` keeps the same history in a training loop of one's own.

    References
    ----------
    Evci, Gale, Menick, Castro & Elsen 2020, "Rigging the lottery", grow connections by it.
    """

    id: ClassVar[str] = "gradient"
    statistic: ClassVar[str] = "gradient"


@dataclass(frozen=True)
class Taylor(Measured):
    """Score |w·g|, the mean over minibatches.

    That is: how much the loss changes if the weight goes, to first order.

    References
    ----------
    Molchanov, Tyree, Karras, Aila & Kautz 2017, "Pruning convolutional neural networks for resource
    efficient inference"; Molchanov, Mallya, Tyree, Frosio & Kautz 2019, "Importance estimation for
    neural network pruning".
    """

    id: ClassVar[str] = "taylor"
    statistic: ClassVar[str] = "taylor"


@dataclass(frozen=True)
class Snip(Measured):
    """Score |g ⊙ w|, g the gradient of the loss over all minibatches together.

    Notes
    -----
    Made for networks before training. Unlike `taylor`, the gradients of several minibatches are
    added up before the magnitude is taken.

    References
    ----------
    Lee, Ajanthan & Torr 2019, "SNIP: single-shot network pruning based on connection sensitivity".
    """

    id: ClassVar[str] = "snip"
    statistic: ClassVar[str] = "snip"


@dataclass(frozen=True)
class Grasp(Measured):
    """Score w ⊙ Hg.

    That is: what the weight adds to the squared norm of the gradient, to first order, halved.

    Notes
    -----
    H and g are the Hessian and the gradient of the loss with logits divided by a temperature, 200
    by default. Scores may be negative: such weights hinder the flow of the gradient. The paper
    removes the highest −w ⊙ Hg, which is the same. Made for networks before training.

    References
    ----------
    Wang, Zhang & Grosse 2020, "Picking winning tickets before training by preserving gradient
    flow".
    """

    id: ClassVar[str] = "grasp"
    statistic: ClassVar[str] = "grasp"


@dataclass(frozen=True)
class SynFlow(Measured):
    """Score |w| · ∂R/∂|w|.

    That is where R sums the outputs of the network of magnitudes for an input of ones.

    Notes
    -----
    Needs no data, but the model. Scored again in many rounds, each of which prunes a little
    (``rounds=100``), it never cuts a layer off before all others are as thin; in one round it may.

    References
    ----------
    Tanaka, Kunin, Yamins & Ganguli 2020, "Pruning neural networks without any data by iteratively
    conserving synaptic flow".
    """

    id: ClassVar[str] = "synflow"
    statistic: ClassVar[str] = "synflow"
    rounds: ClassVar[int] = 100


@dataclass(frozen=True)
class Wanda(Score):
    """Score |W| · ‖X‖₂, the norm that of the input that the weight reads.

    Compared within each row: among the weights of one output.

    Notes
    -----
    For one shot without any training, above all of language models.

    References
    ----------
    Sun, Liu, Bair & Kolter 2024, "A simple and effective pruning approach for large language
    models".
    """

    id: ClassVar[str] = "wanda"
    statistic: ClassVar[str] = "input_norm"
    scope: ClassVar[str] = "row"

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the scores."""
        assert statistic is not None
        scores: np.ndarray = np.abs(widened(weights)) * statistic
        return scores


@dataclass(frozen=True)
class OptimalBrainSurgeon(Wanda):
    """Score |w| / √[H⁻¹]ⱼⱼ, H the second moments of what the weights read.

    Its square is the error of the output that is left when the other weights of the row make up for
    the one that goes, as `Pruning.repair` has them do. Compared within each row.

    References
    ----------
    Hassibi & Stork 1993, "Second order derivatives for network pruning: optimal brain surgeon";
    Frantar & Alistarh 2023, "SparseGPT: massive language models can be accurately pruned in
    one-shot".
    """

    id: ClassVar[str] = "obs"
    statistic: ClassVar[str] = "input_residual"


@dataclass(frozen=True)
class OptimalBrainDamage(Score):
    """Score ½ · h · w², h the diagonal of the loss's Hessian.

    h is the mean of the squared gradients of minibatches (the empirical Fisher information, which
    is near the Hessian where the model fits), or, from a training checkpoint, Adam's second moment,
    which is the same with a running mean.

    References
    ----------
    LeCun, Denker & Solla 1990, "Optimal brain damage"; Kingma & Ba 2015, "Adam".
    """

    id: ClassVar[str] = "obd"
    double: ClassVar[bool] = True
    statistic: ClassVar[str] = "fisher"

    def score(
        self, weights: np.ndarray, statistic: np.ndarray | None, *, name: str, start: int = 0
    ) -> np.ndarray:
        """Return the scores, float64, as squares may be out of the range of float32."""
        assert statistic is not None
        double = weights.astype(np.float64)
        scores: np.ndarray = double * statistic  # the square alone may be out of float64's range
        scores *= double
        scores *= 0.5
        return scores
