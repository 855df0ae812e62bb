"""Classify tensors by role, from their type, name, shape and neighbours.

The roles, and the selectors that stand for several of them in profiles and on the command line:

==================  ==============================================================================
role                what it is
==================  ==============================================================================
attention.q k v o   projections to queries, keys and values, and back; attention.qkv: several fused
attention           other matrices of attention modules
mlp                 matrices of feed-forward layers, experts included
conv                kernels of convolutions, patch embeddings included
recurrent           matrices of LSTM, GRU and RNN cells
head                output layers: lm_head, classifiers, pooler, projections out of the model
embedding           tables of tokens, and single learned tokens
position            learned tables of positions, relative position biases
table               computed: rotary tables, sinusoids, windows, filter banks, noise schedules
codebook            entries of vector quantizers, and their statistics
router              what chooses among experts
norm                weight, bias and statistics of normalisations
scale               factors: layer scale, quantization scales, decays of recurrences
direction           v of weight normalisation, w = g · v / ‖v‖: NaN where a row is zero
bias                what is added
mask                what is kept of weights, patterns of attention
moment.first        running means of an optimizer: exp_avg, momentum_buffer
moment.second       running means of squares: exp_avg_sq, square_avg
step                counts of steps
optimizer           other state of an optimizer
matrix, vector      two axes, one, none: no rule knows the name
scalar, other
integer, boolean    by type, whatever the name
complex, opaque
==================  ==============================================================================

==================  ==============================================================================
selector            roles
==================  ==============================================================================
any role            itself and those below it: attention selects attention.q
linear              attention, mlp, recurrent, head and matrix
all                 every role
==================  ==============================================================================

Tensors are also selected by name and by pattern of names. ``!`` before a selector stands for all
but these. Of several selectors, those with ``!`` leave out what the others take; alone, they leave
it out of what is usual.

Masks of any name, and sinusoids in tables named like learned ones, are known by their values.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.rounding import is_real
from tensorcomp.dtypes import block_size, numpy_dtype
from tensorcomp.errors import PlanError
from tensorcomp.planning.roles.rules import (
    RULES,
    MatchingRules,
    Place,
    Shape,
    numbered_alike,
)

if TYPE_CHECKING:
    from tensorcomp.checkpoints.base import TensorInfo

_GROUPS = {"linear": ("attention", "mlp", "recurrent", "head", "matrix")}
NEVER_PRUNED = ("mask", "codebook")
USUAL = ("linear", "conv")  # selectors of what is pruned by default
_MAX_NAME = 250  # characters looked at: patterns take longer than in proportion
BUT, ORIGINAL = "!", "_orig"
_SLICE = re.compile(r"\[[\d:, ]+\]$")
_PIECE = 1 << 20  # elements looked at together
_LOOK, _ROWS = 64, 4  # elements, and rows, that tell most tensors
_FEWEST = 16  # of 0 and 1 that are no chance
_UNNAMED = ("position", "embedding", "matrix", "complex", "other")  # roles of sinusoids by name
_ROUNDING = 0.02  # relative; bfloat16 has 8 bits
_KINDS = {"i": "integer", "u": "integer", "b": "boolean", "c": "complex"}

ROLES: tuple[str, ...] = tuple(
    dict.fromkeys([*(rule.role for rule in RULES), *_KINDS.values(), "opaque"])
)
SELECTORS: tuple[str, ...] = (
    *dict.fromkeys(above for role in ROLES for above in (role.partition(".")[0], role)),
    *_GROUPS,
    "all",
)


class RoleDecision(NamedTuple):
    """Role of a tensor, and how it is known: the rule, in a few words."""

    role: str
    reason: str = ""


def classify(name: str, dtype: str, shape: tuple[int, ...]) -> str:
    """Return the role of a tensor of which nothing else is known.

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
        One of `ROLES`.
    """
    place = Place(_normalized(name), shape)
    rules = MatchingRules(place.name)
    return (_by_type(place, dtype, rules) or rules.first_fitting(place)).role


def classify_all(infos: Iterable[TensorInfo]) -> dict[str, RoleDecision]:
    """Return the role of every tensor, which may depend on its neighbours.

    Parameters
    ----------
    infos : iterable of TensorInfo

    Returns
    -------
    dict of str to RoleDecision
        By name, in the order of `infos`.
    """
    decisions = {}
    for info, place, rules in _placed(infos):
        found = _by_type(place, info.dtype, rules)
        if found is None:
            rule = rules.first_fitting(place)
            found = RoleDecision(rule.role, rule.reason_in(place.name))
        decisions[info.name] = found
    return decisions


def roles_of(infos: Iterable[TensorInfo]) -> dict[str, str]:
    """Return the role of every tensor, as `classify_all` does, without reasons."""
    return {
        info.name: (_by_type(place, info.dtype, rules) or rules.first_fitting(place)).role
        for info, place, rules in _placed(infos)
    }


def _placed(infos: Iterable[TensorInfo]) -> Iterator[tuple[TensorInfo, Place, MatchingRules]]:
    """Yield every tensor, its place, and the rules whose pattern is in its name."""
    tensors = [(_normalized(info.name), info) for info in infos]
    shapes = {name: info.shape for name, info in tensors}
    matching = functools.cache(MatchingRules)  # layers differ in numbers only

    @functools.cache
    def embeddings() -> frozenset[Shape]:
        places = (Place(name, shape) for name, shape in shapes.items())
        return frozenset(
            place.shape
            for place in places
            if matching(numbered_alike(place.name)).first_fitting(place).role == "embedding"
        )

    for name, info in tensors:
        if mask_of(name) in shapes:
            name = name.removesuffix(ORIGINAL)
        place = Place(name, info.shape, shapes, embeddings)
        yield info, place, matching(numbered_alike(name))


def _normalized(name: str) -> str:
    """Return a name as rules take it: of a part of a tensor, that of the tensor."""
    return _SLICE.sub("", name[-_MAX_NAME:]).lower().replace("/", ".")


def _by_type(place: Place, dtype: str, rules: MatchingRules) -> RoleDecision | None:
    """Return the role that follows from the type; None where it does not."""
    numpy_type = numpy_dtype(dtype)
    if numpy_type is None:
        what = f"blocks of {dtype}" if block_size(dtype) else f"type {dtype}, which is unknown"
        return RoleDecision("opaque", what)
    if dtype == "F8_E8M0":
        return RoleDecision("scale", "a type of powers of two")
    kind = numpy_type.kind
    # Counts of steps are often integers, and rotations complex.
    if kind in _KINDS and rules.first_fitting(place).role != {"c": "table"}.get(kind, "step"):
        return RoleDecision(_KINDS[kind], f"type {dtype}")
    return None


def matches_role(selector: str, role: str) -> bool:
    """Return whether a selector of the table above selects a role.

    Examples
    --------
    >>> matches_role("attention", "attention.q"), matches_role("linear", "mlp")
    (True, True)
    """
    if selector == "all":
        return True
    wanted = _GROUPS.get(selector, (selector,))
    return any(role == one or role.startswith(f"{one}.") for one in wanted)


def is_selector(text: str) -> bool:
    """Return whether a text is a selector, whatever the checkpoint."""
    return text in SELECTORS


def check_selector(text: str) -> None:
    """Require that a text is a selector of roles, or one of all but these.

    Raises
    ------
    PlanError
        If it is not.
    """
    if not is_selector(text.removeprefix(BUT)):
        raise PlanError(f"expected a role of {', '.join(sorted(SELECTORS))}, got {text!r}")


def selects(selector: str, name: str, role: str) -> bool:
    """Return whether one selector is for a tensor."""
    if selector.startswith(BUT):
        return not selects(selector[1:], name, role)
    if selector == name:
        return True
    if is_selector(selector):
        return matches_role(selector, role)
    return fnmatch.fnmatchcase(name, selector)


def taken_and_left_out(
    selectors: Sequence[str], usual: Sequence[str] = ("all",)
) -> tuple[list[str], list[str]]:
    """Return the selectors of what is taken, and of what is left out of it.

    Examples
    --------
    >>> taken_and_left_out(["!lm_head*"], usual=["linear"])
    (['linear'], ['lm_head*'])
    """
    but = [selector.removeprefix(BUT) for selector in selectors if selector.startswith(BUT)]
    taken = [selector for selector in selectors if not selector.startswith(BUT)]
    return (taken or list(usual if but else ())), but


@functools.lru_cache(maxsize=1024)
def have_role(selectors: tuple[str, ...], role: str) -> bool:
    """Return whether selectors of roles take a role."""
    taken, but = taken_and_left_out(selectors)
    with_role, without = (any(matches_role(one, role) for one in some) for some in (taken, but))
    return with_role and not without


def mask_of(name: str) -> str:
    """Return the name of the mask of a weight that torch prunes; none of another.

    The weight in use is ``weight_orig`` × ``weight_mask``.
    """
    return f"{name.removesuffix(ORIGINAL)}_mask" if name.endswith(ORIGINAL) else ""


@functools.cache
def _one(dtype: np.dtype) -> np.ndarray:
    return as_words(np.ones(1, dtype))


def is_mask(array: np.ndarray) -> bool:
    """Return whether at least 16 floats are all +0 or 1, some of each.

    Examples
    --------
    >>> is_mask(np.eye(4)), is_mask(np.eye(4) / 2)
    (True, False)
    """
    if not is_real(array.dtype) or array.size < _FEWEST:
        return False
    words = as_words(array).reshape(-1)
    one = _one(array.dtype)
    look = words[:: words.size // _LOOK + 1]
    if ((look != 0) & (look != one)).any():
        return False
    ones = 0
    for start in range(0, words.size, _PIECE):
        piece = words[start : start + _PIECE]
        found = int(np.count_nonzero(piece == one))
        if found + np.count_nonzero(piece == 0) < piece.size:
            return False
        ones += found
    return 0 < ones < words.size


def protected_by_value(array: np.ndarray, role: str) -> str:
    """Return why a tensor is to be kept exactly whatever its name; empty if not."""
    if is_mask(array):
        return "a mask: only 0 and 1"
    if role in _UNNAMED and _is_sinusoidal(array):
        return "computed: sines and cosines"
    return ""


def _is_sinusoidal(array: np.ndarray) -> bool:
    """Return whether the squares of every row add up to half its length.

    Those of sin x and cos x add up to 1 in any order; rows of zeros are of padding.
    """
    if array.ndim > 2 and array.shape[-1] == 2:  # pairs, as complex numbers are coded
        array = array.reshape(*array.shape[:-2], -1)
    if array.ndim < 2 or array.shape[-1] < 4 or not is_real(array.dtype):
        return False
    rows = array.reshape(-1, array.shape[-1])
    for some in (rows[:: len(rows) // _ROWS + 1], rows):
        with np.errstate(over="ignore", invalid="ignore"):
            wide = some.astype(np.float32)
            parts = 2 * np.square(wide).mean(axis=1)
        parts = parts[parts != 0]
        near = np.abs(parts - 1) <= _ROUNDING  # not of NaN
        if not parts.size or not near.all() or np.abs(wide).max() > 1.01:
            return False
    return True
