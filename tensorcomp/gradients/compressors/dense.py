"""Send gradients uncompressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tensorcomp.gradients.base import Compressor, Payload, Phases, Reduction, State
from tensorcomp.gradients.payload.blobs import receive_blob
from tensorcomp.gradients.payload.decoded import DecodedGradient, DenseGradient
from tensorcomp.gradients.payload.encode import tree_blob

_TREE = "raw"


@dataclass(frozen=True)
class Dense(Compressor):
    """Send a gradient uncompressed.

    Workers' gradients are summed on the way (ring all-reduce): 2 (W − 1) / W times their bytes for
    each of W workers, whatever W is.
    """

    id: ClassVar[str] = "dense"
    reduction: ClassVar[Reduction] = "sum"
    unbiased: ClassVar[bool] = True
    takes_tensors: ClassVar[bool] = True

    def text(self) -> str:
        """Return ``"dense"``."""
        return "dense"

    def step(self, gradient: Any, state: State) -> tuple[Payload, State]:
        """Return a payload with the gradient's own bytes."""
        return tree_blob(_TREE, gradient, state.spec), state

    def receive(self, payload: Payload) -> DecodedGradient:
        """Return all elements."""
        return receive_blob(_TREE, payload)

    def phases(self, gradient: Any, state: State) -> Phases:
        """Yield the gradient."""
        mean = yield gradient
        return mean, DenseGradient(gradient.reshape(-1)), state
