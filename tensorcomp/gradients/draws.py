"""Keys of random numbers: a pure function of a seed, a tensor's name, a step and a worker."""

from __future__ import annotations

import struct

import numpy as np
import xxhash

from tensorcomp.gradients.base import GradientSpec

_KEY = struct.Struct("<QQQ")
_ALL = (1 << 64) - 1  # in place of a worker, where all of them draw the same


def own_key(spec: GradientSpec, seed: int, step: int) -> np.uint64:
    """Return a key that differs between tensors, steps and workers."""
    return _key(spec.name, seed, step, spec.worker)


def shared_key(spec: GradientSpec, seed: int, step: int) -> np.uint64:
    """Return a key that differs between tensors and steps, and is the same for all workers."""
    return _key(spec.name, seed, step, _ALL)


def check_seed(seed: object) -> None:
    """Require an integer from 0 to 2**64 - 1.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    if not (type(seed) is int and 0 <= seed <= _ALL):
        raise ValueError(f"seed is an integer from 0 to 2**64 - 1; got {seed!r}")


def _key(name: str, seed: int, step: int, worker: int) -> np.uint64:
    head = _KEY.pack(seed, step & _ALL, worker & _ALL)
    return np.uint64(xxhash.xxh3_64_intdigest(head + name.encode("utf-8", "surrogatepass")))
