"""Read any file as typed arrays at known places, and the bytes between them.

What lies between the arrays is the skeleton: a tensor of bytes of its own, but for long runs, each
of which is a tensor, too. The file comes back byte for byte, whatever else is in it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcomp._formatting import shown, unique_name
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo, file_bytes
from tensorcomp.checkpoints.packing import pack_template, unpack_structure
from tensorcomp.checkpoints.safetensors.header import METADATA_KEY
from tensorcomp.dtypes import dtype_bits, numpy_dtype
from tensorcomp.errors import PARSING_ERRORS, CheckpointError, FormatError
from tensorcomp.io.files import file_size

if TYPE_CHECKING:
    from tensorcomp.checkpoints.layouts.torch_tensors import NestedObjects

KIND = "layout"
_SKELETON, _BYTES = "skeleton", "bytes"
_MAX_GAP = 1 << 62
_LONG_RUN = 1 << 20  # bytes between arrays that are a tensor of their own


@dataclass(frozen=True, slots=True)
class Array:
    """Typed array at a place of a file.

    Parameters
    ----------
    name : str
    dtype : str
        As of `TensorInfo`.
    shape : tuple of int
    start : int
        Where its bytes begin in the file.
    nbytes : int
    axes : tuple of int
        Its axes in the order of the file, the slowest first; empty where that is their own.
    swapped : bool
        Whether it is big-endian.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int
    axes: tuple[int, ...] = ()
    swapped: bool = False

    @property
    def stop(self) -> int:
        """Return where its bytes end in the file."""
        return self.start + self.nbytes


@dataclass(frozen=True)
class Layout:
    """Places of the arrays of a file.

    Parameters
    ----------
    format : str
        The file format.
    arrays : sequence of Array
        In any order; of those that overlap, the first in the file counts.
    aliases : mapping of str to str
        Further names of arrays.
    objects : NestedObjects, optional
        Of a torch file: what holds the arrays.
    notes : sequence of str, optional
        See `Checkpoint.notes`.
    """

    format: str
    arrays: Sequence[Array]
    aliases: Mapping[str, str] = field(default_factory=dict)
    objects: NestedObjects | None = None
    notes: Sequence[str] | None = None


class LayoutCheckpoint(Checkpoint):
    """A file of typed arrays, mapped into memory where the file system allows.

    Parameters
    ----------
    path : Path
    layout : Layout

    Attributes
    ----------
    objects : NestedObjects or None
        Of a torch file: what holds the arrays.

    Raises
    ------
    CheckpointError
        If the file cannot be read.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.kind = path, layout.format
        self.nbytes = file_size(path)
        self._file = file_bytes(path)
        named = _named(layout.arrays)
        self.aliases = dict(layout.aliases)
        taken = {*named, *self.aliases, METADATA_KEY}
        apart = _apart(named.values(), self.nbytes)
        self._arrays, self._runs = _with_long_runs(apart, self.nbytes, taken)
        self._skeleton = unique_name(_SKELETON, taken)
        size = sum(stop - start for start, stop in self._runs)
        self._by_name = {array.name: array for array in self._arrays}
        infos = [TensorInfo(one.name, one.dtype, one.shape, one.nbytes) for one in self._arrays]
        self.hidden = frozenset({*self._by_name, self._skeleton}.difference(named))
        if size:
            infos.insert(0, TensorInfo(self._skeleton, "U8", (size,), size))
        self.tensors = tuple(infos)
        self.objects, self.notes = layout.objects, layout.notes

    def read(self, name: str) -> np.ndarray:
        """Return an array's bytes in C order, or those of the skeleton."""
        if name == self._skeleton:
            data = np.concatenate([self._file[slice(*run)] for run in self._runs])
        else:
            try:
                array = self._by_name[name]
            except KeyError:
                raise CheckpointError(f"has no tensor {shown(name)}", path=self.path) from None
            data = in_order(self._file[array.start : array.stop], array)
        data.flags.writeable = False
        return data

    def template(self) -> SourceTemplate:
        """Return where the tensors lie in the file."""
        ends = itertools.accumulate((array.stop for array in self._arrays[:-1]), max, initial=0)
        structure: dict[str, Any] = {
            "hidden": sorted(self.hidden),
            "gaps": [array.start - end for array, end in zip(self._arrays, ends, strict=False)],
        }
        orders = {
            array.name: {"axes": list(array.axes), "swapped": array.swapped}
            for array in self._arrays
            if array.axes or array.swapped
        }
        structure |= {"orders": orders} if orders else {}
        return pack_template(KIND, structure, {"format": self.kind})

    def close(self) -> None:
        """Let go of the file, which is unmapped when no array views it."""
        self._file = np.empty(0, np.uint8)


