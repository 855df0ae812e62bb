"""Write ``.npz`` archives of files of format 7 and before.

They come back with equal arrays. A dtype that safetensors lacks (texts, dates, records, long
doubles) travelled as the bytes of its array, in the order in which they lie in the file, and so did
a member that is not an array.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.layouts.npy_header import NpyHeader, read_npy_header
from tensorcomp.checkpoints.packing import unpack_structure
from tensorcomp.checkpoints.safetensors.file import checked_bytes
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PARSING_ERRORS, CheckpointError, FormatError
from tensorcomp.io.files import writing

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip archive, as np.savez writes
_MAX_NAME_BYTES = 0xFFFF


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


def _usual_header(info: TensorInfo) -> bytes:
    """Return NumPy's header of a little-endian array in C order."""
    dtype = numpy_dtype(info.dtype)
    if dtype is None:
        return b""
    file = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    fields = {"descr": descr, "fortran_order": False, "shape": info.shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


def _raw_header(node: dict[str, Any], info: TensorInfo) -> bytes:
    """Return a member's header; empty if it is not an array."""
    if "header" not in node:
        return _usual_header(info)
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


def _is_plain(header: NpyHeader) -> bool:
    return not header.fortran_order and header.dtype == header.dtype.newbyteorder("<")
