"""Compress a gradient by a codec tree, where the gradient is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.gradients.base import GradientSpec, Payload
from tensorcomp.gradients.payload.blobs import grid_of, host_blob


def tree_blob(tree: Node | str, gradient: Any, spec: GradientSpec) -> Payload:
    """Compress a gradient by a codec tree, a tensor on its own device.

    Parameters
    ----------
    tree : Node or str
    gradient : numpy.ndarray or torch.Tensor
        Of the spec's dtype and number of elements, all of them finite, C-contiguous.
    spec : GradientSpec

    Returns
    -------
    Payload
        With `Payload.decoded`, where the gradient is.
    """
    node = parse_tree(tree) if isinstance(tree, str) else tree
    grid = grid_of(spec.shape, spec.dtype)
    array = gradient.reshape(grid.shape)
    if isinstance(array, np.ndarray):
        return host_blob(node, array, grid, spec)
    from tensorcomp.gradients.cuda.blobs import device_blob

    return device_blob(node, array, grid, spec)
