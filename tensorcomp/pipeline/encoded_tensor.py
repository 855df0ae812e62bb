"""Encode a tensor by a strategy, with all its bytes counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.strategy import Strategy
from tensorcomp.container.blob import CODED
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.tensor_blob import TensorBlob, decode_tensor, encode_tensor
from tensorcomp.pipeline.encode import planned_encoder
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.strategies import strategy_tree

LOSSLESS = Strategy("lossless")


@dataclass(frozen=True)
class Coded:
    """Size of an encoded tensor, and how to decode it.

    Parameters
    ----------
    nbytes : int
    decode : callable
        Returns the tensor's array.
    refused : bool
        Whether the strategy could not code it, or not in fewer bytes than it has, so that some or
        all of it was coded losslessly.
    """

    nbytes: int
    decode: Callable[[], np.ndarray]
    refused: bool = False


def code(strategy: Strategy, array: np.ndarray, grid: ChunkGrid, scale: float) -> Coded:
    """Encode a tensor as a file would hold it: what chunks share, payloads, index.

    Parameters
    ----------
    strategy : Strategy
    array : numpy.ndarray
        Of the shape and type of `grid`.
    grid : ChunkGrid
    scale : float
        Root mean square that a free step is proportional to.
    """
    tree = strategy_tree(strategy, scale)
    plan = None if tree is None else TensorPlan(tree)
    found, _ = planned_encoder(array, grid, plan, strategy.effort)
    encoded = encode_tensor(array, found.coder, grid, found.roots)
    data = np.frombuffer(encoded.to_bytes(), np.uint8)

    def decode() -> np.ndarray:
        return decode_tensor(TensorBlob.open(data, found.coder.trees, grid, ""))

    lossy = tree is not None and not tree.lossless
    by_other = found.lossless or any(payload[0] != CODED for payload in encoded.payloads)
    return Coded(data.size, decode, lossy and by_other)
