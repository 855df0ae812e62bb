"""A compressor made ready for a model: its text read, and what depends on the ranks filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor
from tensorcomp.gradients.recipes import parse_compressor
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.momentum import for_workers


def prepared(
    compressor: Compressor | str,
    *,
    feedback: bool | Literal["auto"],
    residual_dtype: Literal["float32", "bfloat16"],
    world: int,
) -> Compressor:
    """Return the compressor to be used.

    Parameters
    ----------
    compressor : Compressor or str
        A text is read by `recipes.parse_compressor`.
    feedback : bool or "auto"
        Only for a text.
    residual_dtype : str
        Of error feedback that does not ask for another one.
    world : int
        Ranks; momentum corrections are told it as their `workers`.

    Raises
    ------
    GradientError
        If the text is not understood, or something else than a compressor is given.
    """
    if isinstance(compressor, str):
        compressor = parse_compressor(compressor, feedback=feedback)
    elif not isinstance(compressor, Compressor):
        raise GradientError(
            f'a compressor or its text is needed, such as "topk(0.01)"; got {compressor!r}'
        )
    if residual_dtype not in ("float32", "bfloat16"):
        raise GradientError(f'residual_dtype is "float32" or "bfloat16"; got {residual_dtype!r}')
    return for_workers(_filled(compressor, residual_dtype), world)


def _filled(compressor: Compressor, residual_dtype: str) -> Compressor:
    changes: dict[str, Any] = {}
    inner = getattr(compressor, "inner", None)
    if isinstance(inner, Compressor):
        changes["inner"] = _filled(inner, residual_dtype)
    if isinstance(compressor, ErrorFeedback) and compressor.dtype == "float32":
        changes["dtype"] = residual_dtype
    if all(getattr(compressor, key) is value for key, value in changes.items()):
        return compressor
    return replace(compressor, **changes)  # type: ignore[type-var]
