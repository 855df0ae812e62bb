"""Encode an array by a codec tree to its payload, and decode it.

The bytes of a node begin with a mark: 0, and the array's own bytes follow (the fallback that keeps
a payload within its input plus a byte, whatever the tree); or 1, and the codec's bytes follow. A
serializer's bytes are its own, through its filter if it has one. A transform's bytes are, part by
part: the part's length in elements if the data decide it, its length in bytes, its node's bytes;
both lengths are little-endian uint64.
"""

from __future__ import annotations

import math
import struct
from typing import cast

import numpy as np

from tensorcomp.codecs.base import ArraySpec, Filter, Pieces, Serializer, Transform, spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.tree import Node, Shared
from tensorcomp.errors import CodecError, NotRepresentable

_U64 = struct.Struct("<Q")
_RAW, _CODED = b"\0", b"\1"
# A filter may at most see the serializer's own framing on top of the array's bytes.
_FILTER_SLACK = 1 << 12


def encode(
    node: Node,
    array: np.ndarray,
    shared: Shared | None = None,
    *,
    reference: np.ndarray | None = None,
) -> Pieces:
    """Return the payload of an array, in pieces.

    It has at most the array's bytes and one more.

    Parameters
    ----------
    node : Node
    array : numpy.ndarray
        Any shape, dtype and strides; it is not changed.
    shared : Shared, optional
        From `fit` on the whole tensor or a sample of it; nothing is shared if not given.
    reference : numpy.ndarray, optional
        What decoding will be given too: the same elements of a base, of the array's shape and
        dtype. Only a root that `uses_reference` sees it.

    Raises
    ------
    NotRepresentable
        If a lossless transform cannot represent the array; the caller picks another tree.
    """
    shared = node.shares_nothing if shared is None else shared
    return _code(node, readable(array), shared, reference, decodes=False)[0]


def byte_count(pieces: Pieces) -> int:
    """Return the bytes of all pieces together."""
    return sum(map(len, pieces))


def join(pieces: Pieces) -> bytes:
    """Return the pieces as one bytes object."""
    return b"".join(pieces)


def approximate(
    node: Node,
    array: np.ndarray,
    shared: Shared | None = None,
    *,
    reference: np.ndarray | None = None,
) -> np.ndarray:
    """Return what decoding an array's payload would give, without coding.

    Lossless codecs change nothing and are left out: of a tree whose transforms quantize this takes
    a fraction of the time of `encode` and `decode`.

    Raises
    ------
    NotRepresentable
        If the root cannot represent the array.
    """
    shared = node.shares_nothing if shared is None else shared
    return _code(node, readable(array), shared, reference, codes=False)[1]


def encode_seen(
    node: Node,
    array: np.ndarray,
    shared: Shared,
    out: np.ndarray | None = None,
    *,
    reference: np.ndarray | None = None,
) -> tuple[Pieces, np.ndarray]:
    """Return the payload of an array and what decoding it would give.

    Of what lossless codecs coded nothing is decoded.

    Parameters
    ----------
    node : Node
    array : numpy.ndarray
    shared : Shared
    out : numpy.ndarray, optional
        Memory for what decoding would give, unless that is the array itself.
    reference : numpy.ndarray, optional
        As for `encode`.

    Raises
    ------
    NotRepresentable
        If the root cannot represent the array.
    """
    return _code(node, readable(array), shared, reference, out=out)


def _code(
    node: Node,
    array: np.ndarray,
    shared: Shared,
    reference: np.ndarray | None = None,
    *,
    codes: bool = True,
    decodes: bool = True,
    out: np.ndarray | None = None,
) -> tuple[Pieces, np.ndarray]:
    """Return the payload, if it codes, and what decoding it would give, if it decodes."""
    decodes = decodes and not node.lossless
    known = {"reference": reference} if node.codec.uses_reference else {}
    if not (codes or decodes):
        return [], array
    if node.codec.is_transform:
        parts = cast(Transform, node.codec).encode(array, shared[0], **known)
        pieces = encode_parts(node, parts, spec_of(array), shared, codes=codes, decodes=decodes)
    else:
        try:
            coder = cast(Serializer, node.codec)
            pieces = coder.encode(array, shared[0], **known) if array.size else []
        except NotRepresentable:
            return raw_payload(array), array
        for _, child in node.children:
            pieces = [cast(Filter, child.codec).encode(join(pieces))]
    if byte_count(pieces) > array.nbytes:
        return raw_payload(array), array
    if decodes:
        out = np.empty(array.shape, array.dtype) if out is None else out
        cast(Transform, node.codec).decode(parts, out, shared[0], **known)
        array = out
    return [_CODED, *pieces], array


