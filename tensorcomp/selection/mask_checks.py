"""Whether a mask fits a tensor, of NumPy or torch, which is not imported; and what it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcomp.codecs.bit_views import as_words
from tensorcomp.errors import PruningError


def require_mask(name: str, mask: Any, shape: tuple[int, ...]) -> None:
    """Require a mask that fits a tensor.

    Parameters
    ----------
    name : str
        The tensor's.
    mask : numpy.ndarray or torch.Tensor
    shape : tuple of int
        The tensor's.

    Raises
    ------
    PruningError
        If it is no array, not bool, or of another shape.
    """
    dtype = getattr(mask, "dtype", None)
    if dtype is None:
        raise PruningError(f"the mask of {name!r} is no array but a {type(mask).__name__}")
    if str(dtype) not in ("bool", "torch.bool") or tuple(mask.shape) != tuple(shape):
        raise PruningError(
            f"the mask of {name!r} is {dtype} {list(mask.shape)}; it must be bool {list(shape)}, "
            "true where a weight is kept"
        )


def pruned(weights: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return an array with +0.0 where a mask is false; all other bits are as they were."""
    words = as_words(np.asarray(weights, order="C"))
    left = np.empty_like(words)
    np.multiply(words, mask, out=left)  # a tenth of the time of where
    return left.view(weights.dtype)
