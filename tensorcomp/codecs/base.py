"""The three kinds of codec and the contract of each.

==============  =============================  ======================================
kind            from → to                      stands
==============  =============================  ======================================
`Transform`     array → named parts (arrays)   anywhere an array comes in
`Serializer`    array → bytes                  at the leaves
`Filter`        bytes → bytes                  behind a serializer
==============  =============================  ======================================

A codec is a frozen dataclass: its fields are its whole configuration, JSON values only. Two codecs
with the same id and fields are interchangeable for ever: their bytes decode each other's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from tensorcomp.codecs.arguments import check_arguments
from tensorcomp.codecs.strategy import Strategy

if TYPE_CHECKING:
    from tensorcomp.codecs.feedback import Matrix, Rounding

# What a serializer gives: byte pieces in order, joined once, where the payload is written.
Pieces: TypeAlias = "list[np.ndarray | bytes | memoryview]"


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of an array that is not there yet.

    Parameters
    ----------
    shape : tuple of int
        At most one length is -1, which stands for a length that the data decide.
    dtype : numpy.dtype
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.size * self.dtype.itemsize


def spec_of(array: np.ndarray) -> ArraySpec:
    """Return the shape and dtype of an array."""
    return ArraySpec(array.shape, array.dtype)


class Codec(ABC):
    """Base class of the three kinds; not subclassed directly.

    The class attributes are traits: what planning, benchmarks and gradient compression know of a
    codec. Nothing outside of a codec's own module compares its id.

    Attributes
    ----------
    id : str
        The name in a tree's text, a Python identifier in lower case.
    lossless : bool
        Whether ``decode(encode(x))`` restores every bit.
    templates : tuple of str
        Trees that every planner tries, beside those that it knows: a lossless codec's on tensors
        that must be exact, a lossy one's on those that may lose something. ``$step`` stands for a
        step that the planner finds.
    strategies : tuple of Strategy
        What `tensorcomp bench` measures.
    elementwise : bool
        Whether it rounds each element of an array, so that it may code what a mask left over.
    zeros : {"changed", "kept", "apart", "passed on", "lost"}
        What decoding makes of an element that is zero: perhaps something else, a zero, a zero
        whatever its part ``values`` loses, what its part ``values`` makes of it, or something else
        wherever other elements are not zero.
    for_zeros : bool
        Whether it is lossless and made for arrays of which many elements are zero.
    for_any_array : bool
        Whether it is lossless and suits arrays without any structure.
    for_outliers : bool
        Whether it is made for arrays whose norm a few elements decide, which a sample may lack.
    may_refuse : bool
        Whether it may refuse a chunk of a tensor of which it took a sample.
    off_wire : str
        Why no gradient can be coded by it; empty if it can.
    codes_positions : bool
        Whether what it codes are masks or positions: on the wire it is not the root of a tree.
    long_chunks : bool
        Whether a tensor's chunks should be as long as the format allows, because each pays for
        something that depends little on its length.
    needs_feedback : bool
        Whether gradients need error feedback where it loses something, since much is lost in one
        direction.
    uses_reference : bool
        Whether it codes an array given the same elements of a base: as the root of a tree, its
        `fit`, `encode` and `decode` take a keyword ``reference``, an array of the same shape and
        dtype or None.
    since_format : int
        First version of the file format whose readers have it, where that is above 9.
    part_aliases : mapping of str to str
        Other names of parts that a tree's text may use.
    is_transform, is_filter : bool
        Whether it is one; `isinstance` takes long for abstract classes.
    """

    id: ClassVar[str]
    lossless: ClassVar[bool] = True
    templates: ClassVar[tuple[str, ...]] = ()
    strategies: ClassVar[tuple[Strategy, ...]] = ()
    elementwise: ClassVar[bool] = False
    zeros: ClassVar[str] = "changed"
    for_zeros: ClassVar[bool] = False
    for_any_array: ClassVar[bool] = False
    for_outliers: ClassVar[bool] = False
    may_refuse: ClassVar[bool] = False
    off_wire: ClassVar[str] = ""
    codes_positions: ClassVar[bool] = False
    long_chunks: ClassVar[bool] = False
    needs_feedback: ClassVar[bool] = True
    uses_reference: ClassVar[bool] = False
    since_format: ClassVar[int] = 1
    part_aliases: ClassVar[Mapping[str, str]] = {}
    is_transform: ClassVar[bool] = False
    is_filter: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_arguments(self)  # type: ignore[arg-type]  # subclasses are dataclasses

    def is_promising(self, sample: np.ndarray, rows: int) -> bool:
        """Return whether a tree of this root may be worth a trial on a tensor.

        A quick look that takes far less time than a trial.

        Parameters
        ----------
        sample : numpy.ndarray
            Some rows of the tensor, evenly spaced.
        rows : int
            Those of the whole tensor.
        """
        return True

    def sample_size(self, columns: int) -> int:
        """Return how many elements of a matrix a sample needs.

        Of fewer the sample would not show what this codec does.
        """
        return 0

    def config(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        With the id they are the codec's whole identity.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def shares(self, spec: ArraySpec) -> bool:
        """Return whether chunks share what `fit` learns.

        The spec is that of a sample of the tensor's rows.
        """
        return False

    def fit(self, array: np.ndarray) -> bytes:
        """Return what all chunks of a tensor share.

        It is learned from the tensor or a sample of it.
        """
        return b""

    def per_chunk(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> list[Codec]:
        """Return the codecs that encode the chunks of a tensor.

        This codec decodes what they give.

        Asked of the root of a tree only, before the chunks ``array[start:stop]`` are encoded. A
        codec that must see the whole tensor, to select among all its elements say, says here what
        that means for each chunk.
        """
        return [self] * len(bounds)

    def rounding(self, matrix: Matrix) -> Rounding | None:
        """Return how columns are rounded in turn; None if they cannot be.

        What it rounds to, `encode` codes without further loss.
        """
        return None


class Transform(Codec):
    """Codec that splits an array into named parts.

    Each part is an array that a subtree codes further.

    Attributes
    ----------
    default_parts : mapping of str to str
        The text of the subtree that codes a part for which none is given.
    """

    is_transform: ClassVar[bool] = True
    may_refuse: ClassVar[bool] = True
    default_parts: ClassVar[Mapping[str, str]]

    @abstractmethod
    def parts(self, spec: ArraySpec) -> Mapping[str, ArraySpec]:
        """Return the spec of each part from the input's spec, in stored order.

        A length that the data decide is -1: one axis of a part at most. It is 0 where the part's
        other axes have no elements, and the part never has more elements than the input.
        """

    @abstractmethod
    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return the parts of a C-contiguous array.

        Raises
        ------
        NotRepresentable
            If this array cannot be represented exactly by a lossless transform.
        """

    @abstractmethod
    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out`, a C-contiguous array of the input's spec, from its parts.

        Raises
        ------
        CodecError
            If the parts contradict each other or the spec.
        """


class Serializer(Codec):
    """Codec that turns an array of any dtype into bytes.

    It is not asked for arrays without elements.
    """

    @abstractmethod
    def encode(self, array: np.ndarray, shared: bytes = b"") -> Pieces:
        """Return the bytes of a C-contiguous array, in pieces.

        A piece is a flat uint8 array or bytes.

        Raises
        ------
        NotRepresentable
            If this codec has no exact code for the array.
        """

    @abstractmethod
    def decode(self, data: np.ndarray, out: np.ndarray, shared: bytes = b"") -> None:
        """Fill `out` from the bytes, a flat uint8 array.

        `out` is C-contiguous and has the input's spec.

        Raises
        ------
        CodecError
            If the bytes are not what `encode` gives for such an array.
        """


class Filter(Codec):
    """Codec that turns bytes into fewer bytes."""

    is_filter: ClassVar[bool] = True

    @abstractmethod
    def encode(self, data: bytes) -> bytes:
        """Return the filtered bytes."""

    @abstractmethod
    def decode(self, data: np.ndarray, limit: int) -> bytes:
        """Return the original bytes; never allocate more than `limit` of them.

        Raises
        ------
        CodecError
            If the data are damaged or hold more than `limit` bytes.
        """
