"""Write a file back from its arrays and the bytes between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.layouts.layout import Array, in_order, layout_of
from tensorcomp.checkpoints.layouts.zip_members import write_checksums
from tensorcomp.checkpoints.packing import unpack_structure
from tensorcomp.checkpoints.safetensors.file import checked_bytes
from tensorcomp.errors import FormatError
from tensorcomp.io.files import writing


def hidden_tensors(template: SourceTemplate) -> frozenset[str]:
    """Return the tensors that hold what lies between the arrays of a file."""
    hidden = unpack_structure(template).get("hidden")
    if not isinstance(hidden, list) or not all(isinstance(name, str) for name in hidden):
        raise FormatError("the template of the file does not say which tensors are its arrays")
    return frozenset(hidden)


def restore_layout(template: SourceTemplate, source: Checkpoint, out_path: Path) -> None:
    """Write the file of a layout, byte for byte, as `open.restore` says.

    Where arrays lost something, the checksums of zip archives are computed anew.
    """
    arrays = layout_of(template, source.tensors).arrays
    skeleton, *_ = source.tensors if len(source.tensors) > len(arrays) else (None,)
    with writing(out_path), out_path.open("wb") as file:
        if skeleton is not None:
            _write_skeleton(file, source, skeleton, arrays)
        for array, info in zip(arrays, source.tensors[skeleton is not None :], strict=True):
            file.seek(array.start)
            for chunk in _file_bytes(source, info, array):
                file.write(chunk)
    changed = [array.start for array in arrays if not source.is_exact(array.name)]
    if changed:
        with writing(out_path):
            write_checksums(out_path, changed, in_a_row=template.format == "distcp")


def _write_skeleton(
    file: IO[bytes], source: Checkpoint, skeleton: TensorInfo, arrays: Sequence[Array]
) -> None:
    """Write the bytes between the arrays, chunk by chunk."""
    ends = [0, *(array.stop for array in arrays)]
    between = sum(array.start - end for array, end in zip(arrays, ends, strict=False))
    if between > skeleton.nbytes:
        raise FormatError(f"expected {between:,} bytes or more", tensor=skeleton.name)
    starts = [*(array.start for array in arrays), ends[-1] + skeleton.nbytes - between]
    runs = iter(zip(ends, starts, strict=True))
    start = stop = 0
    for chunk in checked_bytes(source, skeleton):
        done = 0
        while done < chunk.nbytes:
            while start == stop:
                start, stop = next(runs)
                file.seek(start)
            count = min(stop - start, chunk.nbytes - done)
            file.write(chunk[done : done + count])
            start, done = start + count, done + count


def _file_bytes(source: Checkpoint, info: TensorInfo, array: Array) -> Iterator[memoryview]:
    """Yield a tensor's bytes as the file has them."""
    chunks = checked_bytes(source, info)
    if array.axes or array.swapped:
        data = np.frombuffer(b"".join(chunks), np.uint8)
        chunks = iter([in_order(data, array, back=True).data])
    return chunks
