"""Find the arrays of HDF5 files, and of the one in a ``.keras`` archive.

Arrays are contiguous data sets of plain numbers. Chunked and filtered ones stay as they are: other
versions of the filters' libraries pack otherwise.
"""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tensorcomp._formatting import bytes_text, counted
from tensorcomp.checkpoints.layouts.layout import Array, Layout
from tensorcomp.checkpoints.layouts.zip_members import stored_members
from tensorcomp.dtypes import dtype_name
from tensorcomp.errors import PARSING_ERRORS, CheckpointError, located, needing
from tensorcomp.io.file_part import FilePart
from tensorcomp.io.files import file_size, reading

if TYPE_CHECKING:
    import h5py

_KERAS_WEIGHTS = "model.weights.h5"


def hdf5_layout(path: Path) -> Layout:
    """Find the arrays of an HDF5 file.

    Raises
    ------
    CheckpointError
        If the file is damaged or cut short, or h5py is not installed.
    """
    return _layout("hdf5", path, 0, file_size(path))


def keras_layout(path: Path) -> Layout:
    """Find the arrays of a ``.keras`` archive; raise as `hdf5_layout` does."""
    member = stored_members(path).get(_KERAS_WEIGHTS)
    if member is None:
        note = f"its {_KERAS_WEIGHTS} is deflated, which keras does not; compressed as bytes"
        return Layout("keras", (), notes=(note,))
    return _layout("keras", path, member.start, member.start + member.size)


def _layout(kind: str, path: Path, start: int, stop: int) -> Layout:
    """Find the arrays of an HDF5 file that is a part of a file."""
    with located(path=path), needing("hdf5", CheckpointError, "an HDF5 file is read by h5py"):
        import h5py
    arrays: list[Array] = []
    reasons: Counter[str] = Counter()
    left_bytes = 0

    def add(name: str | bytes, item: h5py.Group | h5py.Dataset) -> None:
        nonlocal left_bytes
        if isinstance(name, bytes):  # that is no UTF-8
            name = name.decode(errors="backslashreplace")
        if not isinstance(item, h5py.Dataset) or not item.id.get_storage_size():
            return
        reason = _why_bytes(item)
        if reason is None:
            arrays.append(_array(name, item, start))
        else:
            reasons[reason] += 1
            left_bytes += item.id.get_storage_size()

    with located(path=path), reading(path):
        try:
            with h5py.File(io.BufferedReader(FilePart(path, start, stop)), "r") as file:
                file.visititems(add)
        except (*PARSING_ERRORS, OSError) as error:
            raise CheckpointError(
                f"an HDF5 file that is damaged or cut short ({error}); get it again"
            ) from error
    for array in arrays:
        if array.stop > stop:
            raise CheckpointError(
                "ends behind the HDF5 file, which is cut short; get it again",
                path=path, tensor=array.name,
            )  # fmt: skip
    if not left_bytes:
        return Layout(kind, arrays, notes=())
    why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
    sets = counted(reasons.total(), "data set")
    note = f"{sets} of {bytes_text(left_bytes)} compressed as bytes: {why}"
    return Layout(kind, arrays, notes=(f"{note}; stored contiguously they would take less",))


def _why_bytes(data: h5py.Dataset) -> str | None:
    """Return why a data set is no array at a place of the file; None if it is one."""
    import h5py

    created = data.id.get_create_plist()
    if created.get_layout() != h5py.h5d.CONTIGUOUS:
        layouts = {h5py.h5d.CHUNKED: "chunked", h5py.h5d.COMPACT: "compact"}
        name = layouts.get(created.get_layout(), "virtual")
        return f"{name} and filtered" if created.get_nfilters() else name
    if created.get_external_count():
        return "in other files"
    return "of a type that is not plain numbers" if _dtype(data) is None else None


def _dtype(data: h5py.Dataset) -> str | None:
    """Return the safetensors name of a data set's type; None if it has none."""
    import h5py

    try:
        dtype = data.dtype
        said = data.attrs.get("dtype") if dtype.itemsize == 2 else None
        if isinstance(said, str) and said == "bfloat16":
            return "BF16"  # as keras says it
        # h5py shows types that NumPy lacks as the next wider ones.
        is_same = h5py.h5t.py_create(dtype, logical=True) == data.id.get_type()
        return dtype_name(dtype) if is_same else None
    except TypeError:
        return None


def _array(name: str, data: h5py.Dataset, start: int) -> Array:
    """Return the array of a contiguous data set in an HDF5 file that begins at `start`."""
    dtype = _dtype(data)
    assert dtype is not None
    swapped = data.dtype.itemsize > 1 and data.dtype.byteorder == ">"
    # The parts of the path are those of the names elsewhere; TensorFlow adds `:0`.
    return Array(
        name.replace("/", ".").removesuffix(":0"),
        dtype,
        data.shape,
        start + data.id.get_offset(),
        data.id.get_storage_size(),
        swapped=swapped,
    )
