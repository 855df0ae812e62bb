"""Fields of codecs, declared together with the values that they may have."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class _Limits(NamedTuple):
    """The values that a field may have."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    choices: tuple[object, ...] = ()

    def hold(self, value: Any) -> bool:
        """Return whether a value of the right type is within the limits."""
        if self.choices:
            return value in self.choices
        return isinstance(value, str) or (self.least <= value <= self.most and value > self.above)

    def __str__(self) -> str:
        above = f" above {self.above:g}" if self.above > -math.inf else ""
        least = f" from {self.least:g}" if self.least > -math.inf else ""
        most = f" to {self.most:.7g}" if self.most < math.inf else ""
        return above + least + most


def argument(
    default: Any = MISSING,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    choices: Iterable[object] = (),
) -> Any:
    """Return a dataclass field whose values are checked by `check_arguments`.

    Parameters
    ----------
    default : object, optional
        A field without one must be given.
    least, most : float
        Both allowed.
    above : float
        Not allowed itself.
    choices : iterable, optional
        All allowed values.
    """
    limits = _Limits(least, most, above, tuple(choices))
    return field(default=default, metadata={"limits": limits})


def check_arguments(codec: DataclassInstance) -> None:
    """Require that each field of a dataclass has its type and keeps its limits.

    Types are ``int``, ``float`` (integers too), ``bool``, ``str``, ``None`` and unions of them;
    fields of other types are not checked. No number may be NaN, infinite or −0.0.

    Raises
    ------
    ValueError
        With the field's name, what it may be, and what it is.
    """
    for name, default, kinds, limits in _checked_fields(type(codec)):
        value = getattr(codec, name)
        if value is default or (value is None and "None" in kinds):
            continue
        if not any(_TYPES[kind][1](value) for kind in kinds) or not limits.hold(value):
            wanted = " or ".join(_TYPES[kind][0] for kind in kinds if kind != "None") + str(limits)
            if limits.choices:
                wanted = f"one of {', '.join(map(str, limits.choices))}"
            raise ValueError(f"expected {name} to be {wanted}, got {value!r}")


@functools.cache
def _checked_fields(
    kind: type[DataclassInstance],
) -> list[tuple[str, object, tuple[str, ...], _Limits]]:
    found = []
    for item in fields(kind):
        text = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", "")
        kinds = tuple(text.split(" | "))
        if set(kinds) <= _TYPES.keys():
            limits = item.metadata.get("limits", _Limits())
            found.append((item.name, item.default, kinds, limits))
    return found


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= sys.float_info.max and (value != 0 or math.copysign(1, value) > 0)


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("an integer", lambda value: type(value) is int),
    "float": ("a finite number", _is_number),
    "bool": ("true or false", lambda value: type(value) is bool),
    "str": ("a text", lambda value: isinstance(value, str)),
    "None": ("null", lambda value: value is None),
}
