"""Read and restore a safetensors file."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import (
    LOOK_BYTES,
    Checkpoint,
    SourceTemplate,
    TensorInfo,
    map_file,
)
from tensorcomp.checkpoints.packing import pack, unpack
from tensorcomp.checkpoints.safetensors.header import (
    MAX_HEADER_BYTES,
    PREFIX_BYTES,
    build_header,
    header_bytes,
    read_header,
)
from tensorcomp.errors import CheckpointError, FormatError
from tensorcomp.io.files import file_size, reading
from tensorcomp.io.locations import is_remote

if TYPE_CHECKING:
    from tensorcomp.io.remote_file import RemoteFile

_HEADER = "header"
_METADATA = "metadata"
WHOLE_BYTES = 1 << 22  # bytes up to which one request for all is quicker than two for parts
_SMALL = 1 << 16  # bytes of tensors that are read first, to be bundled


class SafetensorsFile(Checkpoint):
    """An open safetensors file, mapped into memory where the file system allows.

    Of one in an object store, what is asked for is fetched.

    Parameters
    ----------
    source : Path, bytes or RemoteFile
        The file, or its bytes.
    mapped : bool
        Whether to map a file; else each tensor is read when it is asked for.
    private : bool
        Whether what `read_private` returns can be changed without a copy; the file stays as it is.

    Attributes
    ----------
    where : str
        The file's name, for error messages.
    header : Header
        The validated header, metadata included.

    Raises
    ------
    CheckpointError
        If the file cannot be read or breaks the format.
    """

    def __init__(
        self, source: Path | bytes | RemoteFile, *, mapped: bool = True, private: bool = False
    ) -> None:
        self._map: memoryview | bytes | None = None
        self.remote: RemoteFile | None = None
        if is_remote(source):
            from tensorcomp.io.remote_file import RemoteFile  # and threads

            source = RemoteFile(source)
        if not isinstance(source, (bytes, Path)):
            self.path, self.where, self.nbytes = source.path, str(source.path), source.size
            head, end = source.head, header_bytes(source.head)
            if len(head) < end <= source.size:
                head += source.read(len(head), end).tobytes()
            self.header = read_header(io.BytesIO(head), self.nbytes, self.where)
            self.remote = source
        elif isinstance(source, bytes):
            self.nbytes, self.where = len(source), "the given bytes"
            self.header = read_header(io.BytesIO(source), self.nbytes, self.where)
            self._map = source
        else:
            self.path, self.where = source, str(source)
            self.nbytes = file_size(source)
            with reading(source), source.open("rb") as file:
                self.header = read_header(file, self.nbytes, self.where)
                self._map = map_file(file, private=private) if mapped else None
        self.tensors = self.header.tensors
        self.metadata = self.header.metadata

    @property
    def is_mapped(self) -> bool:
        """Whether `read` returns views of the mapped file."""
        return isinstance(self._map, memoryview) and self.remote is None

    @property
    def copies(self) -> bool:  # type: ignore[override]
        """Whether `read` returns memory of its own."""
        return self._map is None

    def fetch(self) -> None:
        """Fetch all of a file in an object store at once, into memory."""
        if self.remote is not None and self._map is None:
            self._map = memoryview(self.remote.read(0, self.nbytes))

    def read_ahead(self, first: Iterable[tuple[int, int]] | None = None) -> None:
        """Fetch early what follows in an object store, as tensors are read in order.

        Parameters
        ----------
        first : iterable of (int, int), optional
            Ranges of the data that are read before; small tensors and the ends of others, unless
            given.
        """
        if self.remote is not None and self._map is None:
            start, spans = self.header.data_start, self.header.offsets.values()
            if first is None:
                first = itertools.chain.from_iterable(map(_first, spans))
            self.remote.read_ahead((start + a, start + b) for a, b in first)

    def ends(self, name: str) -> bytes:
        """Return a tensor's first and last bytes."""
        if self.remote is None or self._map is not None:
            data = self.read(name)  # not by super(): of many tensors, calls take time
            return data[:LOOK_BYTES].tobytes() + data[-LOOK_BYTES:].tobytes()
        begin, stop = (self.header.data_start + place for place in self.header.offsets[name])
        ranges = (begin, min(begin + LOOK_BYTES, stop)), (max(stop - LOOK_BYTES, begin), stop)
        return b"".join(self.remote.read(*span).tobytes() for span in ranges)

    def parts(self, name: str) -> Bytes:
        """Return the tensor's bytes; of a long one in a store, fetched by parts."""
        begin, stop = self.header.offsets[name]
        if self.remote is None or self._map is not None or stop - begin <= WHOLE_BYTES:
            return self.read(name)
        start = self.header.data_start
        return _Part(self.remote, start + begin, start + stop)

    def read(self, name: str) -> np.ndarray:
        """Return the tensor's bytes: a view of the mapped file, or read afresh."""
        data = self.read_private(name)
        data.flags.writeable = False
        return data

    def read_private(self, name: str) -> np.ndarray:
        """Return the tensor's bytes as `read`, writable if the mapping is private."""
        try:
            begin, stop = self.header.offsets[name]
        except KeyError:
            raise CheckpointError(f"has no tensor {shown(name)}", path=self.path) from None
        start, count = self.header.data_start + begin, stop - begin
        if self._map is not None:
            return np.frombuffer(self._map, np.uint8, count, start)
        if self.remote is not None:
            return self.remote.read(start, start + count)
        with reading(self.path):
            data = np.fromfile(self.path, np.uint8, count, offset=start)
        if data.size < count:
            raise CheckpointError("became shorter while it was read", path=self.path)
        return data

    def template(self) -> SourceTemplate:
        """Return the metadata, and the header where the library writes another."""
        metadata = self.header.metadata
        structure = {} if metadata is None else {_METADATA: dict(metadata)}
        usual = build_header(self.tensors, metadata)
        if usual == self.header.raw:
            return SourceTemplate(self.kind, structure)
        return SourceTemplate(self.kind, structure, {_HEADER: pack(self.header.raw, like=usual)})

    def close(self) -> None:
        """Let go of the file, which is unmapped when no array views it."""
        self._map = None
        if self.remote is not None:
            self.remote.close()


