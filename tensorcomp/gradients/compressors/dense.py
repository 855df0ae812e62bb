"""Send gradients uncompressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tensorcomp.codecs.text import parse_tree
from tensorcomp.gradients.base import Compressor, Payload, Phases, Reduction, State
from tensorcomp.gradients.payload.decoded import DenseGradient
from tensorcomp.gradients.payload.encode import tree_blob
from tensorcomp.gradients.payload.receive import TreeCoded


@dataclass(frozen=True)
class Dense(TreeCoded, Compressor):
    """Send a gradient uncompressed.

    Workers' gradients are summed on the way (ring all-reduce): 2 (W − 1) / W times their bytes for
    each of W workers, whatever W is.
    """

    id: ClassVar[str] = "dense"
    reduction: ClassVar[Reduction] = "sum"
    unbiased: ClassVar[bool] = True
    takes_tensors: ClassVar[bool] = True
    tree = parse_tree("raw")

    def text(self) -> str:
        """Return ``"dense"``."""
        return "dense"

    def step(self, gradient: Any, state: State) -> tuple[Payload, State]:
        """Return a payload with the gradient's own bytes."""
        return tree_blob(self.tree, gradient, state.spec), state

    def phases(self, gradient: Any, state: State) -> Phases:
        """Yield the gradient."""
        mean = yield gradient
        return mean, DenseGradient(gradient.reshape(-1)), state
