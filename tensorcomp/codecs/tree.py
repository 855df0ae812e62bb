"""The tree of codecs, and the data that the chunks of a tensor share."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from tensorcomp._expressions import changed_fields, format_call
from tensorcomp.codecs.base import ArraySpec, Codec, Serializer, Transform, spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.errors import CodecError, PlanError

_U64 = struct.Struct("<Q")
FILTER = "bytes"  # the name of the only part that a serializer has
_NO_ELEMENTS = ArraySpec((0,), np.dtype(np.uint8))

Shared: TypeAlias = "tuple[bytes, tuple[Shared, ...]]"


@dataclass(frozen=True)
class Node:
    """One codec and the subtrees that code its parts.

    Parameters
    ----------
    codec : Codec
    children : tuple of (str, Node)
        Part name and subtree: a transform has one for each of its parts, in their order; a
        serializer has at most one filter, under the name ``bytes``.

    Raises
    ------
    PlanError
        If a codec stands where its kind may not.
    """

    codec: Codec
    children: tuple[tuple[str, Node], ...] = ()

    def __post_init__(self) -> None:
        name, names = self.codec.id, [part for part, _ in self.children]
        filters = {part: node.codec.id for part, node in self.children if node.codec.is_filter}
        if self.codec.is_transform:
            for part, found in filters.items():
                raise PlanError(
                    f"{name}: expected a transform or a serializer for part {part!r}, an array, "
                    f"got the filter {found!r}; put it behind a serializer: raw(bytes={found})"
                )
            expected = list(cast(Transform, self.codec).parts(_NO_ELEMENTS))
            if names != expected:
                raise PlanError(f"{name}: expected the parts {expected}, got {names}")
        elif self.codec.is_filter and names:
            raise PlanError(f"{name}: expected no parts, as it filters bytes, got {names[0]!r}")
        elif names and not names == list(filters) == [FILTER]:
            given = ", ".join(f"{part}={node.codec.id}" for part, node in self.children)
            raise PlanError(
                f"{name}: expected at most one part, 'bytes', a filter such as zstd, got {given}"
            )

    def walk(self) -> Iterator[Codec]:
        """Yield every codec of the tree, parents first."""
        yield self.codec
        for _, child in self.children:
            yield from child.walk()

    @functools.cached_property
    def lossless(self) -> bool:
        """Whether every codec of the tree is."""
        return self.codec.lossless and all(child.lossless for _, child in self.children)

    @functools.cached_property
    def text(self) -> str:
        """Text of the tree, as `codecs.text.format_tree` returns it."""
        parts = (f"{name}={child.text}" for name, child in self.children)
        return format_call(self.codec.id, [*changed_fields(self.codec), *parts])

    @functools.cached_property
    def shares_nothing(self) -> Shared:
        """Result of `fit` where no codec of the tree shares anything."""
        return b"", tuple(child.shares_nothing for child in _array_children(self))


def fit(node: Node, array: np.ndarray, reference: np.ndarray | None = None) -> Shared:
    """Learn what the chunks of a tensor share.

    From the tensor, or from a sample of its rows and the same rows of its reference.
    """
    codec = node.codec
    known = {"reference": reference} if codec.uses_reference else {}
    if not _shares(node, spec_of(array)):
        return node.shares_nothing
    array = readable(array)
    if isinstance(codec, Transform):
        own = codec.fit(array, **known)
        parts = codec.encode(array, own, **known)
        specs = codec.parts(spec_of(array))
        return own, tuple(
            # Columns whose number the data decide are not the same in all chunks.
            child.shares_nothing if -1 in specs[name].shape[1:] else fit(child, parts[name])
            for name, child in node.children
        )
    return cast(Serializer, codec).fit(array, **known), ()


def _shares(node: Node, spec: ArraySpec) -> bool:
    if node.codec.shares(spec):
        return True
    if not node.codec.is_transform:
        return False
    specs = cast(Transform, node.codec).parts(spec)
    return any(_shares(child, specs[name]) for name, child in node.children)


def pack_shared(shared: Shared) -> bytes:
    """Return the shared bytes of a tree.

    Empty where no codec shares anything.
    """
    own, children = shared
    sections = [own, *map(pack_shared, children)]
    return pack_sections(sections) if any(sections) else b""


def _array_children(node: Node) -> list[Node]:
    return [child for _, child in node.children] if node.codec.is_transform else []


def unpack_shared(node: Node, data: bytes) -> Shared:
    """Read what `pack_shared` wrote for this tree.

    Raises
    ------
    CodecError
        If the bytes do not fit the tree.
    """
    if not data:
        return node.shares_nothing
    children = _array_children(node)
    own, *packed = unpack_sections(data, 1 + len(children), "what the chunks share")
    return own, tuple(map(unpack_shared, children, packed))


def pack_sections(sections: Sequence[bytes]) -> bytes:
    """Return the sections, each behind its uint64 length."""
    return b"".join(_U64.pack(len(section)) + section for section in sections)


def unpack_sections(data: bytes, count: int, what: str) -> list[bytes]:
    """Read what `pack_sections` wrote; `what` names it in messages."""
    sections = []
    stop = 0
    while stop < len(data):
        start = stop + _U64.size
        stop = start + int.from_bytes(data[stop:start], "little")
        if stop > len(data):
            raise CodecError(f"{what} is cut short")
        sections.append(data[start:stop])
    if len(sections) != count:
        raise CodecError(f"{what}: expected {count} sections, got {len(sections)}")
    return sections
