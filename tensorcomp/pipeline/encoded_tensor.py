"""A tensor as a strategy or another library's format codes it, with all its bytes counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tensorcomp.benchmark.peers import Peer
from tensorcomp.container.chunk_coder import CODED
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.tensor_blob import TensorBlob, decode_tensor, encode_tensor
from tensorcomp.errors import NotRepresentable
from tensorcomp.pipeline.encode import planned_coder
from tensorcomp.planning.checkpoint_plan import TensorPlan
from tensorcomp.planning.strategies import Strategy

Method: TypeAlias = "Strategy | Peer"

LOSSLESS = Strategy("lossless")


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
    encoded = encode_tensor(array, found.coder, grid, found.roots)
    data = np.frombuffer(encoded.to_bytes(), np.uint8)

    def decode() -> np.ndarray:
        return decode_tensor(TensorBlob.open(data, found.coder.trees, grid, ""))

    lossy = tree is not None and not tree.lossless
    by_other = found.lossless or any(payload[0] != CODED for payload in encoded.payloads)
    return Coded(data.size, decode, lossy and by_other)
