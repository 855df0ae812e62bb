"""Send elements drawn at random, the same on all workers."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tensorcomp._expressions import Call
from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Pieces
from tensorcomp.codecs.payload import encode_part
from tensorcomp.codecs.sparse.selection import check_keep, kept_count
from tensorcomp.codecs.text import parse_tree
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import (
    Compressor,
    CountedState,
    Payload,
    Phases,
    Reduction,
    State,
)
from tensorcomp.gradients.draws import MAX_SEED, draw, shared_key
from tensorcomp.gradients.payload.arrays import copied, host, zeros_like
from tensorcomp.gradients.payload.blobs import selected_blob
from tensorcomp.gradients.payload.decoded import SparseGradient
from tensorcomp.gradients.payload.receive import TreeCoded

if TYPE_CHECKING:
    from tensorcomp.gradients.text import CompressorParser


@dataclass(frozen=True)
class RandomK(TreeCoded, Compressor):
    """Send elements drawn at random at each step, equal on all workers.

    The k values are averaged on the way, without their places: 2 (W − 1) / W · k values a worker.
    Scaled by n / k they are unbiased, with a variance of (n / k − 1) · ‖gradient‖²; not scaled,
    they are what error feedback needs.

    A payload is one of the tree ``randomk(k, seed)``: what is drawn depends on the seed, the
    tensor's name and the count of steps, but not on the worker.

    Parameters
    ----------
    keep : int or float
        An integer is a count of elements, a float below 1 a part of them; at least one is kept.
    seed : int
        From 0 to 2**64 − 1, the same on all workers.
    scale : bool
        Whether values are multiplied by n / k.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    Cost: O(n), 1.3 ns an element to select. Random elements hold a part k / n of the gradient's
    squared norm, and the largest ones many times as much: `topk` learns more from as many bytes
    wherever they can be gathered. Error feedback together with an optimizer's momentum diverges
    at small k.

    References
    ----------
    Konečný et al. 2016, "Federated learning: strategies for improving communication efficiency";
    Wangni et al. 2018, "Gradient sparsification for communication-efficient distributed
    optimization".
    """

    id: ClassVar[str] = "randomk"
    state: ClassVar[type[State]] = CountedState
    reduction: ClassVar[Reduction] = "sum"
    takes_tensors: ClassVar[bool] = True
    tree = parse_tree("randomk(values=raw)")
    keep: int | float = 0.01
    seed: int = argument(0, least=0, most=MAX_SEED)
    scale: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_keep(self.keep)
        if not self.keep > 0:
            raise ValueError(f"expected keep to be more than 0, got {self.keep!r}")

    @classmethod
    def parse(cls, call: Call, parser: CompressorParser) -> Compressor:
        """Build the compressor of a text: scaled up or with error feedback."""
        found = parser.fields(cls, call, scale=parser.feedback is not True)
        if found.scale and parser.feedback is True:
            raise GradientError(
                "randomk: values that are scaled up diverge with error feedback; set scale=false"
            )
        return parser.with_feedback(found)

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        """Whether values are scaled."""
        return self.scale

    def text(self) -> str:
        """Return what workers must have in common for their values to be summed."""
        return f"randomk({self.keep!r}, seed={self.seed}, scale={str(self.scale).lower()})"

    def kept(self, size: int) -> int:
        """Return how many of `size` elements are sent: at least one."""
        return min(max(kept_count(self.keep, size), 1), size)

    def with_keep(self, keep: float) -> RandomK:
        """Return this compressor with another part kept; all from 1.0 on."""
        return replace(self, keep=sys.maxsize if keep >= 1 else keep)

    def step(self, gradient: Any, state: Any) -> tuple[Payload, CountedState]:
        """Return the drawn elements, scaled if asked for."""
        key, positions, numbers, values = self._drawn(gradient, state)
        places, drawn, sent = host(positions), host(numbers).view(np.uint64), host(values)

        def where(kept: slice, start: int, chunk: ArraySpec) -> Pieces:
            limits = np.array([key, start, drawn[kept].max(initial=0)], np.uint64)
            return encode_part(self.tree.children[0][1], limits)

        def whole(kept: slice, start: int, size: int) -> np.ndarray:
            chunk = np.zeros(size, sent.dtype)
            chunk[places[kept] - start] = sent[kept]
            return chunk

        payload = selected_blob(self.tree, places, sent, state.spec, where, whole)
        payload = replace(payload, decoded=SparseGradient(positions, values))
        return payload, replace(state, count=state.count + 1)

    def _drawn(self, gradient: Any, state: CountedState) -> tuple[int, Any, Any, Any]:
        """Return the key, the places drawn, their numbers, and the elements, scaled if asked."""
        size = state.spec.size
        key, count = int(shared_key(state.spec, self.seed, state.count)), self.kept(size)
        positions: Any
        numbers: Any
        if isinstance(gradient, np.ndarray):
            positions, numbers = draw(key, size, count)
        else:
            from tensorcomp.gradients.cuda.selection import drawn_positions

            positions, numbers = drawn_positions(key, size, count, gradient.device)
        values = gradient.reshape(-1)[positions]
        with np.errstate(over="ignore"):
            values *= size / max(count, 1) if self.scale else 1.0
        return key, positions, numbers, values

    def phases(self, gradient: Any, state: Any) -> Phases:
        """Yield the values of the drawn elements (k,)."""
        _, positions, _, values = self._drawn(gradient, state)
        averaged = yield copied(values)
        mean = zeros_like(gradient)
        mean.reshape(-1)[positions] = averaged
        return mean, SparseGradient(positions, values), replace(state, count=state.count + 1)
