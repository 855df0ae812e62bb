"""What the lines of the table of roles are made of: a pattern, a condition, an example."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Shape = tuple[int, ...]


class Neighbours:
    """The shapes of all tensors of a checkpoint, by name in lower case, with dots for slashes.

    Parameters
    ----------
    shapes : mapping of str to tuple of int
    find_embeddings : callable, optional
        Gives the shapes of its embeddings, and is asked once, if at all.
    """

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        find_embeddings: Callable[[], Iterable[Shape]] = tuple,
    ) -> None:
        self.shapes = shapes
        self._find_embeddings = find_embeddings

    @functools.cached_property
    def embeddings(self) -> frozenset[Shape]:
        """The shapes of the embeddings."""
        return frozenset(self._find_embeddings())


_NOBODY = Neighbours({})


@dataclass(slots=True)  # as `TensorRecord`: there is one for each tensor
class Place:
    """A tensor as the rules see it: its name and shape, and the tensors around it.

    Parameters
    ----------
    name : str
        In lower case, with dots for slashes.
    shape : tuple of int
    neighbours : Neighbours, optional
        None, if only this tensor is known.
    """

    name: str
    shape: Shape
    neighbours: Neighbours = _NOBODY

    def beside(self, leaf: str) -> Shape | None:
        """Return the shape of another tensor of the same module, None if there is none."""
        return self.neighbours.shapes.get(self.name[: self.name.rfind(".") + 1] + leaf)

    def near(self, path: str) -> Shape | None:
        """Return the shape of a tensor of the module around this one's, None if there is none."""
        module = self.name.rpartition(".")[0]
        return self.neighbours.shapes.get(module[: module.rfind(".") + 1] + path)


@dataclass(frozen=True)
class RoleRule:
    """One line of the table.

    Parameters
    ----------
    role : str
    pattern : str
        Searched for in the name.
    example : str
        A name that this line decides.
    shape : tuple of int, optional
        The example's.
    fits : callable, optional
        What must hold besides.
    why : str, optional
        The reason in a few words; by default, which piece of the name was found.
    around : mapping of str to tuple of int, optional
        Tensors that the example needs around it.
    """

    role: str
    pattern: str
    example: str
    shape: Shape = (64, 64)
    fits: Callable[[Place], bool] | None = None
    why: str = ""
    around: Mapping[str, Shape] = field(default_factory=dict)

    def is_in(self, name: str) -> bool:
        """Return whether the pattern is in a name."""
        return self._compiled.search(name) is not None

    def holds(self, place: Place) -> bool:
        """Return whether this line fits."""
        return (self.fits is None or self.fits(place)) and self.is_in(place.name)

    def why_in(self, name: str) -> str:
        """Return why this line fits a name that holds its pattern."""
        found = self._compiled.search(name)
        assert found is not None
        return self.why or f"name holds {found.group().strip('._')!r}"

    @functools.cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


def part(words: str) -> str:
    """Return a pattern for one of these words as a whole piece between dots."""
    return rf"(?:^|\.)(?:{words})(?=\.|$)"


def in_attention(words: str) -> str:
    """Return a pattern for a piece that means something in an attention module only."""
    return rf"(?:attn|attention|(?:^|\.)att)\w*\.(?:.*\.)?(?:{words})(?=\.|$)"


def one_element(place: Place) -> bool:
    """Return whether there is one element."""
    return math.prod(place.shape) == 1


def vector(place: Place) -> bool:
    """Return whether one axis is longer than 1 at most, as in (1, 64, 1)."""
    return len(place.shape) > 0 and sum(size != 1 for size in place.shape) <= 1


def matrix(place: Place) -> bool:
    """Return whether there are two axes."""
    return len(place.shape) == 2


def matrices(place: Place) -> bool:
    """Return whether this is a matrix or a stack of them, as of fused experts."""
    return len(place.shape) in (2, 3)


def pattern_over_pairs(place: Place) -> bool:
    """Return whether this may be a pattern over pairs of tokens, or what fills it."""
    return len(place.shape) in (0, 3, 4)


def one_axis(place: Place) -> bool:
    """Return whether there is one axis."""
    return len(place.shape) == 1


def beside_running_mean(place: Place) -> bool:
    """Return whether the module keeps statistics of a batch."""
    return place.beside("running_mean") is not None


def weight_and_bias_alike(place: Place) -> bool:
    """Return whether the module's weight and bias are vectors of one size."""
    return one_axis(place) and place.beside("weight") == place.beside("bias") == place.shape


def chooses(place: Place) -> bool:
    """Return whether there are fewer rows than columns: experts, and no gated layer's gate."""
    gated = any(place.near(f"{name}.weight") == place.shape for name in ("up", "up_proj"))
    return matrix(place) and place.shape[0] < place.shape[1] and not gated


def kernel(place: Place) -> bool:
    """Return whether there are four axes or more."""
    return len(place.shape) > 3


def short_kernel(place: Place) -> bool:
    """Return whether there are three axes, the last no longer than a kernel in time."""
    return len(place.shape) == 3 and place.shape[2] <= 32


def three_axes(place: Place) -> bool:
    """Return whether there are three axes."""
    return len(place.shape) == 3


def of_fused_attention(place: Place) -> bool:
    """Return whether the module around is a `torch.nn.MultiheadAttention`."""
    return place.near("in_proj_weight") is not None


def like_an_embedding(place: Place) -> bool:
    """Return whether an embedding has the same shape, which no other matrix has by chance."""
    return len(set(place.shape)) == 2 and place.shape in place.neighbours.embeddings