def layout_of(template: SourceTemplate, tensors: Sequence[TensorInfo]) -> Layout:
    """Return where a file with these tensors had them, all but the skeleton.

    Raises `FormatError` if the template is damaged, or not of these tensors.
    """
    structure = unpack_structure(template)
    try:
        gaps, orders = structure["gaps"], structure.get("orders", {})
        if len(tensors) - len(gaps) not in (0, 1):
            raise ValueError(f"{len(gaps)} gaps before {len(tensors)} tensors")
        arrays, end = [], 0
        for info, gap in zip(tensors[len(tensors) - len(gaps) :], gaps, strict=True):
            if type(gap) is not int or not 0 <= gap <= _MAX_GAP:
                raise ValueError(f"a gap of {gap!r} bytes")
            order = orders.get(info.name, {"axes": [], "swapped": False})
            axes, swapped = tuple(order["axes"]), order["swapped"]
            if axes and sorted(axes) != list(range(len(info.shape))):
                raise ValueError(f"axes {axes}")
            start, end = end + gap, end + gap + info.nbytes
            arrays.append(
                Array(info.name, info.dtype, info.shape, start, info.nbytes, axes, swapped)
            )
    except PARSING_ERRORS as error:
        raise FormatError(f"the template of the file is damaged: {error!r}") from error
    return Layout(template.format, arrays)


def in_order(data: np.ndarray, array: Array, *, back: bool = False) -> np.ndarray:
    """Return an array's bytes in C order and little-endian.

    `back` turns them into those of the file.
    """
    dtype = numpy_dtype(array.dtype)
    if dtype is None or not (array.axes or array.swapped):
        return data.view()
    values = data.view(dtype)
    axes = array.axes or tuple(range(len(array.shape)))
    if back:
        values = values.reshape(array.shape).transpose(axes)
    else:
        stored = values.reshape([array.shape[axis] for axis in axes])
        values = stored.transpose(np.argsort(axes))
    values = np.ascontiguousarray(values).reshape(-1)
    return (values.byteswap() if array.swapped else values).view(np.uint8)


def _named(arrays: Sequence[Array]) -> dict[str, Array]:
    """Return the arrays under names of their own."""
    taken = {METADATA_KEY}
    named = {}
    for array in arrays:
        name = unique_name(array.name, taken)
        named[name] = replace(array, name=name)
    return named


def _apart(arrays: Iterable[Array], size: int) -> list[Array]:
    """Return the arrays that lie in a file of `size` bytes apart from those before them."""
    kept: list[Array] = []
    end = 0
    for array in sorted(arrays, key=lambda one: (one.start, one.stop)):
        if end <= array.start <= array.stop <= size and _holds(array):
            kept.append(array)
            end = array.stop
    return kept


def _holds(array: Array) -> bool:
    """Return whether an array's bytes are those of its elements."""
    bits = dtype_bits(array.dtype)
    is_endless = max(array.shape, default=0) > _MAX_GAP  # and another axis 0
    holds = bits is None or -(-math.prod(array.shape) * bits // 8) == array.nbytes
    return holds and not is_endless


def _with_long_runs(
    arrays: Sequence[Array], size: int, taken: set[str]
) -> tuple[list[Array], list[tuple[int, int]]]:
    """Add long runs between arrays to them; return the short ones beside."""
    every: list[Array] = []
    runs = []
    end = 0
    for array in [*arrays, None]:
        start = size if array is None else array.start
        if start - end >= _LONG_RUN:
            name = unique_name(_BYTES, taken)
            every.append(Array(name, "U8", (start - end,), end, start - end))
        elif start > end:
            runs.append((end, start))
        if array is not None:
            every.append(array)
            end = array.stop
    return every, runs
