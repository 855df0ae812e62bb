"""Compare two checkpoints tensor by tensor.

Either may be a file or a folder, compressed or not, of any format. Tensors are read chunk by chunk,
so memory does not grow with the checkpoints.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tensorcomp._formatting import shape_text
from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.codecs.rounding import work_dtype
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS
from tensorcomp.container.model import BasePaths, open_model, restored_name
from tensorcomp.container.plain_tensor import PlainTensor, open_tensor, stored_bytes
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.tensor_blob import ChunkedTensor, decode_rows
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.metrics.comparison import ComparedTensor, Comparison, TensorComparison
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.progress import Progress

if TYPE_CHECKING:
    from tensorcomp.planning.calibrated import Calibrated
    from tensorcomp.planning.statistics import Statistics

_SMALL = 1 << 17  # bytes; most of the time that fewer take is Python's, which threads share


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    statistics: str | os.PathLike[str] | Statistics | None = None,
    threads: int | None = None,
    bases: BasePaths = (),
    progress: Progress | None = None,
) -> Comparison:
    """Measure how far the tensors of one checkpoint are from those of another.

    Tensors are matched by name: in files of the same name first, then in the same folder, then
    anywhere. Values are compared as floats where types differ; NaN equals NaN.

    Parameters
    ----------
    a, b : str or path-like
        The original and the approximation: checkpoint files of any format, compressed files, or
        folders of such files.
    statistics : path or Statistics, optional
        Of `a`: then the errors of outputs are measured, too, and the loss that they add.
    threads : int, optional
        All available processors by default. The figures do not depend on it.
    bases : path or iterable of paths, optional
        Files and folders to find the bases in that one was compressed against; else its own folder.
    progress : Progress, optional

    Returns
    -------
    Comparison
        Tensors in the order of `a`; then those in `b` only.

    Raises
    ------
    CheckpointError, FormatError
        If a file cannot be read, or is damaged.
    CheckpointError, PlanError
        If the statistics are not those of `a`.
    """
    progress = progress or Progress()
    models = open_model(a, bases=bases), open_model(b, bases=bases)
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        sides = [{shard: enter(model.open(shard)) for shard in model.shards} for model in models]
        pairs = _pair(*(list(_tensors(side)) for side in sides))
        rows = [_row(x, y, with_file=any(model.is_folder for model in models)) for x, y in pairs]
        shared = [x.info.nbytes for x, y in pairs if x is not None and y is not None]
        progress.begin(len(shared), sum(shared))
        known = _calibrated(statistics, rows)
        sums = [ErrorSums() for _ in rows]
        workers = stack.enter_context(Workers(threads))
        jobs, small = _jobs(pairs, rows, known), lambda job: job.nbytes < _SMALL
        for job, errors in workers.in_order(_measure, jobs, small=small, prefetch=8):
            sums[job.row] += errors
            progress.advance(rows[job.row].name, job.nbytes)
        a_bytes, b_bytes = (sum(file.nbytes for file in side.values()) for side in sides)
    found = (
        replace(row, statistics=known[row.name].moment.place) if row.name in known else row
        for row in map(_with_errors, rows, sums)
    )
    return Comparison(a_bytes, b_bytes, tuple(found))


def _calibrated(
    statistics: str | os.PathLike[str] | Statistics | None, rows: Iterable[TensorComparison]
) -> Mapping[str, Calibrated]:
    """Return the statistics of the tensors of a."""
    if statistics is None:
        return {}
    from tensorcomp.planning.calibrated import calibrated_tensors

    shapes = {row.name: row.a.shape for row in rows if row.a is not None}
    return calibrated_tensors(statistics, shapes)


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Tensor of one of the two checkpoints."""

    file: PurePosixPath  # relative to the folder, under the name that it has uncompressed
    info: TensorInfo  # under its name, or a further one
    stored: int  # bytes that it takes in its file
    tied: bool  # whether it is a further name of another tensor
    source: Checkpoint
    holder: TensorInfo  # under the name that the source reads

    def open(self) -> ChunkedTensor:
        """Return its values, to be read by rows."""
        return open_tensor(self.source, self.holder)

    @property
    def held(self) -> ComparedTensor:
        """The tensor as the report has it."""
        return ComparedTensor(self.info.dtype, self.info.shape, self.stored)


_Pair: TypeAlias = "tuple[_Tensor | None, _Tensor | None]"


def _tensors(side: Mapping[Path, Checkpoint]) -> Iterator[_Tensor]:
    """Yield the tensors of a checkpoint, file by file, tied names last."""
    for shard, checkpoint in side.items():
        name = shard.name
        if isinstance(checkpoint, CompressedFile):
            name = restored_name(name, checkpoint.template().format)
        file = PurePosixPath(shard.with_name(name))
        infos = {info.name: info for info in checkpoint.tensors}
        for info in checkpoint.arrays:
            yield _Tensor(file, info, stored_bytes(checkpoint, info), False, checkpoint, info)
        for name, target in checkpoint.aliases.items():
            holder = infos[target]
            yield _Tensor(file, replace(holder, name=name), 0, True, checkpoint, holder)


