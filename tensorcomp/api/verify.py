"""Verify compressed files: decode everything, check digests and bounds."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp._threads import Workers
from tensorcomp.api.verify_pruned import PrunedCheck
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.checkpoints.safetensors.file import SafetensorsFile
from tensorcomp.container.model import BasePaths, Model, open_model, restored_shards
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.records import TensorRecord
from tensorcomp.container.tensor_blob import BundleMember, TensorBlob, checked_bytes
from tensorcomp.errors import (
    CheckpointError,
    FormatError,
    MissingBaseError,
    OptionError,
    VerificationError,
    located,
)
from tensorcomp.io.locations import is_remote, location
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.progress import Progress

if TYPE_CHECKING:
    from tensorcomp.planning.calibrated import Calibrated
    from tensorcomp.planning.statistics import Statistics

_ROUNDING = 1e-5  # errors are recorded in six digits
_SUMS = 1e-4  # by which sums of float32 products may differ between machines


@dataclass(frozen=True)
class Check:
    """Result of the verification of one tensor.

    Parameters
    ----------
    file : Path
    name : str
        The tensor's name; empty if the file itself fails.
    error : str or None
        Description of the fault.
    chunk : int or None
        The damaged chunk of the tensor, if it is known.
    """

    file: Path
    name: str
    error: str | None
    chunk: int | None = None


def verify(
    path: str | os.PathLike[str],
    against: str | os.PathLike[str] | None = None,
    *,
    statistics: str | os.PathLike[str] | Statistics | None = None,
    threads: int | None = None,
    bases: BasePaths = (),
    progress: Progress | None = None,
) -> list[Check]:
    """Decode every tensor of a compressed file or folder and check every digest.

    Parameters
    ----------
    path : str or path-like
    against : str or path-like, optional
        The original; every tensor, and what rebuilds the file, is then compared with it too. Of a
        lossy tensor the errors must be those that the file records, and keep its bound.
    statistics : path or Statistics, optional
        Those that it was compressed with, to compare the errors of outputs as well.
    threads : int, optional
    bases : path or iterable of paths, optional
        Files and folders to find the bases in that it was compressed against; else its own folder.
    progress : Progress, optional

    Returns
    -------
    list of Check
        One a tensor, in order; those with an `error` failed.

    Raises
    ------
    CheckpointError, FormatError
        If a file cannot be read at all, the base of a single file is not found, a store fails, or
        a codec's package is missing.
    OptionError, PlanError
        If there are statistics without the original, or of another model.
    """
    progress = progress or Progress()
    model = open_model(path, compressed=True, bases=bases)
    calibrated: dict[Path, dict[str, Calibrated]] = {}
    if statistics is not None:
        if against is None:
            raise OptionError("expected the original beside statistics, got none; give against=…")
        calibrated = _calibrated(model, statistics)
    originals: dict[Path, Path] = {}
    if model.is_folder:
        restored, nbytes = restored_shards(model)
        progress.begin_folder(nbytes)
        if against is not None:
            originals = {shard: location(against) / name for shard, name in restored.items()}
    elif against is not None:
        originals = {model.shards[0]: location(against)}
    checks = []
    for shard in model.shards:
        known, original = calibrated.get(shard), originals.get(shard)
        try:
            with CompressedFile(model.file(shard), model.bases) as file:
                checks += _verify_file(file, original, known, threads, progress)
        except MissingBaseError as error:
            if not model.is_folder:
                raise
            checks.append(Check(model.file(shard), "", str(error)))  # others may be sound
    return checks


def _calibrated(
    model: Model, statistics: str | os.PathLike[str] | Statistics
) -> dict[Path, dict[str, Calibrated]]:
    """Return the statistics of the tensors of each shard."""
    from tensorcomp.planning.calibrated import calibrated_tensors

    keys = model.keys()
    shapes: dict[str, tuple[int, ...]] = {}
    for shard, own in keys.items():
        with model.open(shard) as opened:
            shapes |= {own[info.name]: info.shape for info in opened.tensors}
    found = calibrated_tensors(statistics, shapes)
    return {
        shard: {name: found[key] for name, key in own.items() if key in found}
        for shard, own in keys.items()
    }


def _verify_file(
    file: CompressedFile,
    original: Path | None,
    calibrated: Mapping[str, Calibrated] | None,
    threads: int | None,
    progress: Progress,
) -> list[Check]:
    path = file.path
    with (
        Workers(threads) as workers,
        contextlib.nullcontext() if original is None else _original(original, file) as source,
    ):
        file.check_codecs()
        file.read_ahead()
        progress.begin(len(file.tensors), sum(info.nbytes for info in file.tensors))
        checks = [] if source is None else _compare_outlines(path, file, source)
        read = None if source is None or checks else source.read

        def check(info: TensorInfo) -> Check:
            own = None if calibrated is None else calibrated.get(info.name)
            if read is not None and own is not None:
                own.check_data(info, read(info.name))
            try:
                _check_tensor(file, info, read, calibrated)
            except MissingBaseError:
                raise
            except (FormatError, VerificationError, CheckpointError) as error:
                if isinstance(error, CheckpointError) and is_remote(path):
                    raise  # the store fails, which tells nothing of the file
                return Check(path, info.name, str(error), error.chunk)
            return Check(path, info.name, None)

        for info, result in workers.in_order(check, file.tensors):
            if result.error or info.name not in file.hidden:
                checks.append(result)
            progress.advance(info.name, info.nbytes)
    return checks


@contextlib.contextmanager
def _original(path: Path, file: CompressedFile) -> Iterator[Checkpoint]:
    """Open the original of a compressed file, to be read tensor by tensor as the file has them."""
    template = file.template()
    if template.kind != "safetensors" and is_remote(path):
        from tensorcomp.io.spool import local_copy

        with local_copy(path) as copy, _laid_out(copy, template, file) as original:
            yield original
        return
    with _laid_out(path, template, file) as original:
        if isinstance(original, SafetensorsFile):
            original.read_ahead()
        yield original


def _laid_out(path: Path, template: SourceTemplate, file: CompressedFile) -> Checkpoint:
    if template.kind == "layout":
        from tensorcomp.checkpoints.layouts.layout import LayoutCheckpoint, layout_of

        return LayoutCheckpoint(path, layout_of(template, file.tensors))
    if template.kind in ("torch", "npz"):
        from tensorcomp.checkpoints.earlier.original import EarlierOriginal

        return EarlierOriginal(path, template, file.tensors)
    return open_checkpoint(path)


def _compare_outlines(path: Path, file: CompressedFile, original: Checkpoint) -> list[Check]:
    if original.tensors != file.tensors:
        odd = set(original.tensors) ^ set(file.tensors)
        what = shown(sorted(info.name for info in odd)[0]) if odd else "their order"
        return [Check(path, "", f"{path}: the original's tensors differ, first {what}")]
    if original.kind == "safetensors" and original.template() != file.manifest.template:
        return [Check(path, "", f"{path}: the original differs in what is not tensors")]
    return []


def _check_tensor(
    file: CompressedFile,
    info: TensorInfo,
    read: Callable[[str], np.ndarray] | None,
    calibrated: Mapping[str, Calibrated] | None,
) -> None:
    record = file.manifest.stored(info.name)
    tensor = file.open_tensor(info.name)
    wanted = None if read is None else read(info.name)
    with located(path=file.where, tensor=info.name):
        _check_decoded(record, tensor, wanted)
        if wanted is not None and calibrated is not None:
            _check_output(record, tensor, wanted, calibrated.get(record.name))


def _check_decoded(
    record: TensorRecord, tensor: TensorBlob | BundleMember, wanted: np.ndarray | None
) -> None:
    dtype = tensor.grid.dtype
    pruned = None
    if record.pruned is not None:
        pruned = PrunedCheck(record, dtype, lossless=tensor.lossless)
    position, errors = 0, ErrorSums()
    for chunk, data in enumerate(checked_bytes(tensor)):
        original = None if wanted is None else wanted[position : position + data.nbytes]
        if pruned is not None:
            pruned.add(data, original)
        elif original is not None and not tensor.lossless:
            errors += measure(original.view(dtype), data.view(dtype), tensor.grid.columns)
        elif original is not None and not np.array_equal(data, original):
            raise VerificationError("differs from the original", chunk=chunk)
        position += data.nbytes
    if pruned is not None:
        pruned.finish(compared=wanted is not None)
        errors = pruned.errors
    elif wanted is not None and not tensor.lossless:
        _check_bound(record, errors)
    if wanted is not None:
        _check_errors(record, errors)


def _check_output(
    record: TensorRecord,
    tensor: TensorBlob | BundleMember,
    wanted: np.ndarray,
    calibrated: Calibrated | None,
) -> None:
    """Require that the error of a tensor's output is that of the manifest, and keeps its bound."""
    bound = record.bound.get("max_output_error", math.inf)
    if not record.output_error and bound == math.inf:
        return
    if calibrated is None:
        raise VerificationError("has an output error, but there are no statistics of it")
    grid, errors = tensor.grid, ErrorSums()
    array = wanted.view(grid.dtype).reshape(grid.shape)
    for (_, start, stop), data in zip(grid.chunks(), checked_bytes(tensor), strict=True):
        part = array[start:stop]
        errors += calibrated.measured(
            ErrorSums(), part, data.view(grid.dtype).reshape(part.shape), start
        )
    found, expected = errors.output_error, record.output_error
    if abs(found - expected) > _SUMS * expected:
        raise VerificationError(
            f"has an output error of {found:.6g} by these statistics, and not of {expected:.6g}"
        )
    if record.pruned is None and found > bound * (1 + _SUMS):
        raise VerificationError(f"has max_output_error {found:.6g}, {bound:.6g} is promised")


def _check_bound(record: TensorRecord, errors: ErrorSums) -> None:
    """Require that a tensor's errors keep its bound."""
    limits = {"max_rel_l2": errors.rel_l2, "max_abs_error": errors.max_abs}
    for limit, error in limits.items():
        bound = record.bound.get(limit)
        if bound is not None and error > bound:
            raise VerificationError(f"has {limit} {error:.6g}, {bound:.6g} is promised")


def _check_errors(record: TensorRecord, errors: ErrorSums) -> None:
    """Require that a tensor's errors are those of the manifest."""
    measured = [(errors.rel_l2, record.rel_l2), (errors.max_abs, record.max_abs_error)]
    if record.row_error and record.pruned is None:
        measured.append((errors.worst_row, record.row_error))
    for found, expected in measured:
        if abs(found - expected) > _ROUNDING * expected:
            raise VerificationError(
                f"differs from the original by {found:.6g}, and not by {expected:.6g}"
            )
