"""Whether a state dict is one that this rank can go on from, before anything is taken from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorcomp.errors import GradientError
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.wrappers.phases import PHASES

VERSION = 1


def check(state: Any, link: Link, names: Sequence[str]) -> None:
    """Refuse a state dict that is not one of this model on this rank.

    Raises
    ------
    GradientError
    """
    check_parts(state, list(_PARTS))
    if state["mode"] == "exact" and (state["world"], state["rank"]) != (link.world, link.rank):
        raise GradientError(
            f"the state of rank {state['rank']} of {state['world']} cannot be that of rank "
            f'{link.rank} of {link.world}; save with mode="mean" to go on with other ranks'
        )
    unknown = sorted({*state["states"], *state["means"]} - set(names))
    if unknown:
        raise GradientError(f"the state is of a parameter {unknown[0]!r}, which the model has not")


def check_parts(state: Any, keys: Sequence[str]) -> None:
    """Refuse what has no version, or not all of these parts, or others than `state_dict` gives.

    Raises
    ------
    GradientError
    """
    if not isinstance(state, Mapping) or state.get("version") != VERSION:
        raise GradientError(
            f"this is no state of gradient compression of version {VERSION}; give what "
            "state_dict() returned"
        )
    for key in keys:
        if key not in state or not _PARTS[key](state[key]):
            what = f"{key!r} is {str(state[key])[:60]!r}" if key in state else f"it has no {key!r}"
            raise GradientError(
                f"the state of gradient compression is damaged: {what}; give what state_dict() "
                "returned"
            )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_fields(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        _is_text(name) and isinstance(fields, Mapping) and all(map(_is_text, fields))
        for name, fields in value.items()
    )


_PARTS: Mapping[str, Callable[[Any], bool]] = {
    "mode": lambda value: value in ("exact", "mean"),
    "world": _is_count,
    "rank": _is_count,
    "step": _is_count,
    "compressor": _is_text,
    "phase": lambda value: value in PHASES,
    "metrics": lambda value: _is_list(value) and all(isinstance(x, (int, float)) for x in value),
    "choices": lambda value: (
        isinstance(value, Mapping) and all(map(_is_text, [*value, *value.values()]))
    ),
    "units": lambda value: (
        _is_list(value) and all(_is_list(names) and all(map(_is_text, names)) for names in value)
    ),
    "states": _are_fields,
    "means": _are_fields,
}
