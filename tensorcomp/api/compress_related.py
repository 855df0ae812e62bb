"""Compress a folder of many models, each against its nearest relative."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.container.compressed_folder import indexes_for_hosts
from tensorcomp.container.model import Model, open_original
from tensorcomp.container.output_folder import output_folder
from tensorcomp.container.writer import SizeOnly
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PlanError
from tensorcomp.io.files import atomic_file, file_size
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.planning.relatives import Sketch, choose_bases, sketch
from tensorcomp.progress import Progress

# Of the largest tensors of different shapes, to measure what a base saves.
_SAMPLED, _SAMPLE_BYTES = 3, 1 << 19


def compress_related(
    model: Model,
    target: Path,
    written: Mapping[Path, Path],
    options: CompressOptions,
    progress: Progress,
    *,
    force: bool,
) -> list[FileResult]:
    """Compress each file of a folder against its nearest relative, if any.

    Bases are read where they are: what they become decodes to the same.

    Parameters
    ----------
    model : Model
    target : Path
    written : mapping of Path to Path
        What each file becomes, relative to the folder.
    options, progress, force
        As for `compress`.

    Raises
    ------
    PlanError
        If something else than lossless compression of a folder is asked for.
    """
    if not (model.is_folder and options.in_one_go and options.base is None):
        raise PlanError(
            "expected a folder and nothing lost to find bases in it, got a file, budget, trees, "
            "plan, pruning or base; leave dedup out, or give the files one by one"
        )
    paths = [model.file(shard) for shard in model.shards]
    names = [written[shard] for shard in model.shards]
    results: dict[int, FileResult] = {}
    indexes = indexes_for_hosts(model, written)
    with output_folder(model, target, written, indexes, force=force) as partial:
        progress.begin_folder(sum(map(file_size, paths)))
        sketches = list(map(_sketch, paths))
        for index, base in choose_bases(sketches, functools.partial(_best, paths, options)).items():
            with contextlib.ExitStack() as stack:
                # The output is named when the others are closed: that tells if they were changed.
                file = stack.enter_context(atomic_file(partial / names[index], force=True))
                against = None
                if base is not None:
                    against = stack.enter_context(open_checkpoint(paths[base]))
                    place = os.path.relpath(names[base], names[index].parent)
                    against.known_as = PurePath(place).as_posix()
                source = stack.enter_context(open_original(paths[index]))
                own = replace(options, base=against)
                results[index] = compress_source(source, file, own, progress)
    return [results[index] for index in range(len(paths))]


def _best(paths: Sequence[Path], options: CompressOptions, index: int, bases: Sequence[int]) -> int:
    """Return which base makes a sample of a file smallest; of a small file, the first."""
    if file_size(paths[index]) < _SAMPLE_BYTES:
        return bases[0]
    with open_original(paths[index]) as source:
        kinds = {info.shape: info for info in sorted(source.arrays, key=lambda info: info.nbytes)}
        names = [info.name for info in kinds.values()][-_SAMPLED:]
        sample = _sample(source, names)

        def size(base: int) -> int:
            with open_checkpoint(paths[base]) as other:
                own = replace(options, base=_sample(other, names))
                return compress_source(sample, SizeOnly(), own).output_bytes

        return min(bases, key=size)


def _sample(source: Checkpoint, names: Sequence[str]) -> MemoryCheckpoint:
    """Return the first rows of some tensors."""
    rows = {}
    for info in source.arrays:
        dtype = numpy_dtype(info.dtype)
        if info.name in names and dtype is not None and len(info.shape) > 1:
            array = source.read(info.name).view(dtype).reshape(info.shape)
            rows[info.name] = array[: max(_SAMPLE_BYTES // max(array[:1].nbytes, 1), 1)]
    return MemoryCheckpoint(rows)


def _sketch(path: Path) -> Sketch:
    with open_original(path) as source:
        return sketch(source)
