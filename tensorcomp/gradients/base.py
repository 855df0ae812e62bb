"""Define gradient compressors: pure steps, explicit states, payloads.

A compressor is a frozen dataclass; what it remembers from step to step is a state of its own, which
`Compressor.init` makes and `Compressor.step` replaces. Nothing here knows of torch or of a network.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from tensorcomp.codecs.arguments import check_arguments
from tensorcomp.codecs.text import parse_tree
from tensorcomp.errors import CodecError, GradientError, PlanError
from tensorcomp.gradients.payload.arrays import host, prepared
from tensorcomp.gradients.payload.decoded import DecodedGradient

if TYPE_CHECKING:
    from tensorcomp._expressions import Call
    from tensorcomp.gradients.text import CompressorParser

Feedback: TypeAlias = 'bool | Literal["auto"]'
Reduction: TypeAlias = Literal["gather", "reduce_scatter", "sum"]
# Yields arrays, is sent their means over all ranks, and returns the mean gradient, what this rank
# has sent, and its next state.
Phases: TypeAlias = "Generator[Any, Any, tuple[Any, DecodedGradient, State]]"


@dataclass(frozen=True)
class GradientSpec:
    """Describe a gradient to be compressed.

    Parameters
    ----------
    name : str
        Of the parameter.
    shape : tuple of int
    dtype : numpy.dtype
        Of what is coded: float32, or float64 for float64 parameters.
    role : str
        As `planning.roles` infers it from name and shape; empty if unknown.
    worker : int
        The number of the worker (rank) that compresses it: what is drawn at random differs by it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))
    role: str = ""
    worker: int = 0

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the gradient as it is."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class State:
    """Hold what a compressor remembers of one tensor; base of all states.

    Arrays of the gradient's shape (flat or not) belong to its elements: they are cut and joined
    with the tensor (`states.split`, `states.join`). Fields with the metadata ``saved=False`` are
    working memory. A state stays valid until the state that `step` made from it is stepped itself:
    until then a step can be undone by dropping the new state.

    Parameters
    ----------
    spec : GradientSpec
    """

    spec: GradientSpec


@dataclass(frozen=True)
class CountedState(State):
    """Count the steps of a compressor whose random numbers depend on them.

    Parameters
    ----------
    count : int
        Steps so far.
    """

    count: int = 0


@dataclass(frozen=True)
class Wrapped(State):
    """Hold the state of an inner compressor; base of wrappers' states."""

    inner: State


@dataclass(frozen=True)
class StepInfo:
    """Describe a training step; equal on all workers.

    Parameters
    ----------
    step : int
        Optimizer steps before this one.
    phase : str
        ``"beginning"``, ``"middle"`` or ``"final"`` of training (see `phases`).
    choices : mapping of str to str
        The compressor's text that was agreed on for a parameter (see `adaptive`).
    """

    step: int = 0
    phase: str = "beginning"
    choices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Payload:
    """Hold a compressed gradient.

    Parameters
    ----------
    data : bytes
        The bytes on the wire: the blob that a compressed checkpoint holds for such a tensor
        (`container.blob`); empty for zeros.
    spec : GradientSpec
    decoded : DecodedGradient or None
        What it decodes to, where it was compressed; None where it was received.
    """

    data: bytes
    spec: GradientSpec
    decoded: DecodedGradient | None = field(default=None, compare=False, repr=False)


