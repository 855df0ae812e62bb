"""Find the tensors of ONNX models, and of the files that hold some of them.

A model is a protobuf message: fields, each a number and a kind of value. Tensors with ``raw_data``,
or packed floats, are in graphs, in attributes of their nodes, and in graphs in those.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

from tensorcomp._formatting import listed, shown
from tensorcomp.checkpoints.base import file_bytes
from tensorcomp.checkpoints.layouts.layout import Array, Layout
from tensorcomp.dtypes import dtype_bits
from tensorcomp.errors import CheckpointError
from tensorcomp.io.files import file_size

_VARINT, _TEXT = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
# By number: fields of a model, and where graphs and tensors are in each kind of message.
_MODEL_KINDS = {1: _VARINT, 5: _VARINT} | dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), _TEXT)
_GRAPH = 7
_CHILDREN: dict[str, dict[int, str]] = {
    "model": {_GRAPH: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
}
_OUTPUT = 2  # of a node
_MAX_FIELDS, _MAX_DEPTH = 1 << 20, 64
_TYPES = {
    1: "F32", 2: "U8", 3: "I8", 4: "U16", 5: "I16", 6: "I32", 7: "I64", 9: "BOOL", 10: "F16",
    11: "F64", 12: "U32", 13: "U64", 14: "C64", 15: "C128", 16: "BF16", 17: "F8_E4M3",
    18: "F8_E4M3FNUZ", 19: "F8_E5M2", 20: "F8_E5M2FNUZ", 21: "U4", 22: "I4", 23: "F4",
    24: "F8_E8M0", 25: "U2", 26: "I2",
}  # fmt: skip
_PACKED_BITS = {"U4": 4, "I4": 4, "F4": 4, "U2": 2, "I2": 2}
_FLOATS, _RAW, _DOUBLES = 4, 9, 10
_MAX_AXES = 64  # NumPy has no more


class _External(NamedTuple):
    """Place of a tensor in another file; without `length`, up to its end."""

    location: str
    offset: int = 0
    length: int | None = None

    @property
    def is_inside(self) -> bool:
        """Whether the location stays in the model's folder."""
        posix, windows = PurePosixPath(self.location), PureWindowsPath(self.location)
        return not (posix.is_absolute() or windows.anchor or ".." in {*posix.parts, *windows.parts})

    def is_missing(self, folder: Path) -> bool:
        """Return whether it is to be in the folder, and is not, or not all of it."""
        if not self.is_inside:
            return False
        try:
            return (folder / self.location).stat().st_size < self.offset + (self.length or 0)
        except (OSError, ValueError):
            return True


