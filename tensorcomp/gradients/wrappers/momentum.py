"""Correct momentum: apply it before compression, not in the optimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tensorcomp._expressions import Call, format_call
from tensorcomp.codecs.arguments import argument
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, State, Wrapped
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor, wire_tree
from tensorcomp.gradients.payload.arrays import accumulate
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.wrappers.base import Wrapper, chain, map_chain
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback

if TYPE_CHECKING:
    from tensorcomp.gradients.text import CompressorParser

_FIRST = 1024  # elements that nearly always show that a gradient is not all zero
_STILL = -0.0  # given on where the gradient was all zero; sums that cancel out are 0.0


@dataclass(frozen=True)
class MomentumState(Wrapped):
    """Hold the velocity of a tensor.

    Parameters
    ----------
    velocity : numpy.ndarray or torch.Tensor
        u, flat (n,), in units of the gradient.
    spare : numpy.ndarray or torch.Tensor
        Working memory for the velocity after the next step, flat (n,).
    """

    velocity: Any
    spare: Any = field(metadata={"saved": False})


@dataclass(frozen=True)
class MomentumCorrection(Wrapper):
    """Compress the velocity u = m · u + g in place of the gradient g.

    For SGD without momentum of its own.

    What error feedback keeps back is then velocity, to which later gradients add as they would to
    the velocity of an optimizer. Where an element is sent, u is set to zero (momentum factor
    masking): otherwise it would go on in a direction that has grown old. If all elements are sent,
    nothing is masked, and the steps are those of SGD with momentum.

    A gradient that is all zero, such as that of a worker that is out of data, changes u only where
    elements are sent, and nothing but the residual is given on.

    Parameters
    ----------
    inner : Compressor
        With an `ErrorFeedback`.
    momentum : float
        m, from 0 up to but not 1.
    clip : float, optional
        The L2 norm of a tensor's gradient is kept below clip / √workers: that of their sum, if
        gradients are independent, below clip.
    workers : int, optional
        For `clip`; `for_workers` sets it later, else it is 1.
    nesterov : bool
        Whether g + m · u is given on instead of u.
    masking : bool
        Whether u is set to zero where an element is sent.

    Raises
    ------
    ValueError
        If a parameter is out of range, or nothing inside has error feedback.

    Notes
    -----
    Cost: one pass over the elements, two with `clip`; two arrays of the gradient's size a tensor.

    References
    ----------
    Lin et al. 2018, "Deep gradient compression: reducing the communication bandwidth for
    distributed training", sections 3.1 to 3.3.
    """

    id: ClassVar[str] = "dgc"
    takes_tensors: ClassVar[bool] = True
    inner: Compressor
    momentum: float = argument(0.9, least=0, most=1)
    clip: float | None = argument(None, above=0)
    workers: int | None = argument(None, least=1)
    nesterov: bool = False
    masking: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum == 1:
            raise ValueError("expected momentum to be below 1, got 1")
        if not any(isinstance(one, ErrorFeedback) for one in chain(self.inner)):
            raise ValueError(
                f"{self.inner.text()} has no error feedback; momentum is corrected around one: "
                "MomentumCorrection(ErrorFeedback(…))"
            )

    @classmethod
    def parse(cls, call: Call, parser: CompressorParser) -> Compressor:
        """Build the correction of a text, around error feedback of `topk`."""
        if parser.feedback is False:
            raise GradientError(
                "dgc is momentum correction around error feedback; it needs feedback"
            )
        own = [field.name for field in fields(cls)][1:]
        arguments = call.bind(["keep", "values", "mask", *own], aliases={"indices": "mask"})
        settings = {name: arguments.pop(name).plain for name in own if name in arguments}
        parts = {"keep": "0.001"} | {name: found.text for name, found in arguments.items()}
        tree = wire_tree(format_call("topk", (f"{name}={text}" for name, text in parts.items())))
        return call.made(cls, inner=ErrorFeedback(TreeCompressor(tree)), **settings)

    def init(self, spec: GradientSpec) -> MomentumState:
        """Return a velocity of zeros."""
        zeros = np.zeros(spec.size, spec.dtype)
        return MomentumState(spec, self.inner.init(spec), zeros, np.zeros(spec.size, spec.dtype))

    def before(self, gradient: Any, state: MomentumState) -> Any:
        """Return the velocity, or with Nesterov's momentum what it will be."""
        flat, given = gradient.reshape(-1), state.spare
        if _is_zero(flat):
            given[:] = _STILL
            return given.reshape(state.spec.shape)
        factor, momentum = self._factor(flat), self.momentum
        if self.nesterov:  # g + m (m u + g)
            factor, momentum = factor * (1 + momentum), momentum * momentum
        accumulate(flat, factor, state.velocity, momentum, given)
        return given.reshape(state.spec.shape)

    def _factor(self, flat: Any) -> float:
        """Return the factor that clips a gradient's norm."""
        if self.clip is None:
            return 1.0
        peak = float(abs(flat).max())
        scaled = flat / peak  # its squares cannot overflow
        norm = peak * math.sqrt(float(scaled @ scaled))
        return min(1.0, self.clip / math.sqrt(self.workers or 1) / norm)

    def after(
        self, given: Any, sent: DecodedGradient, state: MomentumState, inner: State
    ) -> MomentumState:
        """Keep the velocity where nothing was sent."""
        velocity = given.reshape(-1)
        if _is_still(velocity):
            velocity[:] = state.velocity
        elif self.nesterov:  # given + m u = (1 + m) (m u + g)
            velocity += state.velocity * self.momentum
            velocity /= 1 + self.momentum
        if self.masking and sent.count < len(velocity):
            sent.clear(velocity)
        return MomentumState(state.spec, inner, velocity, state.velocity)


def for_workers(compressor: Compressor, workers: int) -> Compressor:
    """Set the number of workers of momentum corrections that lack it.

    Parameters
    ----------
    compressor : Compressor
        With or without any; those that have a number keep it.
    workers : int
    """

    def numbered(one: Compressor) -> Compressor:
        if isinstance(one, MomentumCorrection) and one.workers is None:
            return replace(one, workers=workers)
        return one

    return map_chain(compressor, numbered)


def _is_zero(flat: Any) -> bool:
    return not (flat[:_FIRST].any() or flat.any())


def _is_still(given: Any) -> bool:
    return len(given) > 0 and math.copysign(1, given[0]) < 0 and _is_zero(given)


def check_optimizer(optimizer: Any) -> None:
    """Refuse an optimizer with momentum or adaptive steps of its own.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Or anything with ``param_groups``, mappings of its settings.

    Raises
    ------
    GradientError
    """
    name = type(optimizer).__name__
    for number, group in enumerate(optimizer.param_groups):
        if any(key in group for key in ("betas", "eps")):
            raise GradientError(
                f"momentum correction is for plain SGD, but the optimizer is {name}; use SGD "
                "without momentum, or a compressor without momentum correction"
            )
        if group.get("momentum", 0):
            raise GradientError(
                f"momentum is corrected by the compressor, but {name} has momentum "
                f"{group['momentum']} in parameter group {number}; set it to 0 there"
            )
