"""Find the arrays of NumPy's ``.npy`` files and ``.npz`` archives.

Deflated members stay as they are: other versions of zlib pack otherwise.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.layouts.layout import Array, Layout
from tensorcomp.checkpoints.layouts.npy_header import (
    MAX_HEADER_BYTES,
    HeaderError,
    read_npy_header,
)
from tensorcomp.checkpoints.layouts.zip_members import packed_notes, stored_members
from tensorcomp.errors import CheckpointError
from tensorcomp.io.files import file_size, reading

_SUFFIX = ".npy"


def npy_layout(path: Path) -> Layout:
    """Find the array of an ``.npy`` file, the first if it holds several.

    Raises `CheckpointError` if the file cannot be read, or ends before its array does.
    """
    with reading(path), path.open("rb") as file:
        try:
            array = npy_array(file, "array", file_size(path))
        except HeaderError as error:
            return Layout("npy", (), notes=(f"{error.message}; compressed as bytes",))
        except CheckpointError as error:
            raise error.at(path=path) from None
    return Layout("npy", [] if array is None else [array])


def npz_layout(path: Path) -> Layout:
    """Find the stored arrays of an ``.npz`` archive.

    Raises `CheckpointError` if the file cannot be read, or its directory is damaged.
    """
    arrays, notes = [], packed_notes(path)
    with reading(path), path.open("rb") as file:
        for member in stored_members(path).values():
            if not member.name.endswith(_SUFFIX):
                continue
            file.seek(member.start)
            try:
                array = npy_array(file, member.name.removesuffix(_SUFFIX), member.size)
            except CheckpointError as error:
                notes.append(f"{shown(member.name)} {error.message}; compressed as bytes")
                continue
            if array is not None:
                arrays.append(array)
    return Layout("npz", arrays, notes=notes or None)


def npy_array(file: IO[bytes], name: str, size: int) -> Array | None:
    """Return the array whose header follows; None if only NumPy has its dtype."""
    begin = file.tell()
    header = read_npy_header(io.BytesIO(file.read(min(size, MAX_HEADER_BYTES))))
    file.seek(begin + len(header.raw))
    if len(header.raw) + header.nbytes > size and not header.dtype.hasobject:
        raise CheckpointError(
            f"its header claims {header.nbytes:,} bytes of data, not its "
            f"{size - len(header.raw):,}: it is cut short or damaged"
        )
    dtype = header.safetensors_dtype
    if dtype is None:
        return None
    rank = len(header.shape)
    axes = tuple(reversed(range(rank))) if header.fortran_order and rank > 1 else ()
    swapped = header.dtype != header.dtype.newbyteorder("<")
    return Array(name, dtype, header.shape, file.tell(), header.nbytes, axes, swapped)
