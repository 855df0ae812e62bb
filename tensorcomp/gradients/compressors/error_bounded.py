"""Quantize gradients within an error bound."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.text import format_tree, parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.errors import CodecError
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, State
from tensorcomp.gradients.payload.decoded import DecodedGradient, DenseGradient, EmptyGradient
from tensorcomp.gradients.payload.encode import tree_blob
from tensorcomp.gradients.payload.receive import receive_blob
from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.steps import has_free_step, rounded, scale_steps
from tensorcomp.planning.trials import meet_bound

_HEAD = struct.Struct("<d")
SMALL_ERROR = 0.15  # ‖error‖ / ‖gradient‖ up to which training does without feedback: four bits
_LOSSLESS = "floats"
_TREE = "uniform(1, codes=huffman)"
_SAMPLE = 1 << 15
_TRIALS = 3
_AIM = 0.985  # of the bound: what is left is for the gradients of the next step
_WASTED = 0.9  # of the bound, below which one more trial pays
_FAR = 1.5  # of the bound, beyond which the scale of the step before is of no use


@dataclass(frozen=True)
class ErrorBoundedState(State):
    """Hold the scale of the last step and its measured errors.

    Parameters
    ----------
    scale : float
        By which the tree's steps were multiplied, in parts of the gradient's root mean square where
        the bound is relative; 0 before the first step.
    rel_l2, max_abs : float
        The errors of the last step, measured.
    lossless : int
        1 if no step kept the bound, and all bits were sent; else 0.
    relative : bool
        Whether there is a bound on the relative error.
    """

    scale: float = 0.0
    rel_l2: float = 0.0
    max_abs: float = 0.0
    lossless: int = 0
    relative: bool = field(default=True, metadata={"saved": False})

    @property
    def achieved(self) -> float:
        """Error of the last step, of the kind that is bounded."""
        return self.rel_l2 if self.relative else self.max_abs


@dataclass(frozen=True)
class ErrorBounded(Compressor):
    """Quantize as coarsely as a bound on each tensor's error allows.

    The bound holds for what is decoded, its rounding included: every payload is decoded and
    compared before it is sent. The tree's steps are scaled: the first time by trials on a sample,
    then from the scale of the step before. After three trials that break the bound, all bits are
    sent, and so are they where an array cannot be quantized.

    A payload is, in float64, the factor by which the tree's steps are multiplied, 0 for lossless,
    and then the blob of that tree, or of ``floats``; nothing at all for zeros.

    Parameters
    ----------
    max_rel_l2 : float, optional
        Of ‖x − x̂‖₂ / ‖x‖₂; 0 means that all bits are sent.
    max_abs : float, optional
        Of max |x − x̂|. At least one of the two is given.
    tree : str
        Its steps are scaled; a tree without steps is sent if it keeps the bound as it is. A uniform
        quantizer keeps max_abs for each element.

    Raises
    ------
    ValueError
        If no bound is given, one is out of range, or the tree's text is none.

    Notes
    -----
    Cost: O(n), 5 to 8 ns an element to encode, decode and compare, each trial; one a step where
    gradients change slowly. Not with error feedback for one bound on the sum of all steps: the
    bound is one of each step.

    References
    ----------
    Di & Cappello 2016, "Fast error-bounded lossy HPC data compression with SZ".
    """

    id: ClassVar[str] = "error_bounded"
    trees: ClassVar[Mapping[str, bool]] = {"tree": True}
    max_rel_l2: float | None = argument(None, least=0)
    max_abs: float | None = argument(None, least=0)
    tree: str = _TREE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_rel_l2 is None and self.max_abs is None:
            raise ValueError("expected max_rel_l2, max_abs or both, got neither")

    @property
    def needs_feedback(self) -> bool:
        """Whether the bound is not a small relative one."""
        return self.max_rel_l2 is None or self.max_rel_l2 > SMALL_ERROR

    def with_tolerance(self, tolerance: float) -> ErrorBounded:
        """Return this compressor with another bound, of the kind that it has."""
        if self.max_abs is None:
            return replace(self, max_rel_l2=tolerance)
        return replace(self, max_abs=tolerance)

    @property
    def bound(self) -> Bound:
        """The bound of each tensor."""
        limits = self.max_rel_l2, self.max_abs
        return Bound(*(math.inf if limit is None else limit for limit in limits))

    @functools.cached_property
    def _node(self) -> Node:
        node = parse_tree(self.tree)
        if self.max_abs is None or "bounded" not in node.codec.config():
            return node
        return Node(replace(node.codec, bounded=True), node.children)  # type: ignore[type-var]

    def text(self) -> str:
        """Return the text without the bound, which decoding does not need."""
        return f"error_bounded(max_rel_l2=0, tree={format_tree(parse_tree(self.tree))})"

    def init(self, spec: GradientSpec) -> ErrorBoundedState:
        """Return the state before the first step."""
        return ErrorBoundedState(spec, relative=self.max_rel_l2 is not None)

    def step(self, gradient: np.ndarray, state: Any) -> tuple[Payload, ErrorBoundedState]:
        """Send the coarsest that keeps the bound."""
        unit = self._unit(gradient)
        following = replace(state, rel_l2=0.0, max_abs=0.0, lossless=0)
        if unit == 0:
            return Payload(b"", state.spec, EmptyGradient()), following
        is_lossy = 0 not in (self.max_rel_l2, self.max_abs)
        found = self._search(gradient, following, unit) if is_lossy else None
        if found is None:
            payload = tree_blob(_LOSSLESS, gradient, state.spec)
            return _headed(0.0, payload), replace(following, scale=0.0, lossless=1)
        return found

    def _unit(self, gradient: np.ndarray) -> float:
        """Return the unit of scales: RMS or 1; 0 for zeros."""
        flat = gradient.reshape(-1)
        peak = max(float(flat.max(initial=0)), -float(flat.min(initial=0)))
        if self.max_rel_l2 is None or peak == 0.0:
            return float(peak > 0)
        squares = np.square(flat / flat.dtype.type(peak))  # whose squares cannot overflow
        return peak * math.sqrt(float(squares.sum(dtype=np.float64)) / flat.size)

    def _search(
        self, gradient: np.ndarray, state: ErrorBoundedState, unit: float
    ) -> tuple[Payload, ErrorBoundedState] | None:
        """Return the smallest payload found that keeps the bound, and the state after it."""
        is_free = has_free_step(self._node)
        is_guessed = not (is_free and state.scale)
        factor = rounded(self._guess(gradient, unit) if is_guessed else state.scale * unit)
        best: tuple[Payload, ErrorBoundedState] | None = None
        for _ in range(_TRIALS if is_free else 1):
            tree = scale_steps(self._node, factor) if factor != 1 else self._node
            payload = tree_blob(tree, gradient, state.spec)
            errors = measure(gradient, _decoded(payload))
            rel_l2, max_abs = float(errors.rel_l2), float(errors.max_abs)
            used = self.bound.used(rel_l2, max_abs)
            following = factor
            if used > 1 or (used > 0 and self.max_rel_l2 is not None):
                following *= min(max(_AIM / used, 0.25), 4.0)
            if used <= 1:
                after = replace(state, scale=following / unit, rel_l2=rel_l2, max_abs=max_abs)
                best = _headed(factor, payload), after
                if used >= _WASTED or following == factor or not is_guessed:
                    break
            elif best is not None:
                break
            elif used > _FAR and not is_guessed:  # the gradient is not like the one before
                is_guessed, following = True, self._guess(gradient, unit)
            factor = rounded(following)
        return best

    def _guess(self, gradient: np.ndarray, unit: float) -> float:
        """Return a factor that fits a sample of the gradient."""
        if not has_free_step(self._node):
            return 1.0
        flat = gradient.reshape(-1)
        sample = np.ascontiguousarray(flat[:: max(1, flat.size // _SAMPLE)])
        guess = 2 * self.bound.max_abs_error
        if self.max_rel_l2 is not None:
            guess = min(guess, math.sqrt(12) * unit * self.max_rel_l2, 4 * unit)
        factor = guess / _first_step(self._node)
        if self.max_rel_l2 is None:
            return factor
        fitted = meet_bound(scale_steps(self._node, factor), sample, self.bound)
        return factor if fitted is None else _first_step(fitted) / _first_step(self._node)

    def receive(self, payload: Payload) -> DecodedGradient:
        """Decode a payload by the tree with the step in its head."""
        if not payload.data:
            return EmptyGradient()
        if len(payload.data) <= _HEAD.size:
            raise CodecError(
                f"gradient {payload.spec.name!r}: expected a head of 8 bytes and a blob, got "
                f"{len(payload.data)} bytes"
            )
        factor = _HEAD.unpack_from(payload.data)[0]
        body = replace(payload, data=payload.data[_HEAD.size :])
        if factor == 0.0:
            return receive_blob(_LOSSLESS, body)
        if not 0.0 < factor < math.inf:
            raise CodecError(
                f"gradient {payload.spec.name!r}: expected a finite factor above 0, got {factor!r}"
            )
        return receive_blob(scale_steps(self._node, factor) if factor != 1 else self._node, body)


def _headed(factor: float, payload: Payload) -> Payload:
    return replace(payload, data=_HEAD.pack(factor) + payload.data)


def _first_step(node: Node) -> float:
    return float(next(codec.step for codec in node.walk() if hasattr(codec, "step")))


def _decoded(payload: Payload) -> Any:
    found: Any = payload.decoded
    return found.values if isinstance(found, DenseGradient) else found.array(payload.spec)
