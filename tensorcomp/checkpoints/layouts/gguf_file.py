"""Find the tensors of GGUF files, quantized ones among them.

Layout: ``GGUF``, the version, the numbers of tensors and of key-values; these, each a name, a type
and a value; of each tensor its name, its axes, the fastest first, its type and where it begins
behind the header, which is filled up to a multiple of ``general.alignment``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from tensorcomp._formatting import counted, shown
from tensorcomp.checkpoints.base import file_bytes
from tensorcomp.checkpoints.layouts.layout import Array, Layout
from tensorcomp.dtypes import block_size, dtype_bits
from tensorcomp.errors import CheckpointError, located

_VERSIONS = (2, 3)
_MAX_COUNT = 1 << 22  # of tensors and of key-values; real files have thousands
_MAX_AXES = 8
_MAX_DEPTH = 4  # of lists in lists
_ALIGNMENT, _USUAL_ALIGNMENT = b"general.alignment", 32
_U32, _TEXT, _LIST = 4, 8, 9
# By their numbers: the bytes of a value; of types of tensors the names, ours or ggml's.
_VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip


def gguf_layout(path: Path) -> Layout:
    """Find the tensors of a GGUF file.

    One of another version or byte order has none.

    Raises
    ------
    CheckpointError
        If its header is damaged, or claims more than the file holds.
    """
    data = file_bytes(path).data
    version = int.from_bytes(data[4:8], "little")
    if version not in _VERSIONS:
        is_swapped = int.from_bytes(data[4:8], "big") in _VERSIONS
        what = "big-endian" if is_swapped else f"of version {version}"
        known = " and ".join(map(str, _VERSIONS))
        note = f"is a GGUF file, {what}, where little-endian ones of versions {known} are known"
        return Layout("gguf", (), notes=(f"{note}; compressed as bytes",))
    unknown: dict[str, list[str]] = {}
    with located(path=path):
        arrays = list(_arrays(_Header(data), unknown))
    notes = [
        f"{counted(len(names), 'tensor')} of type {kind}, which is not known, such as "
        f"{shown(names[0])}: compressed as bytes"
        for kind, names in unknown.items()
    ]
    return Layout("gguf", arrays, notes=tuple(notes))


class _Header:
    """Header of a file, read from its beginning on; no step goes beyond the file."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 8

    def take(self, nbytes: int) -> memoryview:
        """Return the next bytes."""
        start, self.at = self.at, self.at + nbytes
        if self.at > len(self.data):
            raise CheckpointError(
                f"its header needs {self.at:,} bytes where the file has {len(self.data):,}; it is "
                "cut short or damaged: get it again"
            )
        return self.data[start : self.at]

    def numbers(self, form: str) -> tuple[int, ...]:
        """Return the next numbers of a format of `struct`."""
        found: tuple[int, ...] = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))
        return found

    def text(self) -> bytes:
        """Return the next text."""
        return bytes(self.take(*self.numbers("Q")))

    def skip(self, kind: int, count: int = 1, depth: int = 0) -> None:
        """Pass over values of a type."""
        if kind in _VALUE_BYTES:
            self.take(count * _VALUE_BYTES[kind])
        elif kind == _TEXT:  # of which vocabularies have many
            at, size, left = self.at, len(self.data), count
            while left and at <= size:
                at += 8 + int.from_bytes(self.data[at : at + 8], "little")
                left -= 1
            self.take(at - self.at)
        elif kind == _LIST and depth < _MAX_DEPTH:
            for _ in range(count):
                inner, length = self.numbers("IQ")
                self.skip(inner, length, depth + 1)
        else:
            raise CheckpointError(f"its header is damaged: a value of type {kind}")


def _checked(count: int, most: int) -> int:
    if count > most:
        raise CheckpointError(
            f"its header is damaged: a count of {count:,}, where {most:,} is the most"
        )
    return count


def _arrays(header: _Header, unknown: dict[str, list[str]]) -> Iterator[Array]:
    """Yield the tensors whose types are known; collect the names of the others."""
    tensors, values = (_checked(count, _MAX_COUNT) for count in header.numbers("QQ"))
    alignment = _USUAL_ALIGNMENT
    for _ in range(values):
        key, (kind,) = header.text(), header.numbers("I")
        if key == _ALIGNMENT and kind == _U32:
            (alignment,) = header.numbers("I")
        else:
            header.skip(kind)
    if alignment < 1 or alignment & (alignment - 1):
        raise CheckpointError(f"its header is damaged: an alignment of {alignment:,} bytes")
    infos = []
    for _ in range(tensors):
        name = header.text().decode("utf-8", "replace")
        (axes,) = header.numbers("I")
        shape = header.numbers(f"{_checked(axes, _MAX_AXES)}Q")[::-1]
        number, offset = header.numbers("IQ")
        infos.append((name, shape, _TYPES.get(number, str(number)), offset))
    start = -(-header.at // alignment) * alignment
    for name, shape, dtype, offset in infos:
        nbytes = _size(dtype, shape)
        stop = start + offset + (nbytes or 0)
        if stop > len(header.data):
            raise CheckpointError(
                f"is to end at byte {stop:,} of a file of {len(header.data):,}, which is cut short "
                "or damaged; get it again",
                tensor=name,
            )
        if nbytes is None:
            unknown.setdefault(dtype, []).append(name)
        else:
            yield Array(name, dtype, shape, start + offset, nbytes)


def _size(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return the bytes of a tensor, whose rows are of whole blocks; None where none knows."""
    bits = dtype_bits(dtype)
    block, nbytes = block_size(dtype) or (1, (bits or 0) // 8)
    if not nbytes or (shape and shape[-1] % block):
        return None
    return math.prod(shape) // block * nbytes
