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
position            tables of positions, rotary frequencies, relative position biases
router              what chooses among experts
norm                weight, bias and statistics of normalisations
scale               factors: layer scale, quantization scales, temperatures
bias                what is added
mask                constant patterns of attention
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
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tensorcomp.dtypes import numpy_dtype
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
_MAX_NAME = 250  # characters looked at: patterns take longer than in proportion
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
        place = Place(name, info.shape, shapes, embeddings)
        yield info, place, matching(numbered_alike(name))


def _normalized(name: str) -> str:
    return name[-_MAX_NAME:].lower().replace("/", ".")


def _by_type(place: Place, dtype: str, rules: MatchingRules) -> RoleDecision | None:
    """Return the role that follows from the type; None where it does not."""
    numpy_type = numpy_dtype(dtype)
    if numpy_type is None:
        return RoleDecision("opaque", f"the values of type {dtype} are unknown")
    if dtype == "F8_E8M0":
        return RoleDecision("scale", "a type of powers of two")
    # Counts of steps are often integers.
    if numpy_type.kind in _KINDS and rules.first_fitting(place).role != "step":
        return RoleDecision(_KINDS[numpy_type.kind], f"type {dtype}")
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
    """Require that a text is a selector.

    Raises
    ------
    PlanError
        If it is not.
    """
    if not is_selector(text):
        raise PlanError(f"expected a role of {', '.join(sorted(SELECTORS))}, got {text!r}")
