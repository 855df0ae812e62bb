"""A tensor as a strategy or another library's format codes it, with all its bytes counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tensorcomp.benchmark.peers import Peer
from tensorcomp.codecs.tree import join
from tensorcomp.container.blob import ChunkGrid, index_bytes
from tensorcomp.errors import NotRepresentable
from tensorcomp.pipeline.encode import planned_coder
from tensorcomp.planning.checkpoint_plan import TensorPlan
from tensorcomp.planning.strategies import Strategy

Method: TypeAlias = "Strategy | Peer"

LOSSLESS = Strategy("lossless")
_BY_FIRST_TREE = 1  # what the payload of a chunk begins with; see `container.chunks`


@dataclass(frozen=True)
class Coded:
    """What a tensor became.

    Parameters
    ----------
    nbytes : int
    decode : callable
        Returns the tensor's array.
    refused : bool
        Whether the method could not code it, or not in fewer bytes than it has, so that some or all
        of it was coded losslessly.
    """

    nbytes: int
    decode: Callable[[], np.ndarray]
    refused: bool = False


def code(method: Method, array: np.ndarray, grid: ChunkGrid, scale: float) -> Coded:
    """Code a tensor.

    Parameters
    ----------
    method : Strategy or Peer
    array : numpy.ndarray
        Of the shape and type of `grid`.
    grid : ChunkGrid
    scale : float
        Root mean square that a free step is proportional to.
    """
    if isinstance(method, Strategy):
        return _by_tree(method, array, grid, scale)
    try:
        nbytes, decode = method.encode(array, scale)
    except NotRepresentable:
        return replace(_by_tree(LOSSLESS, array, grid, scale), refused=True)
    return Coded(nbytes, lambda: decode().reshape(array.shape).astype(array.dtype, copy=False))


def _by_tree(strategy: Strategy, array: np.ndarray, grid: ChunkGrid, scale: float) -> Coded:
    """Code a tensor as a file would hold it: what chunks share, payloads, index."""
    tree = strategy.tree(scale)
    plan = None if tree is None else TensorPlan(tree)
    found, _ = planned_coder(array, grid, plan, strategy.effort)
    coder = found.coder
    payloads = []
    for index in range(grid.count):
        start, stop = grid.bounds(index)
        pieces = coder.encode(array[start:stop], found.roots[index] if found.roots else None)
        payloads.append(np.frombuffer(join(pieces), np.uint8))
    shared = len(coder.pack()) if grid.count > 1 else 0
    nbytes = shared + sum(payload.size for payload in payloads) + index_bytes(grid.count)

    def decode() -> np.ndarray:
        out = np.empty(array.shape, array.dtype)
        for index, payload in enumerate(payloads):
            start, stop = grid.bounds(index)
            coder.decode(payload, grid.spec(index), out[start:stop])
        return out

    lossy = tree is not None and not tree.lossless
    by_other = found.lossless or any(payload[0] != _BY_FIRST_TREE for payload in payloads)
    return Coded(nbytes, decode, lossy and by_other)
