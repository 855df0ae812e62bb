"""Add what was not sent to the next gradient (error feedback)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import ml_dtypes
import numpy as np

from tensorcomp._expressions import Call
from tensorcomp.codecs.arguments import argument
from tensorcomp.gradients.base import Compressor, GradientSpec, State, Wrapped
from tensorcomp.gradients.payload.arrays import accumulate, converted, share_memory, zeros_like
from tensorcomp.gradients.payload.decoded import DecodedGradient, DenseGradient
from tensorcomp.gradients.wrappers.base import Wrapper

if TYPE_CHECKING:
    from tensorcomp.gradients.text import CompressorParser

_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@dataclass(frozen=True)
class FeedbackState(Wrapped):
    """Hold the residual of a tensor.

    Parameters
    ----------
    residual : numpy.ndarray or torch.Tensor
        What has not been sent yet, flat (n,), in units of the gradient.
    spare : numpy.ndarray or torch.Tensor
        Working memory for the residual after the next step, flat (n,).
    """

    residual: Any
    spare: Any = field(metadata={"saved": False})


@dataclass(frozen=True)
class ErrorFeedback(Wrapper):
    """Send gradient plus residual; keep what is left out as residual.

    The inner compressor is given a = g + decay · e for the gradient g and the residual e; with what
    it sends, s, the new residual is a − s. So the sum of all that was sent, and the residual, is
    the sum of all gradients (decay 1).

    Parameters
    ----------
    inner : Compressor
    dtype : str
        Of residuals: ``"float32"`` (of float64 gradients float64), or ``"bfloat16"`` for half the
        memory, whose rounding is lost.
    decay : float
        From 0 to 1: what is left of a residual after a step.

    Notes
    -----
    Cost: two passes over the elements beside the inner compressor's; two arrays of the gradient's
    size a tensor, so that a step can be undone.

    References
    ----------
    Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback
    fixes SignSGD and other gradient compression schemes".
    """

    id: ClassVar[str] = "feedback"
    takes_tensors: ClassVar[bool] = True
    inner: Compressor
    dtype: str = argument("float32", choices=_DTYPES)
    decay: float = argument(1.0, least=0, most=1)

    @classmethod
    def parse(cls, call: Call, parser: CompressorParser) -> Compressor:
        """Build the wrapper of a text; without feedback its inner compressor."""
        found = replace(parser, feedback=False).fields(cls, call)
        return found.inner if parser.feedback is False else found

    def init(self, spec: GradientSpec) -> FeedbackState:
        """Return a residual of zeros."""
        wide = self.dtype == "float32" and spec.dtype.itemsize > 4
        dtype = spec.dtype if wide else _DTYPES[self.dtype]
        residual = np.zeros(spec.size, dtype)
        return FeedbackState(spec, self.inner.init(spec), residual, np.zeros(spec.size, spec.dtype))

    def before(self, gradient: Any, state: FeedbackState) -> Any:
        """Return gradient + decay × residual."""
        residual = converted(state.residual, state.spare)
        accumulate(gradient.reshape(-1), 1.0, residual, self.decay, state.spare)
        return state.spare.reshape(state.spec.shape)

    def after(
        self, given: Any, sent: DecodedGradient, state: FeedbackState, inner: State
    ) -> FeedbackState:
        """Keep what was given but not sent."""
        left = given.reshape(-1)
        if isinstance(sent, DenseGradient) and share_memory(sent.values, left):
            left = zeros_like(left)  # all was sent, and what was sent must stay
        else:
            sent.subtract_from(left)
        if state.residual.dtype == left.dtype:
            return FeedbackState(state.spec, inner, left, state.residual)
        return FeedbackState(state.spec, inner, converted(left, state.residual), left)
