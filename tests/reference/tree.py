"""Trees of codecs: their text, and the bytes of their nodes.

*Text*: ``name(arguments, part=subtree)``. Arguments are JSON numbers, strings, ``true``, ``false``
and ``null``; those without a name fill the codec's fields in their order. A part that is left out
has the codec's default subtree. The filter of a serializer is its part ``bytes``.

*Bytes of a node*: a mark; 0, and the array's own bytes follow; or 1, and the codec's bytes follow,
of a serializer through its filter. A transform's bytes are, part by part: the number of the part's
elements (uint64), only if one of its lengths does not follow from the array's shape and dtype and
the codec's fields (-1 in the shapes given here); the length of the part's bytes (uint64); those. An
array without elements has no bytes behind the mark 1 of a serializer.

*What chunks share*, in the order of the tree: nothing at all, if no codec of a node or below has
any; else a codec's own bytes behind their length (uint64), then those of each part's subtree behind
their length.
"""

import functools
import json
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

# Each module registers its codecs.
from reference import (  # noqa: F401
    ans,
    blocks,
    differences,
    factors,
    floats,
    huffman,
    masks,
    plain,
    quantizers,
    tables,
)
from reference.bits import take_sized
from reference.codec import CODECS, Codec, Leaf, Shape

_TOKEN = re.compile(r'\s*([A-Za-z_]\w*|[-+]?[\d.]+(?:[eE][-+]?\d+)?|"(?:[^"\\]|\\.)*"|[(),=])')


@dataclass(frozen=True)
class Node:
    """A codec with its fields, and the subtrees of its parts."""

    codec: Codec
    fields: dict[str, Any]
    parts: "dict[str, Node]"


@functools.cache
def parse(text: str) -> Node:
    """Return the tree of a text."""
    return _parse_node([*_TOKEN.findall(text), "", ""])


def _parse_node(tokens: list[str]) -> Node:
    codec = CODECS[tokens.pop(0)]
    fields: dict[str, Any] = {}
    parts = {name: parse(subtree) for name, subtree in codec.parts.items()}
    if tokens[0] == "(":
        tokens.pop(0)
        while tokens[0] != ")":
            name = list(codec.fields)[len(fields)] if tokens[1] != "=" else tokens.pop(0)
            if tokens[0] == "=":
                tokens.pop(0)
            name = codec.aliases.get(name, name)
            if name in codec.fields:
                fields[name] = json.loads(tokens.pop(0))
            else:
                parts[name] = _parse_node(tokens)
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
    return Node(codec, fields, parts)


def decode(
    node: Node,
    data: bytes,
    shape: Shape,
    dtype: np.dtype,
    shared: bytes = b"",
    reference: np.ndarray | None = None,
) -> np.ndarray:
    """Return the array of a node's bytes; the root may use a reference."""
    mark, body = data[0], data[1:]
    if mark == 0:
        found = np.frombuffer(body, np.uint8)
    elif mark > 1:
        raise ValueError(f"a node begins with {mark}")
    elif node.codec.kind == "transform":
        found = PartsOf(node, body, shape, dtype, shared, reference).joined()
    elif 0 in shape:
        found = np.empty(0, dtype)
    else:
        if "bytes" in node.parts:
            chosen = node.parts["bytes"]
            body = chosen.codec.decode(body, **chosen.fields)
        own = take_sized(shared)[0] if shared else b""
        found = node.codec.decode(Leaf(body, shape, dtype, own, reference), **node.fields)
    return np.ascontiguousarray(found).reshape(-1).view(dtype).reshape(shape)


class PartsOf:
    """The parts of a transform (see `codec.Parts`), read one after the other."""

    def __init__(
        self,
        node: Node,
        data: bytes,
        shape: Shape,
        dtype: np.dtype,
        shared: bytes,
        reference: np.ndarray | None = None,
    ) -> None:
        self._node, self.reference = node, reference
        self._left = data
        self.shape, self.dtype = shape, dtype
        self.shared, self._shared_left = take_sized(shared) if shared else (b"", b"")

    def joined(self) -> np.ndarray:
        """Return what the transform makes of its parts."""
        array = self._node.codec.decode(self, **self._node.fields)
        if self._left:
            raise ValueError(f"{len(self._left)} bytes behind the last part")
        return array

    def read(self, name: str, shape: Shape, dtype: np.dtype | type | str) -> np.ndarray:
        """Return the next part; one length may be -1, which the part's elements decide."""
        if -1 in shape:
            (size,) = struct.unpack_from("<Q", self._left)
            self._left = self._left[8:]
            others = math.prod(length for length in shape if length != -1)
            open_length = size // others if others else 0
            shape = tuple(open_length if length == -1 else length for length in shape)
        data, self._left = take_sized(self._left)
        shared = b""
        if self._shared_left:
            shared, self._shared_left = take_sized(self._shared_left)
        return decode(self._node.parts[name], data, shape, np.dtype(dtype), shared)
