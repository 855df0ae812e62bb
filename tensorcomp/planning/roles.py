"""What a tensor is for, told from its name, shape and type."""

from __future__ import annotations

import re

from tensorcomp.dtypes import numpy_dtype

_FLOATS = {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}

# The first pattern found in the name decides; names are those of the usual model libraries.
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("optimizer", r"exp_avg|momentum_buffer|max_exp_avg|\bstate\.\d+\.|optimizer"),
    ("norm", r"norm|\bln_?\d*\b|layer_?norm|\bbn\d*\b|batch_?norm|running_(mean|var)|rms"),
    ("router", r"router|gate\.(wg|weight)$|gating"),
    ("bias", r"bias$|(^|[._])beta$"),
    ("scale", r"scales?$|(^|[._])gamma$|zero_?points?$"),
    ("embedding", r"embed|\bwte\b|\bwpe\b|lm_head|shared\.weight"),
    ("attention", r"attn|attention|\b[qkvo]_proj\b|\bc_attn\b|query|key|value"),
    ("mlp", r"mlp|ffn|feed_?forward|intermediate|(gate|up|down)_proj|\bfc\d*\b|experts?\b"),
    ("head", r"classifier|head|pooler|score"),
)


def _is_router(shape: tuple[int, ...]) -> bool:
    """Return whether a gate may choose among experts: it has fewer rows than columns.

    The gate of a gated feed-forward layer, which some models call by the same name, has more.
    """
    return len(shape) != 2 or shape[0] < shape[1]


def classify(name: str, dtype: str, shape: tuple[int, ...]) -> str:
    """Return the role of a tensor.

    Parameters
    ----------
    name : str
        As in the checkpoint.
    dtype : str
        A safetensors dtype name.
    shape : tuple of int

    Returns
    -------
    str
        ``opaque`` (a type without known values), ``integer``, ``boolean``, or for floats
        ``optimizer``, ``norm``, ``router``, ``bias``, ``scale``, ``embedding``, ``attention``,
        ``mlp``, ``head``, ``convolution``, ``matrix``, ``vector`` or ``scalar``.
    """
    if dtype == "BOOL":
        return "boolean"
    if numpy_dtype(dtype) is None:
        return "opaque"
    if dtype not in _FLOATS:
        return "integer"
    lowered = name.lower()
    for role, pattern in _PATTERNS:
        if re.search(pattern, lowered) and (role != "router" or _is_router(shape)):
            return role
    return ("scalar", "vector", "matrix")[len(shape)] if len(shape) < 3 else "convolution"
