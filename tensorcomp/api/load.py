"""Load compressed tensors by functions with safetensors' signatures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp._threads import thread_count
from tensorcomp.container.decoding import Job, decode_all, decode_jobs
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.records import TensorRecord
from tensorcomp.container.tensor_blob import ChunkedTensor, decode_rows, decode_tensor
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import CheckpointError, FormatError, OptionError
from tensorcomp.io.memory_pages import empty_in_large_pages

_ALIGNMENT = 64


def load(
    data: bytes,
    framework: str = "np",
    device: Any = "cpu",
    *,
    threads: int | None = None,
    max_bytes: int | None = None,
) -> dict[str, Any]:
    """Return the tensors of compressed bytes, like ``safetensors.numpy.load``.

    Parameters
    ----------
    data : bytes
        From `save`, or the content of a compressed file.
    framework : {"np", "pt"}
        NumPy arrays, or torch tensors.
    device : str or torch.device
        Where torch tensors go.
    threads : int, optional
        All available processors by default.
    max_bytes : int, optional
        Limit of the bytes of tensors in memory; by default 1 GiB and 1,000 times the file.

    Returns
    -------
    dict of str to array
        Under every name, aliases included; tied tensors share memory. A dtype that the framework
        lacks comes as flat uint8.

    Raises
    ------
    CheckpointError, FormatError
        If the bytes are not a compressed checkpoint, or damaged.
    """
    return _load_all(data, framework, device, threads, max_bytes)


def load_file(
    filename: str | os.PathLike[str],
    framework: str = "np",
    device: Any = "cpu",
    *,
    threads: int | None = None,
    max_bytes: int | None = None,
) -> dict[str, Any]:
    """Return a compressed file's tensors, like ``safetensors.*.load_file``.

    Parameters
    ----------
    filename : str or path-like
        A file that tensorcomp compressed.
    framework, device, threads, max_bytes
        As for `load`.

    Returns
    -------
    dict of str to array
        As for `load`.

    Raises
    ------
    CheckpointError, FormatError
        If the file cannot be read, is not a compressed checkpoint, or is damaged.
    """
    return _load_all(Path(filename), framework, device, threads, max_bytes)


Converter = Callable[[np.ndarray, str, tuple[int, ...]], Any]


def _converter(framework: str, device: Any) -> Converter:
    if framework in ("np", "numpy"):
        return _as_array
    if framework in ("pt", "torch", "pytorch"):
        from tensorcomp._torch_arrays import numpy_to_torch

        return lambda flat, dtype, shape: numpy_to_torch(flat, dtype, shape, device)
    raise OptionError(f"expected framework to be 'np' or 'pt', got {framework!r}")


def _as_array(flat: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a tensor's bytes as an array, of bytes where NumPy lacks the type."""
    numpy_type = numpy_dtype(dtype)
    try:
        return flat if numpy_type is None else np.ndarray(shape, numpy_type, flat)
    except ValueError as error:
        raise FormatError(f"NumPy has no array of {len(shape)} axes: {error}") from error


