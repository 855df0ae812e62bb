"""Read and restore a safetensors file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo, map_file
from tensorcomp.checkpoints.packing import pack, unpack
from tensorcomp.checkpoints.safetensors.header import (
    MAX_HEADER_BYTES,
    PREFIX_BYTES,
    build_header,
    read_header,
)
from tensorcomp.errors import CheckpointError, FormatError
from tensorcomp.io.files import file_size, reading

_HEADER = "header"
_METADATA = "metadata"


class SafetensorsFile(Checkpoint):
    """An open safetensors file, mapped into memory where the file system allows.

    Parameters
    ----------
    source : Path or bytes
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

    def __init__(self, source: Path | bytes, *, mapped: bool = True, private: bool = False) -> None:
        self._map: memoryview | bytes | None
        if isinstance(source, bytes):
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
        return isinstance(self._map, memoryview)

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
