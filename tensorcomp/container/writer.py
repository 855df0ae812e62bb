"""Write a compressed file as a stream of blobs, then its header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash

from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.header import PREFIX_BYTES, build_header
from tensorcomp.codecs.base import Pieces
from tensorcomp.codecs.payload import byte_count, join
from tensorcomp.container.blob import blob_index
from tensorcomp.container.manifest import MARK, METADATA_KEY, Manifest, manifest_to_text

_BLOCK = 1 << 24
_SMALL = 1 << 16  # bytes that are sooner joined than written piece by piece
_MARGIN = 512  # bytes of the header for trees, which the draft does not know
_MOVED_AT_ONCE = 1 << 24  # bytes of blobs that are sooner moved than padded for


class Output(Protocol):
    """Protocol of the binary files that a writer takes."""

    def write(self, data: Any, /) -> int:
        """Write all bytes at the position; return how many."""

    def seek(self, position: int, /) -> int:
        """Move to a position, maybe behind the end."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes."""

    def truncate(self, size: int, /) -> int:
        """Cut the file after so many bytes."""


class SizeOnly:
    """Output that keeps nothing, to measure a file's size."""

    def write(self, data: Any, /) -> int:
        """Return the number of bytes."""
        return len(data)

    def seek(self, position: int, /) -> int:
        """Return the position."""
        return position

    def read(self, size: int, /) -> bytes:
        """Return so many zeros."""
        return bytes(size)

    def truncate(self, size: int, /) -> int:
        """Return the size."""
        return size


class Payload(NamedTuple):
    """Payload of a chunk in pieces, with its checksum.

    The checksum is the XXH3-64 of all pieces.
    """

    pieces: Sequence[np.ndarray | bytes | memoryview]
    checksum: int
    nbytes: int

    @classmethod
    def of(cls, pieces: Pieces) -> Payload:
        """Take pieces and their checksum."""
        nbytes = byte_count(pieces)
        if nbytes < _SMALL:
            joined = join(pieces)
            return cls((joined,), xxhash.xxh3_64_intdigest(joined), nbytes)
        digest = xxhash.xxh3_64()
        for piece in pieces:
            digest.update(piece)
        return cls(pieces, digest.intdigest(), nbytes)


@dataclass
class _Blob:
    """Blob being written."""

    name: str
    begin: int
    shared: bytes
    chunks: int
    entries: list[tuple[int, int]] = field(default_factory=list)


class CompressedWriter:
    """Write blobs one after the other, then the header in front of them.

    The header's size is not known before the last blob is written. Room for it is set aside from a
    draft of the manifest and filled up with spaces; should it not do, the blobs are moved.

    Parameters
    ----------
    file : binary file
        Seekable and readable; what is in it is dropped.
    draft : Manifest
        With every tensor that may be stored, in order; trees and sizes are filled in later, and
        digests, which must be as incompressible as the real ones will be.
    """

    def __init__(self, file: Output, draft: Manifest) -> None:
        self._file = file
        self._blobs: dict[str, int] = {}
        self._start = header_bytes(draft)
        self._position = self._start
        file.truncate(0)
        file.seek(self._start)

    def begin(self, name: str, shared: bytes, chunks: int) -> None:
        """Begin a tensor's blob of so many chunks; the blob before it must be whole."""
        self._blob = _Blob(name, self._position, shared, chunks)
        if shared:
            self._write(shared)

    def write_chunk(self, payload: Payload) -> int:
        """Write the next payload; return the bytes of a finished blob, else 0."""
        blob, pieces, size = self._blob, list(payload.pieces), payload.nbytes
        blob.entries.append((size, payload.checksum))
        whole = len(blob.entries) == blob.chunks
        if whole:
            pieces.append(blob_index(blob.shared, blob.entries))
        if size < _SMALL:
            pieces = [join(pieces)]
        for piece in pieces:
            self._write(piece)
        if not whole:
            return 0
        size = self._position - blob.begin
        self._blobs[blob.name] = size
        return size

    def rewind(self) -> None:
        """Discard the last blob, whole or not."""
        self._position = self._blob.begin
        self._blobs.pop(self._blob.name, None)
        self._file.seek(self._position)
        self._file.truncate(self._position)

    def _write(self, data: np.ndarray | bytes | memoryview) -> None:
        self._position += len(data)
        self._file.write(data)

    def finish(self, manifest: Manifest) -> int:
        """Write the header and return the file's bytes."""
        header = _header(manifest, self._blobs)
        start, end = max(self._start, len(header)), self._position
        if start > self._start:
            _move(self._file, self._start, end, start - self._start)
        elif manifest.bases and end - start < _MOVED_AT_ONCE:  # small enough for padding to count
            start = len(header)
            self._file.seek(self._start)
            blobs = _read_all(self._file, end - self._start)
            self._file.seek(start)
            self._file.write(blobs)
            self._file.truncate(end + start - self._start)
        self._file.seek(0)
        length = (start - PREFIX_BYTES).to_bytes(PREFIX_BYTES, "little")
        self._file.write(length + header[PREFIX_BYTES:].ljust(start - PREFIX_BYTES))
        return end + start - self._start


def header_bytes(draft: Manifest) -> int:
    """Return the bytes to reserve for a header, from a draft of the manifest."""
    blobs = {name: record.nbytes + 64 for name, record in draft.blobs.items()}
    drafted = len(_header(draft, blobs))
    if sum(blobs.values()) < _MOVED_AT_ONCE:
        return drafted
    return drafted + _MARGIN + 8 * (len(draft.blobs) // 4)


def _header(manifest: Manifest, blobs: dict[str, int]) -> bytes:
    infos = [TensorInfo(name, "U8", (size,), size) for name, size in blobs.items()]
    return build_header(infos, {**MARK, METADATA_KEY: manifest_to_text(manifest)})


def _move(file: Output, begin: int, end: int, by: int) -> None:
    """Shift bytes towards the end of the file, last block first."""
    position = end
    while position > begin:
        size = min(_BLOCK, position - begin)
        position -= size
        file.seek(position)
        block = _read_all(file, size)
        file.seek(position + by)
        file.write(block)


def _read_all(file: Output, size: int) -> bytes:
    block = file.read(size)
    while len(block) < size:
        more = file.read(size - len(block))
        if not more:
            raise OSError("the file became shorter while it was written")
        block += more
    return block