@dataclass
class _Tensor:
    """A tensor, as its message describes it."""

    name: str
    dtype: str = "-"
    shape: tuple[int, ...] = ()
    place: tuple[int, int] | None = None
    external: _External | None = None

    def array(self, start: int, nbytes: int | None) -> Array | None:
        """Return it as an array at a place; None if it cannot be of so many bytes."""
        bits = dtype_bits(self.dtype) or _PACKED_BITS.get(self.dtype, 0)
        if not bits or len(self.shape) > _MAX_AXES:
            return None
        size = -(-math.prod(self.shape) * bits // 8)
        if nbytes not in (None, size):
            return None
        if self.dtype in _PACKED_BITS:
            return Array(self.name, "U8", (size,), start, size)
        return Array(self.name, self.dtype, self.shape, start, size)


def is_onnx(path: Path) -> bool:
    """Return whether all of a file is the fields of a model, a graph among them."""
    data = file_bytes(path).data
    found = set()
    try:
        for count, (number, kind, *_) in enumerate(_fields(data, 0, len(data))):
            if _MODEL_KINDS.get(number) != kind or count == _MAX_FIELDS:
                return False
            found.add(number)
    except ValueError:
        return False
    return _GRAPH in found


def onnx_layout(path: Path) -> Layout:
    """Find the tensors that lie in a model's file itself."""
    try:
        tensors = _tensors(path)
    except ValueError as error:
        note = f"is an ONNX model that is damaged ({error}); compressed as bytes"
        return Layout("onnx", (), notes=(note,))
    placed = ((one, *one.place) for one in tensors if one.place)
    arrays = (one.array(start, stop - start) for one, start, stop in placed)
    elsewhere = [one.external for one in tensors if one.external]
    outside = list(dict.fromkeys(one.location for one in elsewhere if not one.is_inside))
    missing = list(dict.fromkeys(one.location for one in elsewhere if one.is_missing(path.parent)))
    notes = []
    if outside:
        notes.append(
            f"holds tensors in {listed(outside)}, outside its folder; only this file is compressed"
        )
    if missing:
        notes.append(f"holds tensors in {listed(missing)}, which is missing or too short")
    return Layout("onnx", [one for one in arrays if one], notes=tuple(notes))


def onnx_data_layout(path: Path) -> Layout:
    """Find the tensors that models near a file of external data have in it."""
    size, arrays = file_size(path), []
    notes: list[str] = []
    for model, array in _arrays_in(path):
        arrays.append(array)
        if array.stop > size and not notes:
            notes.append(f"ends before {shown(array.name)} of {model.name}; it may be cut short")
    return Layout("onnx-data", arrays, notes=notes)


def is_onnx_data(path: Path) -> bool:
    """Return whether a model beside a file has tensors in it."""
    return any(_arrays_in(path))


def _arrays_in(path: Path) -> Iterator[tuple[Path, Array]]:
    """Yield the arrays that models have in a file of external data, and the models."""
    path = path.absolute()
    for folder in path.parents[:2]:
        for model in sorted(folder.glob("*.onnx")):
            try:
                status = model.stat()
                tensors = _external_tensors(model, status.st_mtime_ns, status.st_size)
            except (OSError, ValueError, CheckpointError):
                continue
            for tensor, (location, offset, length) in tensors:
                array = tensor.array(offset, length) if folder / location == path else None
                if array is not None:
                    yield model, array


@functools.lru_cache(64)
def _external_tensors(path: Path, *_: int) -> list[tuple[_Tensor, _External]]:
    """Return a model's tensors in other files; remembered, since each of those asks."""
    tensors = _tensors(path) if is_onnx(path) else ()
    return [(one, one.external) for one in tensors if one.external and one.external.is_inside]


def _tensors(path: Path) -> list[_Tensor]:
    """Return the tensors of a model; raise `ValueError` if it is damaged."""
    data = file_bytes(path).data
    return list(_walk(data, "model", "", 0, len(data), 0))


def _walk(
    data: memoryview, kind: str, name: str, start: int, stop: int, depth: int
) -> Iterator[_Tensor]:
    """Yield the tensors of a message of a kind, in what lends a name to those without."""
    if depth > _MAX_DEPTH:
        raise ValueError("graphs in graphs without end")
    if kind == "tensor":
        yield _tensor(data, name, start, stop)
        return
    for number, wire, _, begin, end in _fields(data, start, stop):
        if kind == "node" and number == _OUTPUT and wire == _TEXT:
            name = _text(data, begin, end)
        child = _CHILDREN[kind].get(number)
        if child is not None and wire == _TEXT:
            yield from _walk(data, child, name, begin, end, depth + 1)


def _tensor(data: memoryview, name: str, start: int, stop: int) -> _Tensor:
    tensor = _Tensor(name or "tensor")
    shape: list[int] = []
    entries = {}
    for number, wire, value, begin, end in _fields(data, start, stop):
        if number == 1 and wire == _VARINT:
            shape.append(value)
        elif number == 1 and wire == _TEXT:
            while begin < end:
                value, begin = _varint(data, begin, end)
                shape.append(value)
        elif number == 2 and wire == _VARINT:
            tensor.dtype = _TYPES.get(value, "-")
        elif number == 8 and wire == _TEXT:
            tensor.name = _text(data, begin, end) or tensor.name
        elif number in (_FLOATS, _RAW, _DOUBLES) and wire == _TEXT:
            tensor.place = begin, end
        elif number == 13 and wire == _TEXT:
            pair = {
                number: _text(data, *place) for number, _, _, *place in _fields(data, begin, end)
            }
            entries[pair.get(1, "")] = pair.get(2, "")
    tensor.shape = tuple(shape)
    if location := entries.get("location"):
        length = entries.get("length")
        offset = int(entries.get("offset", 0))
        tensor.external = _External(location, offset, int(length) if length else None)
    return tensor


def _text(data: memoryview, start: int, stop: int) -> str:
    return bytes(data[start:stop]).decode("utf-8", "replace")


def _fields(data: memoryview, at: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the fields of a message: number, kind, value if a varint, and where the rest lies."""
    while at < stop:
        tag, at = _varint(data, at, stop)
        number, kind = tag >> 3, tag & 7
        value, start = 0, at
        if kind == _VARINT:
            value, at = _varint(data, at, stop)
        elif kind == _TEXT:
            size, start = _varint(data, at, stop)
            at = start + size
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:
            raise ValueError(f"a field of kind {kind}")
        if at > stop:
            raise ValueError(f"field {number} ends behind what holds it")
        yield number, kind, value, start, at


def _varint(data: memoryview, at: int, stop: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while at < stop and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a number is cut short")
