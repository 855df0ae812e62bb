"""Parse safetensors headers strictly, and write them as the library does.

Layout: the header's length N as an unsigned 64-bit little-endian integer; N bytes of JSON that
begin with ``{`` and may end in spaces; the tensors' bytes, back to back. The JSON object maps each
name to ``{"dtype": …, "shape": […], "data_offsets": [begin, end]}``, and ``__metadata__`` to an
object of strings.

Nothing is allocated from a size that a header merely claims: each claim is compared with the size
of the file first.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from tensorcomp._formatting import listed, shown
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.dtypes import dtype_bits
from tensorcomp.errors import CheckpointError, located

PREFIX_BYTES = 8
MAX_HEADER_BYTES = 100_000_000  # the library's own limit
METADATA_KEY = "__metadata__"

_ALIGNMENT = 8
_INT64_MAX = 2**63 - 1
_SHORTEST = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Header:
    """A validated header.

    Attributes
    ----------
    tensors : tuple of TensorInfo
        In the order of their bytes in the file.
    offsets : mapping of str to (int, int)
        First byte of each tensor, and the byte after its last, counted from `data_start`.
    metadata : mapping of str to str, or None
        ``__metadata__`` in its own key order; None where it is missing or null.
    raw : bytes
        The file up to its first tensor byte, length prefix and padding included.
    """

    tensors: tuple[TensorInfo, ...]
    offsets: Mapping[str, tuple[int, int]]
    metadata: Mapping[str, str] | None
    raw: bytes

    @property
    def data_start(self) -> int:
        """Return the offset in the file of the first tensor byte."""
        return len(self.raw)


def json_text(value: Any) -> str:
    """Return the shortest JSON text of a value."""
    return _SHORTEST.encode(value)


def json_object(members: Mapping[str, str]) -> str:
    """Return the JSON text of an object whose members are texts already."""
    return "{" + ",".join(f"{json_text(name)}:{text}" for name, text in members.items()) + "}"


def read_header(file: BinaryIO, file_size: int, where: str) -> Header:
    """Read and validate the header at the start of an open file.

    Parameters
    ----------
    file : binary file
        At its start.
    file_size : int
        Bytes of the whole file.
    where : str
        The file's name, for error messages.

    Raises
    ------
    CheckpointError
        If the header breaks the format, or does not fit the size of the file.
    """
    with located(path=where):
        prefix = file.read(PREFIX_BYTES)
        end = _header_end(prefix, file_size)
        raw = prefix + file.read(end - PREFIX_BYTES)
        if len(raw) < end:
            raise CheckpointError(f"the header ends after {len(raw):,} of {end:,} bytes")
        entries = _load_json(raw[PREFIX_BYTES:])
        metadata = _checked_metadata(entries.pop(METADATA_KEY, None))
        for name, entry in entries.items():
            fault = _entry_fault(name, entry)
            if fault is not None:
                raise CheckpointError(fault, tensor=name)
        # A stable sort: empty tensors share their offset and stay in the order of their keys.
        entries = dict(sorted(entries.items(), key=lambda item: item[1]["data_offsets"]))
        offsets = {name: tuple(entry["data_offsets"]) for name, entry in entries.items()}
        _check_layout(offsets, file_size - end)
        # Not the JSON values: of 100,000 tensors they would take twice the memory of all else.
        tensors = tuple(
            TensorInfo(name, sys.intern(entry["dtype"]), tuple(entry["shape"]), stop - begin)
            for (name, entry), (begin, stop) in zip(entries.items(), offsets.values(), strict=True)
        )
        return Header(tensors, offsets, metadata, raw)


def header_bytes(head: bytes) -> int:
    """Return how many bytes a header takes with its length, as the length claims."""
    return PREFIX_BYTES + int.from_bytes(head[:PREFIX_BYTES], "little")


def _header_end(prefix: bytes, file_size: int) -> int:
    """Return the offset in the file at which the header ends and the data begins."""
    if len(prefix) < PREFIX_BYTES:
        raise CheckpointError(
            f"{file_size:,} bytes are too few for a safetensors file; download it again"
        )
    length = int.from_bytes(prefix, "little")
    if length > file_size - PREFIX_BYTES:
        raise CheckpointError(
            f"claims a header of {length:,} bytes, but the file holds {file_size:,}; "
            "it is cut short or not a safetensors file"
        )
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"its header of {length:,} bytes exceeds the format's {MAX_HEADER_BYTES:,}; "
            "split the checkpoint into shards"
        )
    return PREFIX_BYTES + length


def build_header(tensors: Iterable[TensorInfo], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the header that safetensors writes for these tensors, with prefix.

    Parameters
    ----------
    tensors : iterable of TensorInfo
        In the order in which their bytes will follow.
    metadata : mapping of str to str, optional
        The ``__metadata__`` entry, written first and in its own order; None leaves it out.

    Raises
    ------
    CheckpointError
        If the header would exceed the format's limit, two tensors share a name, or one is called
        ``__metadata__``.
    """
    # Texts, not objects: of 100,000 tensors those would take 50 MB.
    entries = {} if metadata is None else {METADATA_KEY: json_text(dict(metadata))}
    begin = 0
    for info in tensors:
        if info.name in entries or info.name == METADATA_KEY:
            raise CheckpointError(f"a safetensors file cannot hold two entries {shown(info.name)}")
        span = begin, begin + info.nbytes
        entry = {"dtype": info.dtype, "shape": info.shape, "data_offsets": span}
        entries[info.name] = json_text(entry)
        begin += info.nbytes
    try:
        text = json_object(entries).encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"a name or metadata value is not valid Unicode: {error}") from error
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"a header of {len(text):,} bytes exceeds the safetensors limit of "
            f"{MAX_HEADER_BYTES:,}; split the checkpoint into shards"
        )
    return len(text).to_bytes(PREFIX_BYTES, "little") + text