def _pair(first: Sequence[_Tensor], second: Sequence[_Tensor]) -> list[_Pair]:
    """Return the tensors of both sides by pairs, and those of one side alone.

    Tied names are left out where both sides tie them, or one side lacks them.
    """
    partner: dict[int, _Tensor] = {}
    free = dict(enumerate(second))
    keys: tuple[Callable[[_Tensor], Hashable], ...] = (
        lambda tensor: (tensor.file, tensor.info.name),
        lambda tensor: (tensor.file.parent, tensor.info.name),
        lambda tensor: tensor.info.name,
    )
    for key in keys:
        waiting: dict[Hashable, list[int]] = {}
        for number, tensor in free.items():
            waiting.setdefault(key(tensor), []).append(number)
        for number, tensor in enumerate(first):
            if number not in partner and (alike := waiting.get(key(tensor))):
                partner[number] = free.pop(alike.pop(0))
    pairs: list[_Pair] = [(tensor, partner.get(number)) for number, tensor in enumerate(first)]
    pairs += [(None, tensor) for tensor in free.values()]
    return [pair for pair in pairs if any(side is not None and not side.tied for side in pair)]


def _row(a: _Tensor | None, b: _Tensor | None, *, with_file: bool) -> TensorComparison:
    """Return what the report says of a pair, but for the errors."""
    known = a or b
    assert known is not None
    file = str(known.file) if with_file else None
    x, y = (None if side is None else side.held for side in (a, b))
    return TensorComparison(known.info.name, file, x, y, problem=_problem(a, b))


def _problem(a: _Tensor | None, b: _Tensor | None) -> str:
    """Return why two tensors cannot be compared; empty if they can."""
    if a is None or b is None:
        return f"only in {'b' if a is None else 'a'}"
    x, y = a.info, b.info
    if x.shape != y.shape:
        return f"shapes differ: {shape_text(x.shape)} and {shape_text(y.shape)}"
    if x.dtype != y.dtype and _kind(x.dtype) != _kind(y.dtype):
        return f"types {x.dtype} and {y.dtype} cannot be compared"
    return ""


def _kind(dtype: str) -> str:
    """Return what numbers a type holds: only those of one kind are compared."""
    numpy_type = numpy_dtype(dtype)
    if numpy_type is None:
        return f"opaque {dtype}"
    return "complex" if numpy_type.kind == "c" else "real"


class _Job(NamedTuple):
    """A run of elements of two tensors."""

    row: int
    x: ChunkedTensor
    y: ChunkedTensor
    start: int
    stop: int
    calibrated: Calibrated | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of x that it covers."""
        return (self.stop - self.start) * self.x.grid.dtype.itemsize


def _jobs(
    pairs: Iterable[_Pair], rows: Sequence[TensorComparison], known: Mapping[str, Calibrated]
) -> Iterator[_Job]:
    """Cut the pairs that can be compared into runs."""
    for number, (a, b) in enumerate(pairs):
        if a is None or b is None or rows[number].problem:
            continue
        x, y = a.open(), b.open()
        # Steps of the chunks of a compressed side, so that none is decoded twice.
        chunked = [tensor.grid for tensor in (x, y) if not isinstance(tensor, PlainTensor)]
        row = max(x.grid.row_elements, 1)
        step = max(chunked[0].chunk if chunked else CHUNK_ELEMENTS // row, 1) * row
        size = math.prod(x.grid.shape)
        calibrated = known.get(rows[number].name)
        if calibrated is not None:
            calibrated.check(_elements(x, 0, size).reshape(x.grid.shape))
            step = step if calibrated.measures(2) else size
        for start in range(0, max(size, 1), step):
            yield _Job(number, x, y, start, min(start + step, size), calibrated)


def _measure(job: _Job) -> ErrorSums:
    a, b = (_elements(tensor, job.start, job.stop) for tensor in (job.x, job.y))
    errors = measure(a, b, job.x.grid.columns)
    if job.calibrated is None:
        return errors
    shape = (-1, *job.x.grid.shape[1:])
    a, b, start = a.reshape(shape), b.reshape(shape), job.start // job.x.grid.row_elements
    errors = job.calibrated.measured(errors, a, b, start)
    error = a.astype(work_dtype(a.dtype)) - b.astype(work_dtype(a.dtype))
    return replace(errors, loss=job.calibrated.loss(error, start))


def _elements(tensor: ChunkedTensor, start: int, stop: int) -> np.ndarray:
    """Return elements of a tensor, decoding the chunks that hold them."""
    row = max(tensor.grid.row_elements, 1)
    begin = start // row
    values = decode_rows(tensor, begin, -(-stop // row)).reshape(-1)
    return values[start - begin * row : stop - begin * row]


def _with_errors(row: TensorComparison, errors: ErrorSums) -> TensorComparison:
    """Return a row with its errors, if it has any."""
    if row.problem:
        return row
    assert row.a is not None
    if numpy_dtype(row.a.dtype) is not None:
        return replace(row, errors=errors)
    if errors.exact:  # of bytes that are no numbers, all that can be said
        return replace(row, errors=ErrorSums())
    return replace(row, problem=f"{row.a.dtype} has no known values, and the bytes differ")