def encode_parts(
    node: Node,
    parts: dict[str, np.ndarray],
    spec: ArraySpec,
    shared: Shared,
    *,
    codes: bool = True,
    decodes: bool = False,
) -> Pieces:
    """Return the bytes of a transform's parts, without their mark.

    There are no bytes unless it codes; the parts become what decoding would give if it decodes.
    """
    specs = cast(Transform, node.codec).parts(spec)
    pieces: Pieces = []
    for (name, child), child_shared in zip(node.children, shared[1], strict=True):
        part = readable(parts[name])
        try:
            coded, known = _code(child, part, child_shared, codes=codes, decodes=decodes)
        except NotRepresentable:  # such a part is stored as it is
            coded, known = raw_payload(part), part
        if decodes:
            parts[name] = readable(known)
        if codes:
            pieces += framed_part(specs[name], part.size, coded)
    return pieces


def raw_payload(array: np.ndarray) -> Pieces:
    """Return a payload that holds a C-contiguous array's own bytes."""
    return [_RAW, array.reshape(-1).view(np.uint8)]


def encode_part(node: Node, part: np.ndarray, shared: Shared | None = None) -> Pieces:
    """Return the bytes of a part by its subtree.

    The part's own bytes where the subtree cannot take it.
    """
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
    *,
    reference: np.ndarray | None = None,
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
    reference : numpy.ndarray, optional
        As given to `encode`.

    Raises
    ------
    CodecError
        If the payload is damaged.
    """
    payload = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    if out is None:
        out = np.empty(spec.shape, spec.dtype)
    shared = node.shares_nothing if shared is None else shared
    decode_into(node, payload, out, shared, reference)
    return out


def decode_into(
    node: Node,
    payload: np.ndarray,
    out: np.ndarray,
    shared: Shared,
    reference: np.ndarray | None = None,
) -> None:
    """Fill an array of the shape and dtype of what was encoded; as `decode`."""
    if out.dtype.byteorder == ">" or not out.flags.c_contiguous:
        native = np.empty(out.shape, out.dtype.newbyteorder("<"))
        _decode(node, payload, native, shared, reference)
        out[...] = native
    else:
        _decode(node, payload, out, shared, reference)


def _decode(
    node: Node,
    data: np.ndarray,
    out: np.ndarray,
    shared: Shared,
    reference: np.ndarray | None = None,
) -> None:
    codec, own = node.codec, shared[0]
    known = {"reference": reference} if codec.uses_reference else {}
    mark = int(data[0]) if data.size else None
    if mark is None or mark > _CODED[0]:
        raise CodecError(f"{codec.id}: its bytes begin with neither of the two marks")
    body = data[1:]
    if mark == _RAW[0]:
        if body.size != out.nbytes:
            raise CodecError(f"{codec.id}: expected {out.nbytes} raw bytes, got {body.size}")
        out.reshape(-1).view(np.uint8)[:] = body
    elif codec.is_transform:
        parts = {}
        coded = framed_parts(node, spec_of(out), body)
        for (name, child), child_shared in zip(node.children, shared[1], strict=True):
            spec, payload = coded[name]
            part = np.empty(spec.shape, spec.dtype)
            _decode(child, payload, part, child_shared)
            part.flags.writeable = False
            parts[name] = part
        cast(Transform, codec).decode(parts, out, own, **known)
    else:
        for _, child in node.children:
            unfiltered = cast(Filter, child.codec).decode(body, 2 * out.nbytes + _FILTER_SLACK)
            body = np.frombuffer(unfiltered, np.uint8)
        if out.size:
            cast(Serializer, codec).decode(body, out, own, **known)
        elif body.size:
            raise CodecError(f"{codec.id}: expected no bytes for no elements, got {body.size}")


def framed_parts(
    node: Node, spec: ArraySpec, data: np.ndarray
) -> dict[str, tuple[ArraySpec, np.ndarray]]:
    """Return each part's spec and bytes from a transform's bytes.

    The bytes are without their mark.

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
            others = -math.prod(shape)
            open_length = size // others if others else 0
            if open_length * others != size:
                raise CodecError(f"part {name!r}: {size} elements do not fill the shape {shape}")
            shape = tuple(open_length if length == -1 else length for length in shape)
        length, position = _read_size(data, position, data.size - position - 8, name)
        found[name] = ArraySpec(shape, part.dtype), data[position : position + length]
        position += length
    if position != data.size:
        raise CodecError(
            f"{codec.id}: expected no bytes after its parts, got {data.size - position}"
        )
    return found


def _read_size(data: np.ndarray, position: int, most: int, name: str) -> tuple[int, int]:
    if data.size - position < 8:
        raise CodecError(f"part {name!r} is cut short")
    size = int(_U64.unpack_from(data, position)[0])
    if size > most:
        raise CodecError(f"part {name!r}: expected a size of at most {most}, got {size}")
    return size, position + 8
