"""Which part of a tensor's elements a compressor keeps, whatever it calls that."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from tensorcomp.gradients.base import Compressor


def ratio_of(leaf: Compressor, size: int) -> float | None:
    """Return the part of a tensor's elements that is kept.

    Parameters
    ----------
    leaf : Compressor
        Without wrappers.
    size : int
        Elements of the tensor; where a count of them is kept, the ratio depends on it.

    Returns
    -------
    float or None
        None if there is no such part: all are kept, or as many as something else says.
    """
    found: Any = leaf
    kept = getattr(found, "density", None)
    if kept is None:
        kept = getattr(found, "keep", None)
    if isinstance(kept, int):
        return min(1.0, kept / max(size, 1))
    return kept


@functools.lru_cache(maxsize=1024)
def with_ratio(leaf: Compressor, ratio: float) -> Compressor:
    """Return a compressor that keeps another part of the elements.

    Parameters
    ----------
    leaf : Compressor
        One that `ratio_of` tells a part of; any other is returned as it is.
    ratio : float
        Above 0 and below 1.
    """
    found: Any = leaf
    if getattr(found, "density", None) is not None:
        return replace(found, density=ratio)  # type: ignore[no-any-return]
    if getattr(found, "keep", None) is None:
        return leaf
    if hasattr(found, "with_keep"):
        return found.with_keep(ratio)  # type: ignore[no-any-return]
    return replace(found, keep=ratio)  # type: ignore[no-any-return]
