"""Compress a checkpoint file, or a folder of shards beside its other files."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tensorcomp.api.compress_related import compress_related
from tensorcomp.api.compress_result import CompressResult
from tensorcomp.api.replace import LOSES, Replace, Replacement, check_model, require_room
from tensorcomp.container.compressed_folder import indexes_for_hosts
from tensorcomp.container.local_copies import with_copies
from tensorcomp.container.model import (
    Model,
    default_output,
    open_model,
    open_original,
    output_names,
    refuse_bases,
    refuse_itself,
    refuse_suffix,
)
from tensorcomp.container.output_folder import output_folder
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import PlanError
from tensorcomp.io.files import atomic_file, file_size, free_bytes, refuse_existing
from tensorcomp.io.locations import is_remote, location
from tensorcomp.pipeline.job import Shard, compress_shards, compress_source
from tensorcomp.pipeline.options import CompressKeywords, CompressOptions
from tensorcomp.pipeline.references import opened_bases
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.progress import Progress

if TYPE_CHECKING:
    from concurrent.futures import Executor


def compress(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    replace: Replace = False,
    keep_names: bool = False,
    part: str | tuple[int, int] | None = None,
    executor: Executor | None = None,
    dedup: bool = False,
    progress: Progress | None = None,
    options: CompressOptions | None = None,
    **keywords: Unpack[CompressKeywords],
) -> CompressResult:
    """Compress a checkpoint file or a folder; losslessly, unless asked otherwise.

    Parameters
    ----------
    path : str or path-like
        A checkpoint file of any format, or a folder of such files, whatever their names. Its other
        files are copied.
    out : str or path-like, optional
        By default beside the input: ``model.tc.safetensors`` for ``model.safetensors``,
        ``model.pt.tc.safetensors`` for ``model.pt``, ``NAME.tc`` for a folder.
    force : bool
        Replace an existing output.
    replace : bool or "lossy"
        Delete each original when the file beside it that takes its place is verified and on the
        disk; a folder is changed file by file, and a killed run continued by the next one.
        ``"lossy"`` allows that where something was lost.
    keep_names : bool
        Of a folder: give compressed safetensors files the names of their originals, for hosts that
        look for no others.
    part : str or tuple of int, optional
        Of a folder: compress only the shards of one part, ``"0/8"`` to ``"7/8"``, into
        ``NAME.tc.partial``; `merge` puts the parts together. What is finished is left as it is.
    executor : concurrent.futures.Executor, optional
        Of a folder: compress each shard on one of its workers, which see the same paths. What a
        worker that died was at is compressed again; a run that was killed is continued by the next.
    dedup : bool
        Of a folder of many models: code each file against its nearest relative in the folder, so
        that what they share is stored once. Files of the output need each other then.
    progress : Progress, optional
    options : CompressOptions, optional
        Settings of compression; or give its fields as keywords.
    **keywords
        Fields of `CompressOptions`: effort, profile, budget, codecs, bounds, importance,
        statistics, plan, prune, base, bases, threads.

    Raises
    ------
    CheckpointError
        If the input cannot be read, or the output exists or cannot be written. The output is then
        as it was.
    PlanError
        If the budget cannot be kept, or what is asked for does not go together.
    PruningError
        If weights cannot be pruned as asked. Nothing is written then.

    Examples
    --------
    >>> from tensorcomp import Budget, compress
    >>> result = compress("model.safetensors", "small.tc.safetensors", budget=Budget(min_snr=30))
    >>> round(result.ratio, 1)
    3.1
    """
    begun = time.perf_counter()
    options = CompressOptions(**keywords) if options is None else options
    progress = progress or Progress()
    if dedup and (replace or part is not None or executor is not None):
        raise PlanError("expected dedup=True alone, got replace, part or executor; leave out one")
    if part is not None or executor is not None:
        if replace or None not in (part, executor):
            raise PlanError("expected part=…, executor=… or replace=True, got two; leave out one")
        from tensorcomp.api.compress_parts import PartsRequest, compress_on, compress_part

        target = None if out is None else location(out)
        request = PartsRequest(location(path), target, options, progress, force, keep_names)
        return compress_part(request, part) if executor is None else compress_on(request, executor)
    model = open_model(path, compressed=False, stand_ins=bool(replace))
    if keep_names and (replace or not model.is_folder):
        raise PlanError(
            "expected keep_names=True for a folder that is written elsewhere, got "
            f"{'replace=True' if replace else 'a file'}; leave out one of them"
        )
    outputs: Mapping[Path, Path] = {}
    if replace and options.base is not None:
        raise PlanError("expected no base beside replace=True, got one; give out=… instead")
    if replace:
        check_model(model, out)
        outputs = _replace(model, options, progress, replace, force=force)
        files = {}
        for shard, new in outputs.items():
            with CompressedFile(model.path / new if model.is_folder else new) as opened:
                files[shard] = FileResult.of(opened)
        target = model.path if model.is_folder else new
    else:
        target = location(out) if out is not None else default_output(model.path)
        if options.base is not None and not dedup:
            with opened_bases(options.base, options.bases) as bases:
                refuse_bases(bases, target)
        rereads = not options.is_lossless or bool(options.plan or options.prune)
        with with_copies(model, progress, every=rereads) as model:
            if model.is_folder or dedup:
                outputs = output_names(model, keep_names=keep_names)
                write = compress_related if dedup else _compress_folder
                results = write(model, target, outputs, options, progress, force=force)
            else:
                results = _compress_file(model, target, options, progress, force=force)
        files = dict(zip(model.shards, results, strict=True))
    return CompressResult(target, files, time.perf_counter() - begun, model.copied, outputs)


def _compress_file(
    model: Model, target: Path, options: CompressOptions, progress: Progress, *, force: bool
) -> list[FileResult]:
    refuse_suffix(model.path, target, "safetensors")
    refuse_itself(model.path, target)
    refuse_existing(target, force=force)
    path = model.file(model.shards[0])
    nbytes = file_size(path) if options.in_one_go and is_remote(target) else None
    output = atomic_file(target, force=force, nbytes=nbytes, progress=progress)
    # The output is named when the source is closed, which tells whether that was changed.
    with output as file, open_original(path) as source:
        return [compress_source(source, file, options, progress)]


def _compress_folder(
    model: Model,
    target: Path,
    written: Mapping[Path, Path],
    options: CompressOptions,
    progress: Progress,
    *,
    force: bool,
) -> list[FileResult]:
    indexes = indexes_for_hosts(model, written)
    again = is_remote(target) and options.many_times
    with output_folder(model, target, written, indexes, force=force, spooled=again) as partial:

        def job(shard: Path, keys: Mapping[str, str]) -> Shard:
            nbytes = file_size(model.file(shard)) if options.in_one_go else None
            output = partial / written[shard]
            create = functools.partial(atomic_file, output, force=True, nbytes=nbytes)
            return Shard(functools.partial(open_original, model.file(shard)), create, keys)

        shards = [job(shard, keys) for shard, keys in model.keys().items()]
        nbytes = sum(model.file(shard).stat().st_size for shard in model.shards)
        return compress_shards(shards, options, progress, nbytes)


def _replace(
    model: Model, options: CompressOptions, progress: Progress, replace: Replace, *, force: bool
) -> dict[Path, Path]:
    """Compress the files of a model, each in its own place; return where, in a folder."""
    _check_replaceable(options, replace, is_folder=model.is_folder)
    left: dict[Path, Replacement] = {}
    written = {}
    for shard in model.shards:
        source = target = model.file(shard)
        if shard not in model.replaced:
            target = default_output(source)
            item = Replacement(source, target, replace, options.threads, force)
            left |= {shard: item} if item.is_left() else {}
        written[shard] = target.relative_to(model.path) if model.is_folder else target
    if left and options.plan is None and options.prune is None:
        _require_room(list(left.values()), options)
    if not model.is_folder:
        for item in left.values():
            with item.create() as file, open_original(item.source) as original:
                compress_source(original, file, options, progress)
    elif left:
        keys = dataclasses.replace(model, shards=tuple(left)).keys()
        shards = [
            Shard(functools.partial(open_original, item.source), item.create, keys[shard])
            for shard, item in left.items()
        ]
        nbytes = sum(item.size for item in left.values())
        compress_shards(shards, options, progress, nbytes, whole=len(left) == len(model.shards))
    for index, text in indexes_for_hosts(model, written).items():
        with atomic_file(model.path / index, force=True) as file:
            file.write(text.encode())
    return written


def _check_replaceable(options: CompressOptions, replace: Replace, *, is_folder: bool) -> None:
    """Refuse what may lose something unsaid, or spreads over files that go one by one."""
    budget = options.planner().budget
    if replace != "lossy" and (options.prune is not None or budget.given()):
        raise PlanError(LOSES)
    if is_folder and (options.plan or options.prune or budget.is_size):
        raise PlanError(
            "expected no plan, pruning or size for a folder that is replaced file by file, got "
            "one; bound the error, or give the files one by one"
        )


def _require_room(items: list[Replacement], options: CompressOptions) -> None:
    """Require room for the largest file; estimate that only where there may be too little."""
    largest, targets = max(items, key=lambda item: item.size), [item.target for item in items]
    if free_bytes(largest.target.parent, targets) < largest.size:
        from tensorcomp.api.plan import plan

        needed = plan(largest.source, options=options).output_bytes
        require_room(targets, needed, largest.target)
