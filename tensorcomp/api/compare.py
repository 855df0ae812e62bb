"""Compare two checkpoints tensor by tensor.

Either may be a file or a folder, compressed or not, of any format. Tensors are read chunk by chunk,
so memory does not grow with the checkpoints (a member of an ``.npz`` archive is unpacked whole).
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import numpy as np

from tensorcomp._formatting import shape_text
from tensorcomp._threads import Workers, available_threads
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS
from tensorcomp.container.model import (
    PlainTensor,
    open_model,
    open_tensor,
    restored_name,
    stored_bytes,
)
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.tensor_blob import ChunkedTensor, decode_rows
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.metrics.comparison import Comparison, Held, TensorComparison
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.progress import Progress

_AHEAD = 8


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Measure how far the tensors of one checkpoint are from those of another.

    Tensors are matched by name: in files of the same name first, then in the same folder, then
    anywhere. Values are compared as floats where types differ; NaN equals NaN.

    Parameters
    ----------
    a, b : str or path-like
        The original and the approximation: safetensors, torch or ``.npz`` files, compressed files,
        or folders of such files.
    threads : int, optional
        All available processors by default. The figures do not depend on it.
    progress : Progress, optional

    Returns
    -------
    Comparison
        Tensors in the order of `a`; then those in `b` only.

    Raises
    ------
    CheckpointError, FormatError
        If a file cannot be read, or is damaged.
    """
    progress = progress or Progress()
    with contextlib.ExitStack() as stack:
        first, second = (_Side(Path(path), stack) for path in (a, b))
        pairs = _pair(first.entries, second.entries)
        shared = [pair for pair in pairs if pair[0] is not None and pair[1] is not None]
        progress.begin(len(shared), sum(x.info.nbytes for x, _ in shared if x is not None))
        workers = stack.enter_context(Workers(threads or available_threads()))
        with_file = first.is_folder or second.is_folder
        rows = tuple(_measured(pairs, workers, progress, with_file=with_file))
    return Comparison(first.nbytes, second.nbytes, rows)


@dataclass(frozen=True)
class _Entry:
    """Tensor of one of the two checkpoints.

    Parameters
    ----------
    file : PurePosixPath
        Its file, relative to the folder, under the name that it has uncompressed.
    info : TensorInfo
        Under its name, or a further one.
    stored : int
        Bytes that it takes in its file.
    tied : bool
        Whether it is a further name of another tensor.
    open : callable
        Returns its values, to be read by rows.
    """

    file: PurePosixPath
    info: TensorInfo
    stored: int
    tied: bool
    open: Callable[[], ChunkedTensor]

    @property
    def held(self) -> Held:
        """What the report says of it."""
        return Held(self.info.dtype, self.info.shape, self.stored)


_Pair: TypeAlias = "tuple[_Entry | None, _Entry | None]"


class _Side:
    """Tensors of all files of one checkpoint, and the files' bytes."""

    def __init__(self, path: Path, stack: contextlib.ExitStack) -> None:
        model = open_model(path)
        self.is_folder = model.is_folder
        self.nbytes = 0
        self.entries: list[_Entry] = []
        for shard in model.shards:
            checkpoint = stack.enter_context(model.open(shard))
            name = shard
            if isinstance(checkpoint, CompressedFile):
                name = shard.with_name(restored_name(shard.name, checkpoint.template().kind))
            self.nbytes += checkpoint.nbytes
            self.entries += _entries(checkpoint, PurePosixPath(name))


def _entries(checkpoint: Checkpoint, file: PurePosixPath) -> Iterator[_Entry]:
    infos = {info.name: info for info in checkpoint.tensors}
    for info in infos.values():
        opener = functools.partial(open_tensor, checkpoint, info)
        yield _Entry(file, info, stored_bytes(checkpoint, info), False, opener)
    for name, target in checkpoint.aliases.items():
        info = infos[target]
        opener = functools.partial(open_tensor, checkpoint, info)
        yield _Entry(file, replace(info, name=name), 0, True, opener)


