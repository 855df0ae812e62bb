"""The tree of codecs: what stands under what, and the recursion that encodes and decodes.

The bytes of a node begin with a mark: 0, and the array's own bytes follow (the fallback that keeps
a payload within its input plus a byte, whatever the tree); or 1, and the codec's bytes follow. A
serializer's bytes are its own, through its filter if it has one. A transform's bytes are, part by
part: the part's length in elements if the data decide it, its length in bytes, its node's bytes;
both lengths are little-endian uint64.
"""

from __future__ import annotations

import contextlib
import functools
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from tensorcomp._expressions import changed_fields, format_call
from tensorcomp.codecs.base import ArraySpec, Codec, Filter, Pieces, Serializer, Transform, spec_of
from tensorcomp.errors import CodecError, NotRepresentable, PlanError

FILTER = "bytes"  # the name of the only part that a serializer has
_U64 = struct.Struct("<Q")
_RAW, _CODED = b"\0", b"\1"
_NO_ELEMENTS = ArraySpec((0,), np.dtype(np.uint8))
# A filter may at most see the serializer's own framing on top of the array's bytes.
_FILTER_SLACK = 1 << 12

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
        name = self.codec.id
        is_transform = self.codec.is_transform
        if self.children and self.codec.is_filter:
            raise PlanError(f"{name} filters bytes and has no parts; got {self.children[0][0]!r}")
        for part, child in self.children:
            is_filter = child.codec.is_filter
            if is_transform and is_filter:
                raise PlanError(
                    f"{name}: part {part!r} is an array, but {child.codec.id!r} filters bytes; "
                    "put a serializer there"
                )
            if not is_transform and (part != FILTER or not is_filter):
                raise PlanError(
                    f"{name} gives bytes and takes at most one filter, as 'bytes='; "
                    f"got {part}={child.codec.id}"
                )
        names = [part for part, _ in self.children]
        if is_transform:
            expected = list(cast(Transform, self.codec).parts(_NO_ELEMENTS))
            if names != expected:
                raise PlanError(f"{name} has the parts {expected}; got {names}")
        elif len(names) > 1:
            raise PlanError(f"{name} takes at most one filter; got {len(names)}")

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
        """What `codecs.text.format_tree` gives."""
        parts = (f"{name}={child.text}" for name, child in self.children)
        return format_call(self.codec.id, [*changed_fields(self.codec), *parts])

    @functools.cached_property
    def shares_nothing(self) -> Shared:
        """What `fit` gives where no codec of the tree shares anything."""
        return b"", tuple(child.shares_nothing for child in _array_children(self))


def fit(node: Node, array: np.ndarray) -> Shared:
    """Learn what the chunks of a tensor share from the tensor, or from a sample of its rows."""
    codec = node.codec
    if not _shares(node, spec_of(array)):
        return nothing_shared(node)
    array = readable(array)
    if isinstance(codec, Transform):
        own = codec.fit(array)
        parts = codec.encode(array, own)
        specs = codec.parts(spec_of(array))
        return own, tuple(
            # Columns whose number the data decide are not the same in all chunks.
            nothing_shared(child) if -1 in specs[name].shape[1:] else fit(child, parts[name])
            for name, child in node.children
        )
    return cast(Serializer, codec).fit(array), ()


def _shares(node: Node, spec: ArraySpec) -> bool:
    if node.codec.shares(spec):
        return True
    if not node.codec.is_transform:
        return False
    specs = cast(Transform, node.codec).parts(spec)
    return any(_shares(child, specs[name]) for name, child in node.children)


def pack_shared(shared: Shared) -> bytes:
    """Write the shared bytes of a tree; nothing at all where no codec shares anything."""
    own, children = shared
    packed = b"".join(pack_shared(child) for child in children)
    if not own and not any(packed):
        return b""
    return _U64.pack(len(own)) + own + b"".join(_with_length(pack_shared(c)) for c in children)


def _with_length(data: bytes) -> bytes:
    return _U64.pack(len(data)) + data


def nothing_shared(node: Node) -> Shared:
    """Return what `fit` gives where no codec of the tree shares anything."""
    return node.shares_nothing


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
        return nothing_shared(node)
    own, rest = _take(data)
    shared = []
    for child in _array_children(node):
        packed, rest = _take(rest)
        shared.append(unpack_shared(child, packed))
    if rest:
        raise CodecError(f"{len(rest)} bytes too many in what the chunks share")
    return own, tuple(shared)


