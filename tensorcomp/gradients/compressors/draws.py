"""Derive random numbers from seed, tensor name, step and worker."""

from __future__ import annotations

import struct

import numpy as np
import xxhash

from tensorcomp.gradients.base import GradientSpec

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
