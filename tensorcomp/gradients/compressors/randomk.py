"""Elements drawn at random, the same ones by all workers, so that they can be summed."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Pieces, Transform
from tensorcomp.codecs.sparse.selection import check_keep, kept_count
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import (
    Node,
    byte_count,
    decode,
    encode_part,
    framed_part,
    framed_parts,
    join,
    raw_payload,
)
from tensorcomp.container.blob import Blob
from tensorcomp.container.chunk_coder import ChunkCoder
from tensorcomp.errors import CodecError
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, Phases, Reduction, State
from tensorcomp.gradients.compressors.draws import check_seed, shared_key
from tensorcomp.gradients.payload.blobs import grid_of, pack_blob
from tensorcomp.gradients.payload.decoded import DecodedGradient, EmptyGradient, SparseGradient
from tensorcomp.kernels import native

_TREE = "randomk(values=raw)"
_SPARE = 256  # places that the kernel wants at the end
_DEVIATIONS = 8.0
_MOST = (1 << 64) - 1
_CODED = b"\1"  # a mark, see `codecs.tree`


@dataclass(frozen=True)
class RandomKState(State):
    """What a random selection remembers.

    Parameters
    ----------
    count : int
        Steps so far: each selects other elements.
    """

    count: int = 0


@dataclass(frozen=True)
class RandomK(Compressor):
    """Send as many elements as asked for, drawn anew at each step, the same by all workers.

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

    reduction: ClassVar[Reduction] = "sum"
    keep: int | float = 0.01
    seed: int = 0
    scale: bool = True

    def __post_init__(self) -> None:
        check_keep(self.keep)
        check_seed(self.seed)
        if not self.keep > 0:
            raise ValueError(f"keep is more than 0; got {self.keep!r}")
        if type(self.scale) is not bool:
            raise ValueError(f"scale is true or false; got {self.scale!r}")

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        """Whether values are scaled."""
        return self.scale

    def text(self) -> str:
        """Return what workers must have in common for their values to be summed."""
        return f"randomk({self.keep!r}, seed={self.seed}, scale={str(self.scale).lower()})"

    def init(self, spec: GradientSpec) -> RandomKState:
        """Return the state before the first step."""
        return RandomKState(spec)

    def kept(self, size: int) -> int:
        """Return how many of `size` elements are sent: at least one."""
        return min(max(kept_count(self.keep, size), 1), size)

    def _factor(self, size: int) -> float:
        return size / max(self.kept(size), 1) if self.scale else 1.0

    def with_keep(self, keep: float) -> RandomK:
        """Return the compressor that keeps another part; all elements from 1.0 on."""
        return replace(self, keep=sys.maxsize if keep >= 1 else keep)

    def step(self, gradient: np.ndarray, state: Any) -> tuple[Payload, RandomKState]:
        """Return the drawn elements, scaled if asked for."""
        draw, values = self._drawn(gradient, state)
        data = _blob(draw, values, state.spec)
        sent = SparseGradient(draw.positions, values)
        return Payload(data, state.spec, sent), replace(state, count=state.count + 1)

    def _drawn(self, gradient: np.ndarray, state: RandomKState) -> tuple[Draw, np.ndarray]:
        """Return what the step draws, and the elements drawn, scaled if asked for."""
        size = gradient.size
        draw = Draw.of(shared_key(state.spec, self.seed, state.count), size, self.kept(size))
        values = gradient.reshape(-1)[draw.positions]
        with np.errstate(over="ignore"):
            values *= values.dtype.type(self._factor(size))
        return draw, values

    def receive(self, payload: Payload) -> DecodedGradient:
        """Return the drawn elements."""
        return _received(payload) if payload.data else EmptyGradient()

    def phases(self, gradient: np.ndarray, state: Any) -> Phases:
        """Yield the values of the drawn elements (k,)."""
        draw, values = self._drawn(gradient, state)
        averaged = yield values.copy()
        mean = np.zeros(gradient.shape, gradient.dtype)
        mean.reshape(-1)[draw.positions] = averaged
        return mean, SparseGradient(draw.positions, values), replace(state, count=state.count + 1)


