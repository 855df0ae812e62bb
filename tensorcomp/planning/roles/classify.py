"""What a tensor is for: told from its type, its name, its shape and the tensors beside it.

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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PlanError
from tensorcomp.planning.roles.rules import Neighbours, Place
from tensorcomp.planning.roles.table import RULES, MatchingRules, numbered_alike

if TYPE_CHECKING:
    from tensorcomp.checkpoints.base import TensorInfo

_GROUPS = {"linear": ("attention", "mlp", "recurrent", "head", "matrix")}
_LONGEST = 250  # characters looked at: patterns take longer than in proportion
_BY_TYPE = ("integer", "boolean", "complex", "opaque")
_KINDS = {"i": "integer", "u": "integer", "b": "boolean", "c": "complex"}

ROLES: tuple[str, ...] = (*dict.fromkeys(rule.role for rule in RULES), *_BY_TYPE)
SELECTORS: tuple[str, ...] = (
    *dict.fromkeys(above for role in ROLES for above in (role.partition(".")[0], role)),
    *_GROUPS,
    "all",
)


@dataclass(frozen=True)
class RoleDecision:
    """What a tensor is for, and how that is known.

    Parameters
    ----------
    role : str
    why : str
        The rule, in a few words.
    transposed : bool
        Whether rows of the matrix are inputs and columns outputs, as in GPT-2 and in Flax; False
        where nothing tells.
    """

    role: str
    why: str = ""
    transposed: bool = False


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
    place = Place(_spelled(name), shape)
    return _role(place, dtype, MatchingRules(place.name))


def classify_all(infos: Iterable[TensorInfo]) -> dict[str, RoleDecision]:
    """Return the role of every tensor of a checkpoint; a tensor's neighbours help to tell it.

    Parameters
    ----------
    infos : iterable of TensorInfo

    Returns
    -------
    dict of str to RoleDecision
        By name, in the order of `infos`.
    """
    tensors = list(_placed(infos))
    columns_out = any(_is_transposed(place) for _, place, _ in tensors if _is_conv1d(place))
    decisions = {}
    for info, place, rules in tensors:
        found = _role_of_type(place, info.dtype)
        if found is None:
            rule = rules.first_fitting(place)
            found = rule.role, rule.why_in(place.name)
        square = len(place.shape) == 2 and place.shape[0] == place.shape[1]
        transposed = _is_transposed(place) or (columns_out and square and _is_conv1d(place))
        decisions[info.name] = RoleDecision(*found, transposed)
    return decisions


def roles_of(infos: Iterable[TensorInfo]) -> dict[str, str]:
    """Return the role of every tensor of a checkpoint, as `classify_all` does, and nothing else.

    Parameters
    ----------
    infos : iterable of TensorInfo

    Returns
    -------
    dict of str to str
        By name, in the order of `infos`.
    """
    return {info.name: _role(place, info.dtype, rules) for info, place, rules in _placed(infos)}


def _placed(infos: Iterable[TensorInfo]) -> Iterator[tuple[TensorInfo, Place, MatchingRules]]:
    """Yield every tensor, its place, and the rules whose pattern is in its name."""
    tensors = [(_spelled(info.name), info) for info in infos]
    shapes = {name: info.shape for name, info in tensors}
    matching = functools.cache(MatchingRules)  # layers differ in numbers only

    def embeddings() -> Iterator[tuple[int, ...]]:
        for name, shape in shapes.items():
            rule = matching(numbered_alike(name)).first_fitting(Place(name, shape))
            if rule.role == "embedding":
                yield shape

    neighbours = Neighbours(shapes, embeddings)
    for name, info in tensors:
        yield info, Place(name, info.shape, neighbours), matching(numbered_alike(name))


def _spelled(name: str) -> str:
    return name[-_LONGEST:].lower().replace("/", ".")


def _role(place: Place, dtype: str, rules: MatchingRules) -> str:
    found = _role_of_type(place, dtype)
    return rules.first_fitting(place).role if found is None else found[0]


def _role_of_type(place: Place, dtype: str) -> tuple[str, str] | None:
    """Return the role that follows from the type, and why; None where it does not."""
    numpy_type = numpy_dtype(dtype)
    if numpy_type is None:
        return "opaque", f"{dtype} is no type with known values"
    if numpy_type.kind in _KINDS and not _STEP.holds(place):
        return _KINDS[numpy_type.kind], f"type {dtype}"
    if dtype == "F8_E8M0":
        return "scale", "a type of powers of two"
    return None


_STEP = RULES[0]  # counts of steps are often integers


def _is_conv1d(place: Place) -> bool:
    """Return whether a tensor bears the name of a layer that GPT-2 stores as (in, out)."""
    return place.name.endswith(("c_attn.weight", "q_attn.weight", "c_fc.weight", "c_proj.weight"))


def _is_transposed(place: Place) -> bool:
    """Return whether a matrix's name, its bias or its shape shows that its columns are outputs."""
    if len(place.shape) != 2:
        return False
    rows, columns = place.shape
    if place.name.endswith((".kernel", "text_projection", "visual.proj")):
        return True
    bias = place.beside("bias") if place.name.endswith("weight") else None
    if bias is not None and rows != columns:
        return bias == (columns,)
    return columns == 3 * rows and place.name.endswith("c_attn.weight")


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
    """Refuse a text that is no selector.

    Raises
    ------
    PlanError
    """
    if not is_selector(text):
        raise PlanError(f"no role is called {text!r}; known are {', '.join(sorted(SELECTORS))}")
