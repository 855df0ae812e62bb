"""Match tensors by name, shape and neighbours with rules of ``rules.json``.

The first rule that fits gives a tensor's role. A rule has a regular expression, searched for in the
name in lower case, with dots for slashes: ``words`` are whole pieces between dots, ``in_attention``
such pieces of an attention module, and blanks in expressions do not count. ``example`` is a tensor
that the rule decides, 64 × 64 if it has no other shape. Names are those of Hugging Face
transformers, timm, torchvision, plain PyTorch and its optimizers.

The rules are JSON, and their expressions compiled when they are needed: reading TOML and compiling
all of them would take a fifth of the time of compressing a small file.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

Shape: TypeAlias = tuple[int, ...]

_PATTERNS = {
    "pattern": "{}",
    "words": r"(?:^|\.)(?:{})(?=\.|$)",
    "in_attention": r"(?:attn|attention|(?:^|\.)att)\w*\.(?:.*\.)?(?:{})(?=\.|$)",
}
_LAYER_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


class Place(NamedTuple):
    """Name and shape of a tensor, and those around it if they are known.

    Parameters
    ----------
    name : str
        In lower case, with dots for slashes.
    shape : tuple of int
    shapes : mapping of str to tuple of int
        Shapes of all tensors of the checkpoint, by such names.
    embeddings : callable
        Returns the shapes of the embeddings.
    """

    name: str
    shape: Shape
    shapes: Mapping[str, Shape] = MappingProxyType({})
    embeddings: Callable[[], Collection[Shape]] = frozenset

    def beside(self, leaf: str) -> Shape | None:
        """Return the shape of another tensor of the module, None if there is none."""
        return self.shapes.get(self.name[: self.name.rfind(".") + 1] + leaf)

    def near(self, path: str) -> Shape | None:
        """Return the shape of a tensor of the outer module, None if there is none."""
        module = self.name.rpartition(".")[0]
        return self.shapes.get(module[: module.rfind(".") + 1] + path)


def _weight_and_bias_alike(place: Place) -> bool:
    """Return whether the module's weight and bias are vectors of one size."""
    return len(place.shape) == 1 and place.beside("weight") == place.beside("bias") == place.shape


def _fewer_rows_than_columns(place: Place) -> bool:
    """Return whether rows are experts, and not the outputs of a gated layer."""
    gated = any(place.near(f"{name}.weight") == place.shape for name in ("up", "up_proj"))
    return len(place.shape) == 2 and place.shape[0] < place.shape[1] and not gated


# The conditions of `rules.json`.
_CONDITIONS: dict[str, Callable[[Place], bool]] = {
    "always": lambda place: True,
    "no axes": lambda place: not place.shape,
    "one axis": lambda place: len(place.shape) == 1,
    "three axes": lambda place: len(place.shape) == 3,
    "four axes or more": lambda place: len(place.shape) > 3,
    "matrix": lambda place: len(place.shape) == 2,
    # A matrix or a stack of them, as of fused experts.
    "matrices": lambda place: len(place.shape) in (2, 3),
    "one element": lambda place: math.prod(place.shape) == 1,
    # As (1, 64, 1).
    "vector": lambda place: bool(place.shape) and sum(size != 1 for size in place.shape) <= 1,
    # A pattern over pairs of tokens, or the number that fills it.
    "pattern over pairs": lambda place: len(place.shape) in (0, 3, 4),
    # The last axis is time.
    "short kernel": lambda place: len(place.shape) == 3 and place.shape[2] <= 32,
    "fewer rows than columns": _fewer_rows_than_columns,
    "weight and bias alike": _weight_and_bias_alike,
    "beside running_mean": lambda place: place.beside("running_mean") is not None,
    "beside weight_orig": lambda place: place.beside("weight_orig") is not None,
    "beside in_proj_weight": lambda place: place.near("in_proj_weight") is not None,
    # No other matrix has an embedding's shape by chance.
    "like an embedding": lambda place: (
        len(set(place.shape)) == 2 and place.shape in place.embeddings()
    ),
}


@dataclass(frozen=True)
class RoleRule:
    """A rule of the table.

    Parameters
    ----------
    role : str
    kind : str
        Meaning of the expression: one of `_PATTERNS`.
    expression : str
        Searched for in the name.
    example : mapping of str to object
        A tensor that this rule decides: its ``name``, and perhaps its ``shape`` and tensors
        ``around`` it.
    when : callable
        A condition that must hold besides.
    reason : str
        The reason in a few words; by default, which piece of the name was found.
    """

    role: str
    kind: str
    expression: str
    example: Mapping[str, Any]
    when: Callable[[Place], bool]
    reason: str = ""

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression."""
        return re.compile(_PATTERNS[self.kind].format(self.expression), re.VERBOSE)

    def is_in(self, name: str) -> bool:
        """Return whether the pattern is in a name."""
        return self.pattern.search(name) is not None

    def reason_in(self, name: str) -> str:
        """Return why this rule fits a name that holds its pattern."""
        found = self.pattern.search(name)
        return self.reason or f"name holds {found[0].strip('._')!r}" if found else ""


class MatchingRules:
    """Rules whose pattern is in a name, searched only as far as needed.

    Parameters
    ----------
    name : str
    """

    def __init__(self, name: str) -> None:
        self._found: list[RoleRule] = []
        self._more = (rule for rule in RULES if rule.is_in(name))

    def first_fitting(self, place: Place) -> RoleRule:
        """Return the first rule that fits a place of this, or a like-numbered, name."""
        for number in itertools.count():  # a condition may ask for another place of this name
            if number == len(self._found):
                self._found.append(next(self._more))
            rule = self._found[number]
            if rule.when(place):
                return rule
        raise AssertionError("the last rule fits every tensor")


def numbered_alike(name: str) -> str:
    """Return a name with one number for all layers: no pattern depends on it."""
    return _LAYER_NUMBER.sub("0", name)


def _load_rules() -> Iterator[RoleRule]:
    text = Path(__file__).with_name("rules.json").read_text("utf-8")
    for entry in itertools.chain(*json.loads(text).values()):
        (kind,) = _PATTERNS.keys() & entry.keys()
        when = _CONDITIONS[entry.pop("when", "always")]
        yield RoleRule(kind=kind, expression=entry.pop(kind), when=when, **entry)


RULES = tuple(_load_rules())