@dataclass(frozen=True)
class Draw:
    """The lowest of the numbers that the places of an array draw.

    Parameters
    ----------
    key : numpy.uint64
    positions : numpy.ndarray
        (k,) int64, ascending: those that the codec `randomk` keeps for this seed.
    numbers : numpy.ndarray
        (k,) uint64: what they draw.
    """

    key: np.uint64
    positions: np.ndarray
    numbers: np.ndarray

    @classmethod
    def of(cls, key: np.uint64, size: int, count: int) -> Draw:
        """Return the lowest `count` of the numbers for `size` places."""
        if count == 0:
            return cls(key, np.empty(0, np.int64), np.empty(0, np.uint64))
        # So many more than wanted lie below a limit that the limit is hardly ever too low.
        wanted = count + _DEVIATIONS * math.sqrt(count) + _DEVIATIONS**2
        limit = min(int(wanted / size * 2.0**64), _MOST)
        room = min(int(wanted + _DEVIATIONS * math.sqrt(wanted) + _DEVIATIONS**2), size)
        found = _found(key, 0, size, limit, room)
        if found is None or found[0].size < count:
            exact = np.empty(1, np.uint64)
            native.selection_draw_limit(int(key), 0, size, count, exact)
            found = _found(key, 0, size, int(exact[0]), count)
        if found is None:
            raise AssertionError("more numbers than were counted are below their own limit")
        positions, numbers = found
        lowest = numbers <= np.partition(numbers, count - 1)[count - 1]
        return cls(key, positions[lowest], numbers[lowest])


def _found(
    key: np.uint64, first: int, size: int, limit: int, room: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return places and numbers up to a limit; None if there may be more than `room`."""
    positions, numbers = np.empty(room + _SPARE, np.int64), np.empty(room + _SPARE, np.uint64)
    found = native.stochastic_find_draws(int(key), first, size, limit, positions, numbers)
    return None if found < 0 else (positions[:found], numbers[:found])


def _blob(draw: Draw, values: np.ndarray, spec: GradientSpec) -> bytes:
    """Return the blob that the codec makes of an array in which only these elements are not 0."""
    grid, (tree, parts) = grid_of(spec.shape, spec.dtype), _parts(spec)
    payloads = []
    for index in range(grid.count):
        start, stop = (bound * grid.row_elements for bound in grid.bounds(index))
        first, last = np.searchsorted(draw.positions, (start, stop))
        limit = draw.numbers[first:last].max(initial=0)
        state = np.array([draw.key, start, limit], np.uint64)
        pieces: Pieces = [_CODED]
        for (name, child), part in zip(tree.children, (state, values[first:last]), strict=True):
            pieces += framed_part(parts[name], part.size, encode_part(child, part))
        if byte_count(pieces) - 1 > (stop - start) * spec.dtype.itemsize:
            chunk = np.zeros(stop - start, spec.dtype)
            chunk[draw.positions[first:last] - start] = values[first:last]
            pieces = raw_payload(chunk)
        payloads.append(join(pieces))
    return pack_blob(ChunkCoder.alone((tree,)), payloads)


def _received(payload: Payload) -> DecodedGradient:
    spec = payload.spec
    grid, (tree, _) = grid_of(spec.shape, spec.dtype), _parts(spec)
    blob = Blob.open(np.frombuffer(payload.data, np.uint8), grid.count, spec.name)
    places, found = [], []
    for index in range(grid.count):
        start = grid.bounds(index)[0] * grid.row_elements
        positions, values = _received_chunk(tree, blob.payload(index), grid.spec(index))
        places.append(positions + start)
        found.append(values)
    return SparseGradient(np.concatenate(places), np.concatenate(found))


def _received_chunk(tree: Node, data: np.ndarray, spec: ArraySpec) -> tuple[np.ndarray, np.ndarray]:
    if not data.size or data[:1].tobytes() != _CODED:
        values = decode(tree, data, spec).reshape(-1)
        return np.arange(values.size), values
    parts = framed_parts(tree, spec, data[1:])
    state, values = (decode(child, parts[name][1], parts[name][0]) for name, child in tree.children)
    seed, first, limit = state
    size = spec.size if values.size else 0  # the limit says nothing where nothing is kept
    drawn = _found(seed, int(first), size, int(limit), values.size)
    if drawn is None or drawn[0].size != values.size:
        raise CodecError(f"randomk: {values.size} values for another number of places")
    return drawn[0], values


def _parts(spec: GradientSpec) -> tuple[Node, Mapping[str, ArraySpec]]:
    tree = parse_tree(_TREE)
    return tree, cast(Transform, tree.codec).parts(ArraySpec(spec.shape, spec.dtype))
