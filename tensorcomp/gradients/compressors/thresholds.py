"""Send elements above a threshold, given or found for a density."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.sparse.threshold import Threshold as ThresholdCodec
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.gradients.base import Compressor, CountedState, Payload, State
from tensorcomp.gradients.compressors.threshold_search import (
    above_zero,
    corrected_threshold,
    sampled_threshold,
    smallest_of_largest,
)
from tensorcomp.gradients.draws import MAX_SEED, own_key
from tensorcomp.gradients.payload.blobs import sparse_blob
from tensorcomp.gradients.payload.receive import TreeCoded


class _Sparsifier(TreeCoded, Compressor):
    """Base of compressors that send elements above a threshold."""

    values: str
    mask: str

    argument_aliases: ClassVar[Mapping[str, str]] = {"indices": "mask"}
    trees: ClassVar[Mapping[str, bool]] = {"values": True, "mask": False}

    @property
    def tree(self) -> Node:
        """The tree of payloads without the threshold, which decoding does not need."""
        return parse_tree(f"threshold(0.0, mask={self.mask}, values={self.values})")


@dataclass(frozen=True)
class Threshold(_Sparsifier):
    """Send the elements of at least a given magnitude.

    A payload is one of the tree ``threshold(value, mask=…, values=…)``. A threshold of 0 leaves
    only zeros out.

    Parameters
    ----------
    value : float
        At least 0, in the gradient's unit.
    values, mask : str
        The trees of the elements and of their places.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a tree is none.

    Notes
    -----
    Cost: O(n), 2 ns an element to encode. How much is sent is up to the gradient, and changes as it
    shrinks: with error feedback every element is sent once it has grown to the threshold.

    References
    ----------
    Strom 2015, "Scalable distributed DNN training using commodity GPU cloud computing".
    """

    id: ClassVar[str] = "threshold"
    value: float = argument(least=0)
    values: str = "floats"
    mask: str = "gaps"

    def step(self, gradient: np.ndarray, state: State) -> tuple[Payload, State]:
        """Send what is large enough."""
        threshold = above_zero(self.value, gradient.dtype)
        positions = ThresholdCodec(threshold).positions(gradient.reshape(-1))
        return sparse_blob(self.tree, gradient, positions, state.spec), state


@dataclass(frozen=True)
class ThresholdState(CountedState):
    """Hold the threshold of the next step.

    Parameters
    ----------
    threshold : float
        For the next step; 0 before the first.
    """

    threshold: float = 0.0


class _ByDensity:
    """Find the threshold of a density at each step; a mixin.

    Attributes
    ----------
    follows : bool
        Whether a step's threshold is corrected for the next step; else it is sampled anew.
    excess : float
        Times as many elements as wanted, from which on the threshold is raised at once.
    """

    state: ClassVar[type[State]] = ThresholdState
    follows: ClassVar[bool] = False
    excess: ClassVar[float]
    tree: Any
    density: float
    sample: float
    seed: int

    @property
    def keep(self) -> float:
        """The density."""
        return self.density

    def with_keep(self, keep: float) -> Any:
        """Return the compressor of another density."""
        return replace(self, density=keep)  # type: ignore[type-var]

    def step(self, gradient: np.ndarray, state: Any) -> tuple[Payload, ThresholdState]:
        """Send what is above the threshold, and find the next one."""
        flat = gradient.reshape(-1)
        wanted = min(max(round(self.density * flat.size), 1), flat.size)
        threshold = state.threshold if self.follows else 0.0
        if not 0.0 < threshold < math.inf:  # none yet, or a damaged one was loaded
            key = own_key(state.spec, self.seed, state.count)
            threshold = sampled_threshold(flat, self.density, self.sample, key)
        threshold = above_zero(threshold, flat.dtype)
        positions = ThresholdCodec(threshold).positions(flat)
        kept = np.abs(flat[positions])
        if kept.size > self.excess * wanted:
            threshold = smallest_of_largest(kept, wanted)
            positions = positions[kept >= threshold]
        elif self.follows:
            threshold = corrected_threshold(threshold, kept, wanted)
        payload = sparse_blob(self.tree, gradient, positions, state.spec)
        return payload, replace(state, count=state.count + 1, threshold=threshold)


@dataclass(frozen=True)
class AdaptiveThreshold(_ByDensity, _Sparsifier):
    """Send about a given part of the elements, by a threshold that adapts.

    The first threshold comes from a sample of the gradient. After each step it is corrected for the
    next one by the law that the tail of the elements sent follows: of c elements of magnitudes v
    above a threshold t, the Hill estimate of the tail's exponent is a = 1 / mean(log(v / t)), and
    t · (c / k)^(1 / a) is where k of them would be. Nothing is ever selected among all elements.
    Where more than twice as many elements as wanted are above, the threshold is raised at once, to
    the k-th largest of those; where there are less than an eighth, the next comes from a sample.

    A payload is one of the tree ``threshold(value, mask=…, values=…)``.

    Parameters
    ----------
    density : float
        The part of the elements, above 0 and up to 1.
    values, mask : str
        The trees of the elements and of their places.
    seed : int
        Of the samples, from 0 to 2**64 − 1.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a tree is none.

    Notes
    -----
    Cost: O(n), 2 ns an element to encode. `topk` keeps the count exactly, in two or three times
    the time.

    References
    ----------
    Dryden et al. 2016, "Communication quantization for data-parallel training of deep neural
    networks"; Hill 1975, "A simple general approach to inference about the tail of a distribution".
    """

    id: ClassVar[str] = "adaptive_threshold"
    follows: ClassVar[bool] = True
    excess: ClassVar[float] = 2.0
    sample: ClassVar[float] = 0.0  # type: ignore[misc]  # as few as it needs
    density: float = argument(0.01, above=0, most=1)
    values: str = "floats"
    mask: str = "gaps"
    seed: int = argument(0, least=0, most=MAX_SEED)


@dataclass(frozen=True)
class SampledThreshold(_ByDensity, _Sparsifier):
    """Send about a given part of the elements, by a sampled threshold.

    The threshold is the magnitude that the wanted part of a random sample reaches. Where it leaves
    more than 1.5 times as many elements as wanted, it is raised once, to the k-th largest of those.
    A payload is one of the tree ``threshold(value, mask=…, values=…)``.

    Parameters
    ----------
    density : float
        The part of the elements, above 0 and up to 1.
    sample : float
        The part of the elements that is sampled, above 0 and up to 1; more, where less than 64 of
        the sample would be above the threshold.
    values, mask : str
        The trees of the elements and of their places.
    seed : int
        From 0 to 2**64 − 1.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a tree is none.

    Notes
    -----
    Cost: O(n), 2 ns an element to encode, and 30 ns for an element of the sample. The count
    scatters by about a tenth around what is wanted.

    References
    ----------
    Lin et al. 2018, "Deep gradient compression", section 5.
    """

    id: ClassVar[str] = "sampled_threshold"
    excess: ClassVar[float] = 1.5
    density: float = argument(0.01, above=0, most=1)
    sample: float = argument(0.005, above=0, most=1)
    values: str = "floats"
    mask: str = "gaps"
    seed: int = argument(0, least=0, most=MAX_SEED)
