"""Read and restore NumPy's ``.npz`` archives, one ``.npy`` array per member.

Object arrays, which need pickle, are refused. A dtype that safetensors lacks (texts, dates,
records, long doubles) travels as the bytes of its array, in the order in which they lie in the
file, and so does a member that is not an array.
"""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from tensorcomp._formatting import shown, unique_name
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.layouts.npy_header import NpyHeader, read_npy_header, usual_npy_header
from tensorcomp.checkpoints.open import MAX_DEFLATE_RATIO, open_zip
from tensorcomp.checkpoints.packing import pack_template, unpack_structure
from tensorcomp.checkpoints.safetensors.file import checked_bytes
from tensorcomp.checkpoints.safetensors.header import METADATA_KEY
from tensorcomp.errors import PARSING_ERRORS, CheckpointError, FormatError, located
from tensorcomp.io.files import file_size, reading, writing

_SUFFIX = ".npy"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip archive, as np.savez writes
_MAX_NAME_BYTES = 0xFFFF
_BLOCK_BYTES = 1 << 20
_UNPACKING_ERRORS = (EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class _Member:
    """A member of the archive, and its header if it is an array."""

    entry: zipfile.ZipInfo
    header: NpyHeader | None

    @property
    def start(self) -> int:
        return len(self.header.raw) if self.header else 0


class NpzFile(Checkpoint):
    """An open ``.npz`` archive; a member is unpacked when it is read.

    Raises
    ------
    CheckpointError
        If the file cannot be read or is damaged, or a member holds Python objects.
    """

    kind: ClassVar[str] = "npz"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.nbytes = file_size(path)
        self._archive = open_zip(path)
        self._members: dict[str, _Member] = {}
        try:
            self._scan()
        except BaseException:
            self.close()
            raise
        self.tensors = tuple(_info(name, member) for name, member in self._members.items())

    def read(self, name: str) -> np.ndarray:
        """Return the array's bytes; in C order, little-endian, if its dtype is known."""
        try:
            member = self._members[name]
        except KeyError:
            raise CheckpointError(f"has no array {shown(name)}", path=self.path) from None
        with self._opened(member.entry) as file:
            file.read(member.start)
            data = _read_exactly(file, member.entry.file_size - member.start)
            if member.header is not None and member.header.safetensors_dtype is not None:
                data = _in_order(data, member.header)
        data.flags.writeable = False
        return data

    def template(self) -> SourceTemplate:
        """Return the members' names, compression methods and unusual headers."""
        members = []
        for info in self.tensors:
            member = self._members[info.name]
            node: dict[str, Any] = {
                "name": info.name,
                "member": member.entry.filename,
                "method": member.entry.compress_type,
            }
            if member.header is None:
                node["header"] = None
            elif member.header.raw != usual_npy_header(info):
                node["header"] = member.header.raw.decode("latin-1")
            members.append(node)
        return pack_template(self.kind, {"members": members})

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()

    def _scan(self) -> None:
        """Read every array's header and compare its claims with the archive."""
        taken = {METADATA_KEY}
        seen: set[str] = set()
        for entry in self._archive.infolist():
            if entry.filename in seen:
                raise self._fault(entry, "stands twice in the archive; save it again")
            seen.add(entry.filename)
            deflated = entry.compress_type == zipfile.ZIP_DEFLATED
            if entry.file_size > self.nbytes * (MAX_DEFLATE_RATIO if deflated else 1) and (
                deflated or entry.compress_type == zipfile.ZIP_STORED
            ):
                raise self._fault(
                    entry, f"claims {entry.file_size:,} bytes, more than {self.nbytes:,} can hold"
                )
            member = _Member(entry, self._npy_header(entry))
            if member.header and member.start + member.header.nbytes != entry.file_size:
                raise self._fault(
                    entry,
                    f"its header claims {member.header.nbytes:,} bytes of data, not its "
                    f"{entry.file_size - member.start:,}; the file is damaged",
                )
            name = entry.filename.removesuffix(_SUFFIX)
            self._members[unique_name(name, taken)] = member

    def _npy_header(self, entry: zipfile.ZipInfo) -> NpyHeader | None:
        if not entry.filename.endswith(_SUFFIX):
            return None
        with self._opened(entry) as file:
            return read_npy_header(file)

    @contextmanager
    def _opened(self, entry: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
        """Open a member; any refusal becomes a `CheckpointError`."""
        try:
            with (
                located(path=self.path, tensor=entry.filename),
                reading(self.path),
                self._archive.open(entry) as file,
            ):
                yield file
        except (*PARSING_ERRORS, *_UNPACKING_ERRORS) as error:
            what = f"cannot be unpacked: {str(error)[:200]}; get it again"
            raise self._fault(entry, what) from error

    def _fault(self, entry: zipfile.ZipInfo, message: str) -> CheckpointError:
        return CheckpointError(message, path=self.path, tensor=entry.filename)


def restore_npz(template: SourceTemplate, source: Checkpoint, out_path: Path) -> None:
    """Write an ``.npz`` archive of equal arrays, as `open.restore` says."""
    members = unpack_structure(template).get("members")
    infos = {info.name: info for info in source.tensors}
    if not isinstance(members, list):
        raise FormatError("the template of the .npz archive lacks its members")
    with writing(out_path), zipfile.ZipFile(out_path, "w") as archive:
        for node in members:
            try:
                info, entry = infos[node["name"]], _entry(node)
                raw = _raw_header(node, info)
            except PARSING_ERRORS as error:
                raise FormatError(f"the template of the .npz is damaged: {error!r}") from error
            if entry.compress_type not in _METHODS or entry.filename in archive.NameToInfo:
                raise FormatError("the template of the .npz has an impossible member")
            with archive.open(entry, "w", force_zip64=True) as file:
                file.write(raw)
                for chunk in _file_order(raw, source, info):
                    file.write(chunk)


def _entry(node: dict[str, Any]) -> zipfile.ZipInfo:
    name, method = node["member"], node["method"]
    # an error now, where zipfile would meet it in mid-file
    if len(name.encode()) > _MAX_NAME_BYTES or type(method) is not int:
        raise ValueError(f"a member {shown(name)} of method {method!r}")
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = method
    return entry


def _raw_header(node: dict[str, Any], info: TensorInfo) -> bytes:
    """Return a member's header; empty if it is not an array."""
    if "header" not in node:
        return usual_npy_header(info)
    return b"" if node["header"] is None else bytes(node["header"].encode("latin-1"))


def _file_order(raw: bytes, source: Checkpoint, info: TensorInfo) -> Iterator[memoryview]:
    """Yield an array's bytes as its header says that they lie in the file."""
    header = None
    if raw:
        try:
            header = read_npy_header(io.BytesIO(raw))
        except CheckpointError as error:
            raise FormatError(
                f"the template of the .npz archive is damaged: {error}", tensor=info.name
            ) from error
        if header.nbytes != info.nbytes:
            raise FormatError("does not fit its header", tensor=info.name)
    chunks = checked_bytes(source, info)
    if header is None or header.safetensors_dtype is None or _is_plain(header):
        yield from chunks
        return
    values = np.frombuffer(b"".join(chunks), header.dtype.newbyteorder("<")).reshape(header.shape)
    order = values.T if header.fortran_order else values
    yield np.ascontiguousarray(order, header.dtype).reshape(-1).view(np.uint8).data


def _in_order(data: np.ndarray, header: NpyHeader) -> np.ndarray:
    """Return bytes that lie as in the file in C order and little-endian."""
    if _is_plain(header):
        return data
    shape = header.shape[::-1] if header.fortran_order else header.shape
    values = data.view(header.dtype).reshape(shape)
    order = values.T if header.fortran_order else values
    return np.ascontiguousarray(order, header.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)


def _is_plain(header: NpyHeader) -> bool:
    return not header.fortran_order and header.dtype == header.dtype.newbyteorder("<")


def _info(name: str, member: _Member) -> TensorInfo:
    nbytes = member.entry.file_size - member.start
    dtype = member.header.safetensors_dtype if member.header else None
    if member.header is None or dtype is None:
        return TensorInfo(name, "U8", (nbytes,), nbytes)
    return TensorInfo(name, dtype, member.header.shape, nbytes)


def _read_exactly(file: IO[bytes], count: int) -> np.ndarray:
    data = np.empty(count, np.uint8)
    done = 0
    while done < count:
        block = file.read(min(_BLOCK_BYTES, count - done))
        if not block:
            raise CheckpointError(f"ends after {done:,} of {count:,} bytes; it is damaged")
        data[done : done + len(block)] = np.frombuffer(block, np.uint8)
        done += len(block)
    file.read(1)  # the archive's checksum is compared at the end of the member
    return data
