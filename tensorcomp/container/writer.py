"""Writes a compressed file as a stream, and files so that they are whole or not there."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from tensorcomp.checkpoints.checkpoint import TensorInfo
from tensorcomp.checkpoints.safetensors_header import build_header
from tensorcomp.container.blob import blob_index
from tensorcomp.container.manifest import METADATA_KEY, Manifest, TensorRecord, manifest_to_text

_BLOCK = 1 << 24
_MARGIN = 512  # bytes of the header for trees, which the draft does not know


@dataclass
class _OpenBlob:
    name: str
    begin: int
    shared: bytes
    chunks: int
    entries: list[tuple[int, int]] = field(default_factory=list)


class CompressedWriter:
    """Writes blobs one after the other, then the header in front of them.

    The header's size is not known before the last blob is written. Room for it is set aside from a
    draft of the manifest and filled up with spaces; should it not do, the blobs are moved.

    Parameters
    ----------
    file : binary file
        Seekable, readable and empty.
    draft : Manifest
        With every tensor that may be stored, in order; digests and sizes are filled in later.
    """

    def __init__(self, file: BinaryIO, draft: Manifest) -> None:
        self._file = file
        self._blobs: dict[str, int] = {}
        draft_header = _header(_filled(draft), _largest_blobs(draft))
        self._start = len(draft_header) + _MARGIN + 8 * (len(draft.tensors) // 4)
        self._position = self._start
        file.seek(self._start)
        self._open: _OpenBlob | None = None

    def begin(self, name: str, shared: bytes, chunks: int) -> None:
        """Begin a tensor's blob of so many chunks; the blob before it must be whole."""
        self._open = _OpenBlob(name, self._position, shared, chunks)
        self._write(shared)

    def write_chunk(self, payload: bytes, checksum: int) -> int:
        """Write the next chunk's payload; after a blob's last one return the blob's bytes, else 0.

        `checksum` is the payload's XXH3-64.

        Raises
        ------
        ValueError
            If no blob is open.
        """
        blob = self._open
        if blob is None:
            raise ValueError("there is no blob to write a chunk to")
        blob.entries.append((len(payload), checksum))
        self._write(payload)
        if len(blob.entries) < blob.chunks:
            return 0
        self._write(blob_index(blob.shared, blob.entries))
        size = self._position - blob.begin
        self._blobs[blob.name] = size
        self._open = None
        return size

    def _write(self, data: bytes) -> None:
        self._position += len(data)
        _write_all(self._file, data)

    def finish(self, manifest: Manifest) -> int:
        """Write the header and return the file's bytes."""
        header = _header(manifest, self._blobs)
        if len(header) > self._start:
            _move(self._file, self._start, self._position, len(header) - self._start)
            self._position += len(header) - self._start
            self._start = len(header)
        padding = self._start - len(header)
        length = self._start - 8
        end = self._position
        self._file.seek(0)
        self._write(length.to_bytes(8, "little") + header[8:] + b" " * padding)
        return end


def _header(manifest: Manifest, blobs: dict[str, int]) -> bytes:
    infos = [TensorInfo(name, "U8", (size,), size) for name, size in blobs.items()]
    return build_header(infos, {METADATA_KEY: manifest_to_text(manifest)})


def _filled(draft: Manifest) -> Manifest:
    """Return the draft with digests as incompressible as the real ones will be."""
    numbers = random.Random(0)
    fill: Callable[[TensorRecord], TensorRecord] = lambda record: replace(  # noqa: E731
        record, digest=f"{numbers.getrandbits(64):016x}"
    )
    return replace(draft, tensors={name: fill(record) for name, record in draft.tensors.items()})


def _largest_blobs(draft: Manifest) -> dict[str, int]:
    stored = (record for record in draft.tensors.values() if record.same_as is None)
    return {record.name: record.nbytes + 64 for record in stored}


def _move(file: BinaryIO, begin: int, end: int, by: int) -> None:
    """Shift bytes towards the end of the file, last block first."""
    position = end
    while position > begin:
        size = min(_BLOCK, position - begin)
        position -= size
        file.seek(position)
        block = _read_all(file, size)
        file.seek(position + by)
        _write_all(file, block)


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write all bytes: an unbuffered file may take fewer at a time, on a full disk say."""
    written = file.write(data)
    while written < len(data):
        written += file.write(memoryview(data)[written:])


def _read_all(file: BinaryIO, size: int) -> bytes:
    block = file.read(size)
    while len(block) < size:
        more = file.read(size - len(block))
        if not more:
            raise OSError("the file became shorter while it was written")
        block += more
    return block