def _pair(first: Sequence[_Entry], second: Sequence[_Entry]) -> list[_Pair]:
    """Return the tensors of both sides by pairs, and those of one side alone.

    Tied names are left out where both sides tie them, or one side lacks them.
    """
    partner: dict[int, _Entry] = {}
    free = dict(enumerate(second))
    keys: tuple[Callable[[_Entry], Hashable], ...] = (
        lambda entry: (entry.file, entry.info.name),
        lambda entry: (entry.file.parent, entry.info.name),
        lambda entry: entry.info.name,
    )
    for key in keys:
        waiting: dict[Hashable, deque[int]] = {}
        for number, entry in free.items():
            waiting.setdefault(key(entry), deque()).append(number)
        for number, entry in enumerate(first):
            if number not in partner and (numbers := waiting.get(key(entry))):
                partner[number] = free.pop(numbers.popleft())
    pairs: list[_Pair] = [(entry, partner.get(number)) for number, entry in enumerate(first)]
    pairs += [(None, entry) for entry in free.values()]
    return [pair for pair in pairs if any(side is not None and not side.tied for side in pair)]


def _problem(a: TensorInfo, b: TensorInfo) -> str:
    """Return why two tensors cannot be compared; empty if they can."""
    if a.shape != b.shape:
        return f"shapes differ: {shape_text(a.shape)} and {shape_text(b.shape)}"
    kinds = {_kind(a.dtype), _kind(b.dtype)}
    if a.dtype != b.dtype and len(kinds) > 1:
        return f"types {a.dtype} and {b.dtype} cannot be compared"
    return ""


def _kind(dtype: str) -> str:
    """Return what numbers a type holds: only those of one kind are compared."""
    numpy_type = numpy_dtype(dtype)
    if numpy_type is None:
        return f"opaque {dtype}"
    return "complex" if numpy_type.kind == "c" else "real"


@dataclass(frozen=True)
class _Job:
    """A run of elements of a pair of tensors; without tensors, a pair that is not compared."""

    row: TensorComparison
    tensors: tuple[ChunkedTensor, ChunkedTensor] | None = None
    start: int = 0
    stop: int = 0
    nbytes: int = 0
    last: bool = True


def _measured(
    pairs: Sequence[_Pair], workers: Workers, progress: Progress, *, with_file: bool
) -> Iterator[TensorComparison]:
    sums = ErrorSums()
    for job, errors in workers.in_order(
        _measure, _jobs(pairs, with_file=with_file), prefetch=_AHEAD
    ):
        if errors is None:
            yield job.row
            continue
        sums += errors
        progress.advance(job.row.name, job.nbytes)
        if job.last:
            yield _finished(job.row, sums)
            sums = ErrorSums()


def _jobs(pairs: Sequence[_Pair], *, with_file: bool) -> Iterator[_Job]:
    for a, b in pairs:
        known = a or b
        assert known is not None
        row = TensorComparison(
            name=known.info.name,
            file=str(known.file) if with_file else None,
            a=None if a is None else a.held,
            b=None if b is None else b.held,
        )
        if a is None or b is None:
            yield _Job(replace(row, problem=f"only in {'b' if a is None else 'a'}"))
        elif problem := _problem(a.info, b.info):
            yield _Job(replace(row, problem=problem))
        else:
            yield from _cut(row, a, b)


def _cut(row: TensorComparison, a: _Entry, b: _Entry) -> Iterator[_Job]:
    tensors = a.open(), b.open()
    # Steps of the chunks of a compressed side, so that none is decoded twice.
    chunked = [t.grid for t in tensors if not isinstance(t, PlainTensor)]
    step = max(chunked[0].chunk * chunked[0].row_elements, 1) if chunked else CHUNK_ELEMENTS
    grid = tensors[0].grid
    size = math.prod(grid.shape)
    for start in range(0, max(size, 1), step):
        stop = min(start + step, size)
        nbytes = (stop - start) * grid.dtype.itemsize
        yield _Job(row, tensors, start, stop, nbytes, stop == size)


def _measure(job: _Job) -> ErrorSums | None:
    if job.tensors is None:
        return None
    x, y = (_elements(tensor, job.start, job.stop) for tensor in job.tensors)
    return measure(x, y)


def _elements(tensor: ChunkedTensor, start: int, stop: int) -> np.ndarray:
    """Return elements of a tensor, decoding the chunks that hold them."""
    row = max(tensor.grid.row_elements, 1)
    begin = start // row
    values = decode_rows(tensor, begin, -(-stop // row)).reshape(-1)
    return values[start - begin * row : stop - begin * row]


def _finished(row: TensorComparison, errors: ErrorSums) -> TensorComparison:
    assert row.a is not None
    if numpy_dtype(row.a.dtype) is not None:
        return replace(row, errors=errors)
    if errors.exact:  # of bytes that are no numbers, all that can be said
        return replace(row, errors=ErrorSums())
    return replace(row, problem=f"{row.a.dtype} has no known values, and the bytes differ")
