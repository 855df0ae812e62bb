"""Writes a compressed file as a stream, and files so that they are whole or not there."""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from tensorcomp.checkpoints.access import writing
from tensorcomp.checkpoints.checkpoint import TensorInfo
from tensorcomp.checkpoints.safetensors_header import build_header
from tensorcomp.container.blob import blob_index
from tensorcomp.container.manifest import METADATA_KEY, Manifest, TensorRecord, manifest_to_text
from tensorcomp.errors import CheckpointError

_BLOCK = 1 << 24
_MARGIN = 512  # bytes of the header for trees, which the draft does not know


@contextlib.contextmanager
def atomic_file(path: Path, *, force: bool) -> Iterator[io.FileIO]:
    """Open a file that appears under `path`, complete and synced, when the block ends.

    Until then it is ``.NAME.tensorcomp-part`` in the same folder. An error removes it; what a
    killed run left behind is overwritten by the next one.

    Raises
    ------
    CheckpointError
        If `path` exists and `force` is not given, another run is writing it, or the system refuses.
    """
    refuse_existing(path, force=force)
    partial = path.with_name(f".{path.name}.tensorcomp-part")
    with writing(path), open(partial, "r+b", buffering=0, opener=_create) as file:
        _lock(file, path)
        try:
            file.truncate()
            yield file
            os.fsync(file.fileno())
            refuse_existing(path, force=force)
            os.replace(partial, path)  # noqa: PTH105 - the atomic one, by name
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


def _create(path: str, flags: int) -> int:
    """Open for update, creating the file but not truncating it: it may be another run's."""
    return os.open(path, flags | os.O_CREAT, 0o666)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise a CheckpointError if `path` exists and may not be replaced."""
    if path.is_dir():
        raise CheckpointError(f"{path}: is a folder; give another name by -o")
    if path.exists() and not force:
        raise CheckpointError(f"{path}: exists already; --force replaces it, -o names another")
    if not path.parent.is_dir():
        raise CheckpointError(f"{path}: there is no folder {path.parent}")


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep two runs from writing one file; where the system has no such locks, go on without."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(f"{path}: another run is writing it") from None
    except OSError:
        return


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
    return {name: record.nbytes + 64 for name, record in draft.tensors.items()}


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