def _load_json(text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise CheckpointError(
            f"the header begins with {text[:1]!r}, not with '{{'; this is not a safetensors file"
        )

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice = next(key for key, count in counts.items() if count > 1)
            raise CheckpointError(
                f"the header has the key {shown(twice)} twice, so readers disagree on "
                "what it says; write the file again"
            )
        return entries

    try:
        entries = json.loads(text.decode(), object_pairs_hook=unique)
    except RecursionError:
        raise CheckpointError("the header nests too deeply for a safetensors file") from None
    except ValueError as error:  # also UnicodeDecodeError and JSONDecodeError
        raise CheckpointError(f"the header is not valid JSON: {error}") from error
    return cast("dict[str, Any]", entries)


def _checked_metadata(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise CheckpointError(f"{METADATA_KEY} is not a JSON object")
    for key, text in value.items():
        if not isinstance(text, str):
            raise CheckpointError(f"the {METADATA_KEY} entry {shown(key)} is not a string")
        if not _is_unicode(key) or not _is_unicode(text):
            raise CheckpointError(f"the {METADATA_KEY} entry {shown(key)} is not valid Unicode")
    return value


def _entry_fault(name: str, entry: Any) -> str | None:
    """Return what is wrong with a tensor's header entry, if anything."""
    if not _is_unicode(name):
        return "the name is not valid Unicode"
    if not isinstance(entry, dict):
        return "its header entry is not a JSON object"
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or not _is_unicode(dtype):
        return "has no dtype"
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        return "its shape is not a list of sizes"
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        return "its data_offsets are not a begin and an end"
    begin, stop = offsets
    if stop < begin:
        return f"its data end at {stop}, before they begin at {begin}"
    elements = 1
    for size in shape:
        elements *= size or 1  # zeros are left out: NumPy, too, refuses (2**62, 8, 0)
        if elements > _INT64_MAX:
            return "its shape overflows 64 bits"
    if 0 in shape:
        elements = 0
    bits = dtype_bits(dtype)
    if bits is not None and elements * bits != (stop - begin) * 8:
        return (
            f"{dtype} of shape {_shape_text(shape)} takes {elements * bits / 8:.15g} bytes, "
            f"but its data_offsets span {stop - begin}"
        )
    return None


def _check_layout(offsets: Mapping[str, tuple[int, int]], available: int) -> None:
    """Require that byte ranges are contiguous and fill the file."""
    expected, previous = 0, None
    for name, (begin, stop) in offsets.items():
        if begin != expected:
            fault = "overlaps" if begin < expected else "leaves a hole after"
            raise CheckpointError(
                f"begins at {begin}, not {expected}, and {fault} "
                f"{'the header' if previous is None else shown(previous)}",
                tensor=name,
            )
        expected, previous = stop, name
    if expected < available:
        raise CheckpointError(
            f"{available - expected:,} bytes follow the last tensor and belong to none"
        )
    if expected > available:
        broken = [name for name, (_, stop) in offsets.items() if stop > available]
        raise CheckpointError(
            f"cut short: {expected:,} bytes of tensors expected, {available:,} found; "
            f"{len(offsets) - len(broken):,} of {len(offsets):,} tensors are whole, not "
            f"{listed(broken)}; download it again"
        )


def _is_size(value: Any) -> bool:
    # bool is a subclass of int, and JSON's `true` is not a size.
    return type(value) is int and 0 <= value <= _INT64_MAX


def _is_unicode(text: str) -> bool:
    """Return whether text is valid Unicode; JSON can spell lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shape_text(shape: list[int]) -> str:
    return str(shape) if len(shape) <= 8 else f"[{', '.join(map(str, shape[:8]))}, …]"
