"""Find the arrays of NumPy's ``.npy`` files and ``.npz`` archives.

Deflated members stay as they are: other versions of zlib pack otherwise.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO

from tensorcomp.checkpoints.layouts.layout import Array, Layout
from tensorcomp.checkpoints.layouts.npy_header import MAX_HEADER_BYTES, read_npy_header
from tensorcomp.checkpoints.layouts.zip_members import stored_members
from tensorcomp.errors import CheckpointError, located
from tensorcomp.io.files import file_size, reading

_SUFFIX = ".npy"


def npy_layout(path: Path) -> Layout:
    """Find the array of an ``.npy`` file.

    Raises `CheckpointError` if its header is damaged, or claims another size.
    """
    with reading(path), path.open("rb") as file, located(path=path):
        array = npy_array(file, "array", file_size(path))
    return Layout("npy", [] if array is None else [array])


def npz_layout(path: Path) -> Layout:
    """Find the stored arrays of an ``.npz`` archive; raise as `npy_layout` does."""
    arrays = []
    with reading(path), path.open("rb") as file:
        for member in stored_members(path).values():
            if not member.name.endswith(_SUFFIX):
                continue
            file.seek(member.start)
            with located(path=path, tensor=member.name):
                array = npy_array(file, member.name.removesuffix(_SUFFIX), member.size)
            if array is not None:
                arrays.append(array)
    return Layout("npz", arrays)


def npy_array(file: IO[bytes], name: str, size: int) -> Array | None:
    """Return the array whose header follows; None if only NumPy has its dtype."""
    begin = file.tell()
    header = read_npy_header(io.BytesIO(file.read(min(size, MAX_HEADER_BYTES))))
    file.seek(begin + len(header.raw))
    if len(header.raw) + header.nbytes != size and not header.dtype.hasobject:
        raise CheckpointError(
            f"its header claims {header.nbytes:,} bytes of data, not its "
            f"{size - len(header.raw):,}; the file is damaged"
        )
    dtype = header.safetensors_dtype
    if dtype is None:
        return None
    rank = len(header.shape)
    axes = tuple(reversed(range(rank))) if header.fortran_order and rank > 1 else ()
    swapped = header.dtype != header.dtype.newbyteorder("<")
    return Array(name, dtype, header.shape, file.tell(), header.nbytes, axes, swapped)