def _load_all(
    source: bytes | Path, framework: str, device: Any, threads: int | None, max_bytes: int | None
) -> dict[str, Any]:
    """Decode every tensor into one allocation of large pages.

    The tensors are views of it, as those of a mapped safetensors file are views of the map.
    """
    convert = _converter(framework, device)
    with CompressedFile(source) as file:
        file.check_expansion(max_bytes)
        manifest = file.manifest
        blobs = manifest.blobs.values()
        sizes = [-(-record.nbytes // _ALIGNMENT) * _ALIGNMENT for record in blobs]
        try:
            arena = empty_in_large_pages(sum(sizes))
        except MemoryError as error:
            raise CheckpointError(
                f"its tensors take {sum(sizes):,} bytes, more memory than there is; "
                "take them one by one by safe_open",
                path=file.where,
            ) from error
        starts: dict[str, int] = {}
        jobs: list[Job] = []
        start = 0
        for record, size in zip(blobs, sizes, strict=True):
            tensor, starts[record.name] = file.open_blob(record), start
            out = np.ndarray(tensor.grid.shape, tensor.grid.dtype, arena, start)
            jobs += decode_jobs(tensor, out)
            start += size
        decode_all(jobs, thread_count(threads))
    tensors = {}
    for name, record in manifest.tensors.items():
        stored = record if record.same_as is None else manifest.tensors[record.same_as]
        start = starts[stored.blob]
        if stored.bundle is not None:
            start += manifest.layout.spans[stored.name].start
        tensors[name] = convert(arena[start : start + record.nbytes], record.dtype, record.shape)
    return tensors | {name: tensors[target] for name, target in manifest.aliases.items()}


class safe_open:
    """Open a compressed file for slices, like ``safetensors.safe_open``.

    Parameters
    ----------
    filename : str or path-like
    framework : {"np", "pt"}
    device : str or torch.device
        Where torch tensors go.

    Raises
    ------
    CheckpointError, FormatError
        If the file cannot be read or is not a compressed checkpoint.

    Examples
    --------
    >>> with safe_open("model.tc.safetensors", framework="np") as file:
    ...     for name in file.keys():
    ...         rows = file.get_slice(name)[10:20]  # decodes only the chunks that hold them
    """

    def __init__(
        self, filename: str | os.PathLike[str], framework: str = "np", device: Any = "cpu"
    ) -> None:
        self._convert = _converter(framework, device)
        self._file = CompressedFile(Path(filename))

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keys(self) -> list[str]:
        """Return the names of all tensors, aliases included."""
        return [*self._file.manifest.tensors, *self._file.manifest.aliases]

    def offset_keys(self) -> list[str]:
        """Return the names in the order of the source file."""
        return self.keys()

    def metadata(self) -> dict[str, str] | None:
        """Return the source file's metadata, as it was."""
        found = self._file.manifest.template.structure.get("metadata")
        return dict(found) if isinstance(found, dict) else None

    def get_tensor(self, name: str) -> Any:
        """Return a tensor.

        Raises
        ------
        FormatError
            If there is none of that name, or it is damaged.
        """
        return self.get_slice(name).whole()

    def get_slice(self, name: str) -> TensorSlice:
        """Return a tensor that decodes only what is taken from it by an index."""
        return TensorSlice(self._file.record(name), self._file.open_tensor(name), self._convert)


class TensorSlice:
    """A tensor of which only the chunks that an index touches are decoded.

    Indices are NumPy's basic ones along the first axis (an integer or a slice), optionally followed
    by any for the other axes.
    """

    def __init__(self, record: TensorRecord, tensor: ChunkedTensor, convert: Converter) -> None:
        self._record = record
        self._tensor = tensor
        self._convert = convert

    def get_shape(self) -> list[int]:
        """Return the tensor's shape."""
        return list(self._record.shape)

    def get_dtype(self) -> str:
        """Return safetensors' name of its dtype."""
        return self._record.dtype

    def whole(self) -> Any:
        """Return the tensor, in memory of its own."""
        grid = self._tensor.grid
        flat = np.empty(grid.nbytes, np.uint8)
        decode_tensor(self._tensor, flat.view(grid.dtype).reshape(grid.shape))
        return self._convert(flat, self._record.dtype, self._record.shape)

    def __getitem__(self, index: Any) -> Any:
        first, *others = index if isinstance(index, tuple) and index else (index,)
        shape = self._record.shape
        if not shape or numpy_dtype(self._record.dtype) is None or first in (Ellipsis, ()):
            return self.whole()[index]
        rows = range(shape[0])
        try:
            taken = rows[first]
        except IndexError:
            raise IndexError(
                f"{shown(self._record.name)}: expected one of {len(rows)} rows, got {first}"
            ) from None
        except TypeError:
            raise TypeError(
                f"{shown(self._record.name)}: expected an integer or a slice along the first axis, "
                f"got {first!r}; decode it whole by get_tensor for other indices"
            ) from None
        if isinstance(taken, int):
            return self._rows(taken, taken + 1)[(0, *others)]
        if not taken:
            return self._rows(0, 0)[(slice(None), *others)]
        low, high = min(taken[0], taken[-1]), max(taken[0], taken[-1]) + 1
        block = self._rows(low, high)
        # A list of rows, since torch knows no negative step.
        picked = block[:: taken.step] if taken.step > 0 else block[[row - low for row in taken]]
        return picked[(slice(None), *others)]

    def _rows(self, low: int, high: int) -> Any:
        """Return rows `low` to `high` of the tensor."""
        grid, (count, *others) = self._tensor.grid, self._record.shape
        # The grid's rows may be others: a flat tensor, or the equal one of another shape.
        elements = math.prod(grid.shape) // count if count else 0
        per_row = max(grid.row_elements, 1)
        begin, end = low * elements // per_row, -(-high * elements // per_row)
        decoded = decode_rows(self._tensor, begin, end).reshape(-1)
        rows = decoded[low * elements - begin * per_row : high * elements - begin * per_row]
        return self._convert(rows.view(np.uint8), self._record.dtype, (high - low, *others))
