"""Wrap compressors around others, and find the compressors within."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, Phases, State, StepInfo
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient


class Outer:
    """Delegate everything to an inner compressor; a mixin."""

    inner: Compressor

    @property
    def reduction(self) -> Any:
        """The inner compressor's reduction."""
        return self.inner.reduction

    @property
    def unbiased(self) -> Any:
        """Whether the inner compressor is unbiased."""
        return self.inner.unbiased

    def at(self, info: StepInfo, spec: GradientSpec) -> Compressor:
        """Resolve schedulers within; this compressor stays around the result."""
        return with_inner(self, self.inner.at(info, spec))

    def text(self) -> str:
        """Return the inner compressor's text: each decodes the other's payloads."""
        return self.inner.text()

    def init(self, spec: GradientSpec) -> State:
        """Return the inner compressor's state."""
        return self.inner.init(spec)

    def step(self, gradient: Any, state: Any) -> tuple[Payload, State]:
        """Compress by the inner compressor."""
        return self.inner.step(gradient, state)

    def phases(self, gradient: Any, state: Any) -> Phases:
        """Compress by the inner compressor, for reduction by sum."""
        return self.inner.phases(gradient, state)

    def receive(self, payload: Payload) -> DecodedGradient:
        """Decode a payload by the inner compressor."""
        return self.inner.receive(payload)


class Wrapper(Outer, Compressor):  # type: ignore[override]
    """Change what an inner compressor is given, and keep what it leaves."""

    @abstractmethod
    def before(self, gradient: Any, state: Any) -> Any:
        """Return the array that the inner compressor compresses, owned here."""

    @abstractmethod
    def after(self, given: Any, sent: DecodedGradient, state: Any, inner: State) -> State:
        """Return the next state; `given` may be changed and kept."""

    def step(self, gradient: Any, state: Any) -> tuple[Payload, State]:
        """Compress what `before` gives by the inner compressor."""
        given = self.before(gradient, state)
        payload, inner = self.inner.step(given, state.inner)
        return payload, self.after(given, payload.decoded or EmptyGradient(), state, inner)

    def phases(self, gradient: Any, state: Any) -> Phases:
        """Compress what `before` gives, for reduction by sum."""
        given = self.before(gradient, state)
        mean, sent, inner = yield from self.inner.phases(given, state.inner)
        return mean, sent, self.after(given, sent, state, inner)


def with_inner(wrapper: Any, inner: Compressor) -> Compressor:
    """Replace the inner compressor of a compressor."""
    replaced: Compressor = wrapper if wrapper.inner is inner else replace(wrapper, inner=inner)
    return replaced


def map_leaf(compressor: Compressor, change: Callable[[Compressor], Compressor]) -> Compressor:
    """Change the innermost compressor; the wrappers around it stay.

    Parameters
    ----------
    compressor : Compressor
        Compressors with a field ``inner`` around one that has none.
    change : callable
    """
    inner = getattr(compressor, "inner", None)
    return change(compressor) if inner is None else with_inner(compressor, map_leaf(inner, change))


def map_chain(compressor: Compressor, change: Callable[[Compressor], Compressor]) -> Compressor:
    """Change a compressor and all compressors within it, innermost first."""
    inner = getattr(compressor, "inner", None)
    return change(compressor if inner is None else with_inner(compressor, map_chain(inner, change)))


def chain(compressor: Compressor) -> Iterator[Compressor]:
    """Yield a compressor and all compressors within it, outermost first."""
    found: Any = compressor
    while found is not None:
        yield found
        found = getattr(found, "inner", None)


def leaf_of(compressor: Compressor) -> Compressor:
    """Return the innermost compressor."""
    *_, leaf = chain(compressor)
    return leaf
