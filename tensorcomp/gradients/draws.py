"""Derive random numbers from seed, tensor name, step and worker."""

from __future__ import annotations

import math
import struct

import numpy as np
import xxhash

from tensorcomp.gradients.base import GradientSpec
from tensorcomp.kernels import native

_SPARE = 256  # places that the kernel wants at the end
_DEVIATIONS = 8.0
_KEY = struct.Struct("<QQQ")
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MAX_SEED = _ALL = (1 << 64) - 1  # in place of a worker, where all of them draw the same


def own_key(spec: GradientSpec, seed: int, step: int) -> np.uint64:
    """Return a key that differs by tensor, step and worker."""
    return _key(spec.name, seed, step, spec.worker)


def shared_key(spec: GradientSpec, seed: int, step: int) -> np.uint64:
    """Return a key that differs by tensor and step; equal on all workers."""
    return _key(spec.name, seed, step, _ALL)


def drawn_numbers(key: int, count: int) -> np.ndarray:
    """Return the first numbers (count,) of a key's SplitMix64 sequence."""
    places = np.arange(1, count + 1, dtype=np.uint64)
    return _mixed(_mixed(np.array([key], np.uint64)) + places * _GOLDEN)


def _mixed(words: np.ndarray) -> np.ndarray:
    """Return words (n,) whose bits all depend on those of others."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    mixed: np.ndarray = words ^ (words >> np.uint64(31))
    return mixed


def _key(name: str, seed: int, step: int, worker: int) -> np.uint64:
    head = _KEY.pack(seed, step & _ALL, worker & _ALL)
    return np.uint64(xxhash.xxh3_64_intdigest(head + name.encode("utf-8", "surrogatepass")))


def draw(key: int, size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw places of an array at random, exactly so many.

    Parameters
    ----------
    key : int
        The seed.
    size : int
        Elements of the array.
    count : int
        Of them to be kept, from 0 to `size`.

    Returns
    -------
    tuple of numpy.ndarray
        (count,) int64, ascending: those that the codec `randomk` keeps for this seed; (count,)
        uint64.
    """
    if count == 0:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    room = min(int(_more(_more(count))), size)
    found = find_draws(key, 0, size, likely_limit(size, count), room)
    if found is None or found[0].size < count:
        exact = np.empty(1, np.uint64)
        native.selection_draw_limit(key, 0, size, count, exact)
        found = find_draws(key, 0, size, int(exact[0]), count)
    assert found is not None, "more numbers than were counted are below their own limit"
    positions, numbers = found
    lowest = numbers <= np.partition(numbers, count - 1)[count - 1]
    return positions[lowest], numbers[lowest]


def likely_limit(size: int, count: int) -> int:
    """Return a limit that is hardly ever too low for `count` of `size` draws."""
    return min(int(_more(count) / size * 2.0**64), _ALL)


def _more(count: float) -> float:
    """Return the most that is drawn where so many are expected, but for once in 10**15 times."""
    return count + _DEVIATIONS * math.sqrt(count) + _DEVIATIONS**2


def find_draws(
    key: int, first: int, size: int, limit: int, room: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Find the places that draw numbers up to a limit, as `randomk` does.

    Parameters
    ----------
    key : int
        The seed.
    first : int
        Index of the first place in a larger tensor.
    size : int
        Places.
    limit : int
    room : int
        Places that may be found.

    Returns
    -------
    tuple of numpy.ndarray or None
        (k,) int64, ascending; (k,) uint64. None if there may be more than `room`.
    """
    positions, numbers = np.empty(room + _SPARE, np.int64), np.empty(room + _SPARE, np.uint64)
    found = native.stochastic_find_draws(key, first, size, limit, positions, numbers)
    return None if found < 0 else (positions[:found], numbers[:found])
