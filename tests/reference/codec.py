"""What a codec is here: a function that reads bytes, registered under the codec's id.

A *serializer* turns the bytes of a `Leaf` into an array. A *transform* puts an array together from
named parts, each decoded by a subtree; it asks its `Parts` for them in the order in which they are
stored. A *filter* turns bytes into bytes. The fields of a codec are the function's further
parameters, in their order, with their defaults.

What a serializer or a transform returns are the elements in row-major order, whatever the shape,
of the array's dtype or of another with the same bits.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

Shape = tuple[int, ...]
Texts = Mapping[str, str]
NO_TEXTS: Texts = MappingProxyType({})


class Leaf(NamedTuple):
    """What a serializer decodes; `shared` is what it shares among the chunks of a tensor.

    `reference` holds the same elements of a base, for the root of a tree whose codec uses them.
    """

    data: bytes
    shape: Shape
    dtype: np.dtype
    shared: bytes
    reference: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


class Parts(Protocol):
    """The parts of a transform; `shared` and `reference` are as for a `Leaf`."""

    shape: Shape
    dtype: np.dtype
    shared: bytes
    reference: np.ndarray | None

    def read(self, name: str, shape: Shape, dtype: np.dtype | type | str) -> np.ndarray:
        """Return the next part; one length may be -1, which the part's elements decide."""


@dataclass(frozen=True)
class Codec:
    """A codec's function, its fields with their defaults, and its parts with their subtrees."""

    kind: str
    decode: Callable[..., Any]
    fields: Mapping[str, Any]
    parts: Texts
    aliases: Texts


CODECS: dict[str, Codec] = {}


def codec(
    kind: str, name: str, parts: Texts = NO_TEXTS, aliases: Texts = NO_TEXTS
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under a codec's id.

    Parameters
    ----------
    kind : {"serializer", "transform", "filter"}
    name : str
    parts : mapping of str to str
        The text of the subtree that codes a part for which a tree's text gives none.
    aliases : mapping of str to str
        Other names of parts that a tree's text may use.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _, *fields = inspect.signature(function).parameters.values()
        defaults = {field.name: field.default for field in fields}
        CODECS[name] = Codec(kind, function, defaults, parts, aliases)
        return function

    return register


def word_of(dtype: np.dtype) -> np.dtype:
    """Return the unsigned integer of a dtype's size: what its bits are seen as."""
    return np.dtype(f"<u{dtype.itemsize}")


def work_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of scales, factors and codebooks: float64 for float64, else float32."""
    return np.dtype("<f8" if dtype == np.float64 else "<f4")


def largest(dtype: np.dtype) -> float:
    """Return the largest finite number of a float dtype."""
    return float(ml_dtypes.finfo(dtype).max)


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round values to a dtype; what would overflow becomes its largest number.

    float64 values are first rounded to float32 if the dtype is neither float64, float32 nor
    float16.
    """
    limit = largest(dtype)
    if limit < largest(values.dtype):
        values = np.clip(values, -limit, limit)
    with np.errstate(all="ignore"):
        return (values if dtype.kind == "f" else values.astype(np.float32)).astype(dtype)


def matrix_shape(shape: Shape) -> tuple[int, int]:
    """Return rows and columns: the first axis × all the others; a vector is one row."""
    size = math.prod(shape)
    rows = shape[0] if len(shape) > 1 else 1
    return (rows, size // rows) if size else (0, 0)