def _take(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < 8 or _U64.unpack_from(data)[0] > len(data) - 8:
        raise CodecError("what the chunks share is cut short")
    stop = 8 + _U64.unpack_from(data)[0]
    return data[8:stop], data[stop:]


def encode(node: Node, array: np.ndarray, shared: Shared | None = None) -> Pieces:
    """Return the payload of an array, in pieces; at most the array's bytes and one more.

    Parameters
    ----------
    node : Node
    array : numpy.ndarray
        Any shape, dtype and strides; it is not changed.
    shared : Shared, optional
        From `fit` on the whole tensor or a sample of it; nothing is shared if not given.

    Raises
    ------
    NotRepresentable
        If a lossless transform cannot represent the array; the caller picks another tree.
    """
    array = readable(array)
    return _encode(node, array, nothing_shared(node) if shared is None else shared)


def readable(array: np.ndarray) -> np.ndarray:
    """Return a C-contiguous, aligned, native, read-only view (or copy, if need be).

    Kernels are compiled once per array type, so they get one type only.
    """
    array = np.asarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    flags = array.flags
    if flags.c_contiguous and flags.aligned and not flags.writeable:
        return array
    if not (flags.c_contiguous and flags.aligned):
        array = np.require(array, requirements=("C", "A"))
    view = array.view()
    view.setflags(write=False)
    return view


def byte_count(pieces: Pieces) -> int:
    """Return the bytes of all pieces together."""
    return sum(map(len, pieces))


def join(pieces: Pieces) -> bytes:
    """Return the pieces as one bytes object."""
    return b"".join(pieces)


def approximate(node: Node, array: np.ndarray, shared: Shared | None = None) -> np.ndarray:
    """Return what decoding a payload of the array would give, without coding any bytes.

    Lossless codecs change nothing and are left out: of a tree whose transforms quantize this takes
    a fraction of the time of `encode` and `decode`.

    Raises
    ------
    NotRepresentable
        If the root cannot represent the array.
    """
    array = readable(array)
    return _approximate(node, array, nothing_shared(node) if shared is None else shared)


def _approximate(node: Node, array: np.ndarray, shared: Shared) -> np.ndarray:
    if node.lossless:
        return array
    codec = cast(Transform, node.codec)
    own, below = shared
    parts = codec.encode(array, own)
    for (name, child), child_shared in zip(node.children, below, strict=True):
        with contextlib.suppress(NotRepresentable):  # such a part is stored as it is
            parts[name] = _approximate(child, readable(parts[name]), child_shared)
        parts[name] = readable(parts[name])
    out = np.empty(array.shape, array.dtype)
    codec.decode(parts, out, own)
    return out


def encode_seen(node: Node, array: np.ndarray, shared: Shared) -> tuple[Pieces, np.ndarray]:
    """Return the payload of an array, as `encode` does, and what decoding it would give.

    Of what lossless codecs coded nothing is decoded.

    Raises
    ------
    NotRepresentable
        If the root cannot represent the array.
    """
    array = readable(array)
    if node.lossless:
        return _encode(node, array, shared), array
    codec = cast(Transform, node.codec)
    own, below = shared
    parts = codec.encode(array, own)
    specs = codec.parts(spec_of(array))
    pieces: Pieces = []
    for (name, child), child_shared in zip(node.children, below, strict=True):
        part = readable(parts[name])
        try:
            coded, parts[name] = encode_seen(child, part, child_shared)
        except NotRepresentable:
            coded, parts[name] = raw_payload(part), part
        pieces += framed_part(specs[name], part.size, coded)
    if byte_count(pieces) > array.nbytes:
        return raw_payload(array), array
    out = np.empty(array.shape, array.dtype)
    codec.decode(parts, out, own)
    return [_CODED, *pieces], out


def _encode(node: Node, array: np.ndarray, shared: Shared) -> Pieces:
    if not node.codec.is_transform:
        try:
            pieces = cast(Serializer, node.codec).encode(array, shared[0])
        except NotRepresentable:
            return raw_payload(array)
        for _, child in node.children:
            pieces = [cast(Filter, child.codec).encode(join(pieces))]
    else:
        pieces = _encode_parts(node, cast(Transform, node.codec), array, shared)
    return raw_payload(array) if byte_count(pieces) > array.nbytes else [_CODED, *pieces]


def raw_payload(array: np.ndarray) -> Pieces:
    """Return a payload that holds a C-contiguous array's own bytes."""
    return [_RAW, array.reshape(-1).view(np.uint8)]


def _encode_parts(node: Node, codec: Transform, array: np.ndarray, shared: Shared) -> Pieces:
    own, below = shared
    parts = codec.encode(array, own)
    specs = codec.parts(spec_of(array))
    pieces: Pieces = []
    for (name, child), child_shared in zip(node.children, below, strict=True):
        part = readable(parts[name])
        pieces += framed_part(specs[name], part.size, encode_part(child, part, child_shared))
    return pieces


def encode_part(node: Node, part: np.ndarray, shared: Shared | None = None) -> Pieces:
    """Return the bytes of a part by its subtree; the part's own bytes where that cannot take it."""
    try:
        return encode(node, part, shared)
    except NotRepresentable:
        return raw_payload(readable(part))


def framed_part(spec: ArraySpec, size: int, coded: Pieces) -> Pieces:
    """Return a part's bytes as a transform's hold them: behind their lengths.

    Parameters
    ----------
    spec : ArraySpec
        As `Transform.parts` gives it.
    size : int
        Elements of the part.
    coded : Pieces
        From `encode_part`.
    """
    head = _U64.pack(size) if -1 in spec.shape else b""
    return [head + _U64.pack(byte_count(coded)), *coded]


def decode(
    node: Node,
    data: np.ndarray | bytes,
    spec: ArraySpec,
    shared: Shared | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Return the array of a payload.

    Parameters
    ----------
    node : Node
    data : numpy.ndarray or bytes
        The payload, flat uint8.
    spec : ArraySpec
        Shape and dtype of what was encoded; nothing larger is ever allocated.
    shared : Shared, optional
        As given to `encode`.
    out : numpy.ndarray, optional
        Array of that spec to decode into; best C-contiguous, in the machine's byte order.

    Raises
    ------
    CodecError
        If the payload is damaged.
    """
    payload = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    if out is None:
        out = np.empty(spec.shape, spec.dtype)
    decode_into(node, payload, out, nothing_shared(node) if shared is None else shared)
    return out


def decode_into(node: Node, payload: np.ndarray, out: np.ndarray, shared: Shared) -> None:
    """Fill an array of the shape and dtype of what was encoded; as `decode`.

    Raises
    ------
    CodecError
        If the payload is damaged.
    """
    if out.dtype.byteorder == ">" or not out.flags.c_contiguous:
        native = np.empty(out.shape, out.dtype.newbyteorder("<"))
        _decode(node, payload, native, shared)
        out[...] = native
    else:
        _decode(node, payload, out, shared)


def _decode(node: Node, data: np.ndarray, out: np.ndarray, shared: Shared) -> None:
    mark = int(data[0]) if data.size else None
    if mark is None or mark > _CODED[0]:
        raise CodecError(f"{node.codec.id}: its bytes begin with neither of the two marks")
    body = data[1:]
    if mark == _RAW[0]:
        if body.size != out.nbytes:
            raise CodecError(f"{node.codec.id}: {body.size} raw bytes for {out.nbytes}")
        out.reshape(-1).view(np.uint8)[:] = body
    elif not node.codec.is_transform:
        for _, child in node.children:
            unfiltered = cast(Filter, child.codec).decode(body, 2 * out.nbytes + _FILTER_SLACK)
            body = np.frombuffer(unfiltered, np.uint8)
        cast(Serializer, node.codec).decode(body, out, shared[0])
    else:
        _decode_parts(node, cast(Transform, node.codec), body, out, shared)


def _decode_parts(
    node: Node, codec: Transform, data: np.ndarray, out: np.ndarray, shared: Shared
) -> None:
    own, below = shared
    parts: dict[str, np.ndarray] = {}
    coded = framed_parts(node, spec_of(out), data)
    for (name, child), child_shared in zip(node.children, below, strict=True):
        spec, payload = coded[name]
        part = np.empty(spec.shape, spec.dtype)
        _decode(child, payload, part, child_shared)
        part.flags.writeable = False
        parts[name] = part
    codec.decode(parts, out, own)


def framed_parts(
    node: Node, spec: ArraySpec, data: np.ndarray
) -> dict[str, tuple[ArraySpec, np.ndarray]]:
    """Return each part's spec and bytes from a transform's bytes, without their mark.

    Raises
    ------
    CodecError
        If the lengths contradict each other or the spec.
    """
    codec = cast(Transform, node.codec)
    found: dict[str, tuple[ArraySpec, np.ndarray]] = {}
    position = 0
    for name, part in codec.parts(spec).items():
        shape = part.shape
        if -1 in shape:
            size, position = _read_size(data, position, spec.size, name)
            shape = _completed(shape, size, name)
        length, position = _read_size(data, position, data.size - position - 8, name)
        found[name] = ArraySpec(shape, part.dtype), data[position : position + length]
        position += length
    if position != data.size:
        raise CodecError(f"{codec.id}: {data.size - position} bytes behind the last part")
    return found


def _completed(shape: tuple[int, ...], size: int, name: str) -> tuple[int, ...]:
    """Return a shape with its open axis as long as so many elements make it."""
    others = math.prod(length for length in shape if length != -1)
    axis, left = divmod(size, others) if others else (0, size)
    if left:
        raise CodecError(f"part {name!r}: {size} elements do not fill the shape {shape}")
    return tuple(axis if length == -1 else length for length in shape)


def _read_size(data: np.ndarray, position: int, most: int, name: str) -> tuple[int, int]:
    if data.size - position < 8:
        raise CodecError(f"part {name!r} is cut short")
    size = int(_U64.unpack_from(data, position)[0])
    if size > most:
        raise CodecError(f"part {name!r} claims {size}, at most {most} can be there")
    return size, position + 8