class Compressor(ABC):
    """Compress the gradients of a tensor, step by step; a frozen dataclass.

    Attributes
    ----------
    id : str
        The name in a compressor's text (see `registry`).
    argument_names : mapping of str to str
        Names of fields in the text, where they differ.
    argument_aliases : mapping of str to str
        Further names of arguments in the text.
    state : type
        Of states that `init` makes of the spec alone.
    trees : mapping of str to bool
        Fields that are texts of codec trees, and whether they code elements, not places.
    reduction : str
        How workers' payloads become a mean: ``"gather"``, all workers receive all payloads;
        ``"reduce_scatter"``, each sends shards of its gradient to their owners, who send the mean
        of a shard to all; ``"sum"``, arrays are summed on the way (`phases`).
    unbiased : bool
        Whether the expected value of what is decoded is the gradient.
    takes_tensors : bool
        Whether `step` and `phases` take torch tensors, with a state of tensors, as well as arrays;
        of a wrapper, without regard to its inner compressor.
    """

    id: ClassVar[str] = ""
    argument_names: ClassVar[Mapping[str, str]] = {}
    argument_aliases: ClassVar[Mapping[str, str]] = {}
    trees: ClassVar[Mapping[str, bool]] = {}
    state: ClassVar[type[State]] = State
    reduction: ClassVar[Reduction] = "gather"
    unbiased: ClassVar[bool] = False
    takes_tensors: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Have gradients converted, or refused by name, before they are compressed."""
        super().__init_subclass__()
        for name in ("step", "phases"):
            if name in vars(cls):
                setattr(cls, name, _converting(vars(cls)[name]))

    def __post_init__(self) -> None:
        check_arguments(self)  # type: ignore[arg-type]  # subclasses are dataclasses
        for name in self.trees:
            try:
                parse_tree(getattr(self, name))
            except PlanError as error:
                raise ValueError(f"{name}: {error}") from error

    def with_tolerance(self, tolerance: float) -> Compressor:
        """Return this compressor with another ratio or error bound.

        Itself where it has neither.
        """
        return self if self.keep is None else self.with_keep(tolerance)

    @classmethod
    def parse(cls, call: Call, parser: CompressorParser) -> Compressor:
        """Build the compressor of a parsed text; arguments are its fields.

        Parameters
        ----------
        call : Call
        parser : CompressorParser
            Builds what stands in its arguments, and says whether to wrap error feedback around it,
            or around its inner compressor.
        """
        found = parser.fields(cls, call)
        return found if hasattr(found, "inner") else parser.with_feedback(found)

    @property
    def needs_feedback(self) -> bool:
        """Whether what is left out must be sent later, by error feedback."""
        return not self.unbiased

    @property
    def keep(self) -> int | float | None:
        """Part or count of the elements that are sent; None if not an argument."""
        return None

    def kept_part(self, size: int) -> float | None:
        """Return the part of a tensor's elements that is sent; None as `keep`."""
        return min(1.0, self.keep / max(size, 1)) if isinstance(self.keep, int) else self.keep

    def with_keep(self, keep: float) -> Compressor:
        """Return this compressor with another part of the elements sent.

        Raises
        ------
        GradientError
            If the compressor has no ratio.
        """
        raise GradientError(
            f"expected a compressor with a ratio, got {self.text()}; give one such as topk(0.01)"
        )

    def at(self, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Resolve schedulers: return the compressor of a tensor at a step."""
        return self

    @abstractmethod
    def text(self) -> str:
        """Return the canonical text; equal texts decode each other's payloads."""

    def init(self, spec: GradientSpec) -> State:
        """Return the state before the first step."""
        return self.state(spec)

    @abstractmethod
    def step(self, gradient: Any, state: State) -> tuple[Payload, State]:
        """Compress a gradient of the state's spec; it is not changed.

        Parameters
        ----------
        gradient : numpy.ndarray
            All elements finite. Torch tensors and other float types are converted before they get
            here; tensors stay where the compressor `takes_tensors`.
        state : State
            From `init`, or from the step before.

        Returns
        -------
        Payload
            With `Payload.decoded`.
        State
        """

    @abstractmethod
    def receive(self, payload: Payload) -> DecodedGradient:
        """Decode a payload, to a sparse gradient where it is one.

        Raises
        ------
        CodecError
            If the payload is damaged.
        """

    def decode(self, payload: Payload) -> np.ndarray:
        """Decode a payload to an array of its spec's shape and dtype.

        Raises
        ------
        CodecError
            If the payload is damaged.
        """
        return self.receive(payload).array(payload.spec)

    def phases(self, gradient: Any, state: State) -> Phases:
        """Compress to arrays that are averaged in transit, for reduction by sum."""
        raise NotImplementedError(f"{self.text()} is not reduced by sums")


def _converting(compress: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that compresses what `arrays.prepared` makes of the gradient."""

    @functools.wraps(compress)
    def converting(self: Compressor, gradient: Any, state: State) -> Any:
        takes_tensors = hasattr(gradient, "detach") and self.takes_tensors
        ready = prepared(gradient, state, takes_tensors=takes_tensors)
        try:
            return compress(self, ready, state)
        except (ValueError, CodecError) as error:
            if np.isfinite(host(ready)).all():
                raise
            raise GradientError(
                f"expected a finite gradient of {state.spec.name!r}, got NaN or infinity"
            ) from error

    return converting