def _first(span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield what is read of a tensor before it is encoded."""
    begin, stop = span
    if stop - begin <= _SMALL:
        yield span
    else:
        yield begin, begin + LOOK_BYTES
        yield stop - LOOK_BYTES, stop


class Bytes(Protocol):
    """Bytes of which ranges are taken: an array, or what fetches them."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def __getitem__(self, key: slice, /) -> np.ndarray: ...


class _Part(NamedTuple):
    """Part of a file in an object store, of which what is taken is fetched."""

    file: RemoteFile
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def __getitem__(self, key: slice) -> np.ndarray:  # type: ignore[override]
        begin, stop, _ = key.indices(self.size)
        return self.file.read(self.start + begin, self.start + stop)


def restore_safetensors(template: SourceTemplate, source: Checkpoint, file: IO[bytes]) -> None:
    """Write a safetensors file back, byte for byte, as `open.restore` says."""
    usual = build_header(source.tensors, _metadata(template))
    header = usual
    if _HEADER in template.attachments:
        limit = PREFIX_BYTES + MAX_HEADER_BYTES
        header = unpack(template.attachments[_HEADER], limit=limit, like=usual)
    file.write(header)
    for info in source.tensors:
        for chunk in checked_bytes(source, info):
            file.write(chunk)


def checked_bytes(source: Checkpoint, info: TensorInfo) -> Iterator[memoryview]:
    """Yield a tensor's bytes, and require that they are as many as `info` says."""
    count = 0
    for chunk in source.iter_bytes(info.name):
        count += chunk.nbytes
        if count > info.nbytes:
            break
        yield chunk.data
    if count != info.nbytes:
        raise FormatError(
            f"decodes to {count:,} or more bytes, not {info.nbytes:,}", tensor=info.name
        )


def _metadata(template: SourceTemplate) -> dict[str, str] | None:
    metadata = template.structure.get(_METADATA)
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FormatError("the template's metadata do not map strings to strings")
    return metadata
