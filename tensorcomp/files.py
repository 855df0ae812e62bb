"""The verbs that write files and folders: compress and decompress.

A folder of shards becomes a folder of compressed shards beside its other files, unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensorcomp.checkpoints import (
    Checkpoint,
    TensorInfo,
    copy_others,
    open_checkpoint,
    restore,
    scan_folder,
)
from tensorcomp.container.atomic import atomic_file, atomic_folder, refuse_existing
from tensorcomp.container.reader import CompressedFile, StoredTensor
from tensorcomp.errors import CheckpointError, FormatError, PlanError
from tensorcomp.pipeline import Pipeline, Progress
from tensorcomp.planning import (
    Budget,
    CheckpointPlan,
    Draft,
    Planner,
    Profile,
    Rule,
    check_names,
    make_planner,
    plan_from_json,
)
from tensorcomp.reports.outcome import Report
from tensorcomp.sizing import write_obeying, write_within
from tensorcomp.threads import Workers, available_threads

COMPRESSED = ".tc.safetensors"
_SAFETENSORS = ".safetensors"
_FOLDER = ".tc"


@dataclass(frozen=True)
class Compressed:
    """What `compress` wrote.

    Parameters
    ----------
    path : Path
        The file or folder.
    reports : mapping of Path to Report
        One for each checkpoint file, by its path in the input folder, or by its name.
    """

    path: Path
    reports: dict[Path, Report]


def compress(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    effort: str | None = None,
    profile: str | Profile | None = None,
    budget: Budget | None = None,
    codecs: Iterable[str | Rule] = (),
    bounds: Mapping[str, Budget] | None = None,
    importance: str | os.PathLike[str] | Mapping[str, float] | None = None,
    plan: str | os.PathLike[str] | CheckpointPlan | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Compressed:
    """Compress a checkpoint file, or a folder of shards; without losing a bit, unless told to.

    Parameters
    ----------
    path : str or path-like
        A safetensors file, a torch file, an ``.npz`` archive, or a folder of such files.
    out : str or path-like, optional
        By default beside the input: ``model.tc.safetensors`` for ``model.safetensors``,
        ``model.pt.tc.safetensors`` for ``model.pt``, ``NAME.tc`` for a folder.
    effort : {"balanced", "fast", "max"}, optional
        What size is worth in time; by default the profile's, or balanced.
    profile : str or Profile, optional
        ``lossless``, ``transformer``, ``cnn``, ``mlp``, ``memory``, ``speed``, or the path of a
        TOML file. By default ``lossless``; ``transformer`` where a budget is given and no tree.
    budget : Budget, optional
        The largest error of each tensor, or the size of the file; by default the profile's.
    codecs : iterable of str or Rule
        ``SELECTOR=TREE``: trees for tensors by role, by name or for ``all``.
    bounds : mapping of str to Budget, optional
        Bounds of single tensors, by name, in place of the budget.
    importance : path or mapping of str to float, optional
        What a unit of squared error costs in each tensor, under a size: a safetensors file of one
        positive array or scalar a tensor, of which the mean counts.
    plan : path or CheckpointPlan, optional
        What is to become of each tensor, as `plan` returns it; in place of all the above.
    threads : int, optional
        All available processors by default. The bytes do not depend on it.
    force : bool
        Replace an existing output.
    progress : Progress, optional

    Raises
    ------
    CheckpointError
        If the input cannot be read, or the output exists or cannot be written. The output is then
        as it was.
    PlanError
        If the budget cannot be kept, or what is asked for does not go together.
    """
    source = Path(path)
    obeyed = None
    if plan is not None:
        if profile is not None or budget is not None or tuple(codecs) or bounds or importance:
            raise PlanError("a plan says everything: give no profile, budget or trees beside it")
        obeyed = load_plan(plan)
        pipeline = Pipeline(effort or obeyed.effort, threads or available_threads())
    else:
        planner = make_planner(
            profile=profile,
            budget=budget,
            codecs=codecs,
            bounds=bounds,
            importance=importance,
            effort=effort,
        )
        pipeline = Pipeline.of(planner, threads)
    target = Path(out) if out is not None else default_output(source)
    if source.is_dir():
        return _compress_folder(source, target, pipeline, progress, obeyed, force=force)
    _refuse_itself(source, target)
    refuse_existing(target, force=force)
    report = _compress_file(source, target, pipeline, progress, obeyed, force=force)
    return Compressed(target, {Path(source.name): report})


def load_plan(plan: str | os.PathLike[str] | CheckpointPlan) -> CheckpointPlan:
    """Return a plan, read from a file if need be.

    Raises
    ------
    PlanError
        If the file cannot be read or is no plan.
    """
    if isinstance(plan, CheckpointPlan):
        return plan
    try:
        text = Path(plan).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{plan}: cannot be read: {getattr(error, 'strerror', error)}") from error
    return plan_from_json(text, str(plan))


def default_output(source: Path) -> Path:
    """Return where `compress` writes if it is not told."""
    if source.is_dir():
        return source.resolve().with_name(source.resolve().name + _FOLDER)
    return source.with_name(compressed_name(source.name))


def compressed_name(name: str) -> str:
    """Return the name of a compressed file: model.tc.safetensors, model.pt.tc.safetensors."""
    return name.removesuffix(_SAFETENSORS) + COMPRESSED


def _compress_file(
    source: Path,
    target: Path,
    pipeline: Pipeline,
    progress: Progress | None,
    plan: CheckpointPlan | None,
    *,
    force: bool,
) -> Report:
    with open_original(source) as checkpoint, atomic_file(target, force=force) as file:
        return pipeline.write(checkpoint, file, progress, plan)


@contextlib.contextmanager
def open_original(path: Path) -> Iterator[Checkpoint]:
    """Open a checkpoint that is not compressed.

    Raises
    ------
    CheckpointError
        If it cannot be read, or is compressed.
    """
    with open_checkpoint(path) as checkpoint:
        if is_compressed(checkpoint):
            raise CheckpointError(f"{path}: tensorcomp has compressed it already")
        yield checkpoint


def is_compressed(checkpoint: Checkpoint) -> bool:
    """Return whether a safetensors file is one that `compress` wrote."""
    metadata = checkpoint.recipe().structure.get("metadata")
    return isinstance(metadata, dict) and "tensorcomp" in metadata


def _refuse_itself(source: Path, target: Path) -> None:
    if target.exists() and source.exists() and target.samefile(source):
        raise CheckpointError(f"{source}: the output would replace the input; give another by -o")


def _compress_folder(
    source: Path,
    target: Path,
    pipeline: Pipeline,
    progress: Progress | None,
    plan: CheckpointPlan | None,
    *,
    force: bool,
) -> Compressed:
    folder = scan_folder(source)
    _refuse_inside(source, target)
    paths = {weights: source / weights for weights in folder.weights}
    with atomic_folder(target, force=force) as partial:
        copy_others(folder, partial)

        keys = tensor_keys(source, paths.values())

        def write(plan: CheckpointPlan | None) -> list[Report]:
            if progress is not None:
                progress.begin_folder(sum(path.stat().st_size for path in paths.values()))
            return [
                _compress_shard(
                    path, partial / weights, pipeline, progress, plan and plan.of(keys[path])
                )
                for weights, path in paths.items()
            ]

        reports = _write_folder(pipeline, keys, plan, write)
    return Compressed(target, dict(zip(paths, reports, strict=True)))


def _write_folder(
    pipeline: Pipeline,
    keys: Mapping[Path, Mapping[str, str]],
    plan: CheckpointPlan | None,
    write: Callable[[CheckpointPlan | None], list[Report]],
) -> list[Report]:
    names = list(keys.values())
    if plan is not None:
        check_names(plan, [key for file in names for key in file.values()], "the plan")
        return write_obeying(plan, names, write)
    if pipeline.planner is None or pipeline.planner.is_lossless:
        return write(None)
    draft, nbytes = draft_files(pipeline, pipeline.planner, keys)
    return write_within(draft, draft.most_bytes(nbytes), names, write)


def _compress_shard(
    source: Path,
    target: Path,
    pipeline: Pipeline,
    progress: Progress | None,
    plan: CheckpointPlan | None,
) -> Report:
    written = target.with_name(compressed_name(target.name))
    written.parent.mkdir(parents=True, exist_ok=True)
    return _compress_file(source, written, pipeline, progress, plan, force=True)


def tensor_keys(folder: Path, paths: Iterable[Path]) -> dict[Path, dict[str, str]]:
    """Return for each file of a folder what a plan calls its tensors.

    That is their name; behind the file's path and a colon, where several files have the name.
    """
    names = {path: _names(path) for path in paths}
    files_with = Counter(name for file in names.values() for name in file)
    return {
        path: {
            name: name if files_with[name] == 1 else f"{path.relative_to(folder).as_posix()}:{name}"
            for name in file
        }
        for path, file in names.items()
    }


def _names(path: Path) -> list[str]:
    with open_original(path) as checkpoint:
        return [info.name for info in checkpoint.tensors]


def draft_files(
    pipeline: Pipeline, planner: Planner, keys: Mapping[Path, Mapping[str, str]]
) -> tuple[Draft, int]:
    """Return the draft of some files together, and their bytes.

    Parameters
    ----------
    pipeline : Pipeline
    planner : Planner
    keys : mapping of Path to mapping of str to str
        From `tensor_keys`.

    Raises
    ------
    PlanError
        If what was asked for is not for these tensors.
    """
    drafts, nbytes = [], 0
    for path, names in keys.items():
        with open_original(path) as checkpoint:
            drafts.append(pipeline.draft(checkpoint).renamed(names))
            nbytes += checkpoint.nbytes
    draft = functools.reduce(operator.add, drafts)
    planner.check_used(draft)
    return draft, nbytes


def _refuse_inside(source: Path, target: Path) -> None:
    if target.resolve().is_relative_to(source.resolve()):
        raise CheckpointError(f"{target}: lies in the input folder; give another by -o")


def decompress(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    threads: int | None = None,
    force: bool = False,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Restore what `compress` read: a safetensors file byte for byte, others as equal objects.

    Parameters
    ----------
    path : str or path-like
        A compressed file, or a folder that `compress` wrote.
    out : str or path-like, optional
        By default beside the input, under the name it had.
    threads, force, progress
        As for `compress`.
    max_bytes : int, optional
        What a file's tensors may take once decoded; by default 1 GiB and 1,000 times the file.

    Returns
    -------
    Path
        The restored file or folder.

    Raises
    ------
    CheckpointError, FormatError, VerificationError
        If the input cannot be read, is no compressed checkpoint, or is damaged, or the output
        exists or cannot be written. The output is then as it was.
    """
    source = Path(path)
    number = threads or available_threads()
    if source.is_dir():
        target = Path(out) if out is not None else _restored_folder(source)
        return _decompress_folder(source, target, number, progress, max_bytes, force=force)
    with CompressedFile(source) as file:
        file.check_expansion(max_bytes)
        target = Path(out) if out is not None else _restored_file(source, file)
        _refuse_itself(source, target)
        _restore_file(file, target, number, progress, force=force)
    return target


def _restored_file(source: Path, file: CompressedFile) -> Path:
    if not source.name.endswith(COMPRESSED):
        raise CheckpointError(f"{source}: its name does not end in {COMPRESSED}; say -o")
    return source.with_name(restored_name(source.name, file.manifest.recipe.kind))


def restored_name(name: str, kind: str) -> str:
    """Return the name of the file of this kind that a compressed file restores."""
    name = name.removesuffix(COMPRESSED)
    if kind == "safetensors":
        return name + _SAFETENSORS
    return name if "." in name else name + {"torch": ".pt"}.get(kind, f".{kind}")


def _restored_folder(source: Path) -> Path:
    resolved = source.resolve()
    if not resolved.name.endswith(_FOLDER):
        raise CheckpointError(f"{source}: its name does not end in {_FOLDER}; say -o")
    return resolved.with_name(resolved.name.removesuffix(_FOLDER))


def _restore_file(
    file: CompressedFile, target: Path, threads: int, progress: Progress | None, *, force: bool
) -> None:
    refuse_existing(target, force=force)
    progress = progress or Progress()
    progress.begin(len(file.tensors), sum(info.nbytes for info in file.tensors))
    with Workers(threads) as workers, atomic_file(target, force=force) as out:
        partial = Path(out.name)
        try:
            restore(file.manifest.recipe, _Decoder(file, workers, progress), partial)
        except (CheckpointError, FormatError) as error:
            if file.where in str(error) or str(partial) in str(error):
                raise
            raise type(error)(f"{file.where}: {error}") from error


class _Decoder:
    """A compressed file as the source of a restored one: chunks are decoded ahead on threads."""

    def __init__(self, file: CompressedFile, workers: Workers, progress: Progress) -> None:
        self.tensors: tuple[TensorInfo, ...] = file.tensors
        self._file = file
        self._progress = progress
        self._due = iter(file.tensors)
        self._decoded = workers.in_order(_decode_job, self._jobs(), ahead=8)

    def _jobs(self) -> Iterator[tuple[StoredTensor, int]]:
        for info in self.tensors:
            tensor = self._file.open_tensor(info.name)
            yield from ((tensor, index) for index in range(tensor.grid.count))

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        """Yield a tensor's bytes; quickest if tensors are asked for in their order."""
        import xxhash

        due = next(self._due, None)
        if due is None or due.name != name:
            self._due = iter(())  # out of order: what was decoded ahead is of no use from here on
            for data in self._file.iter_bytes(name):
                yield data
                self._progress.advance(name, data.nbytes)
            return
        digest = xxhash.xxh3_128()
        for (tensor, index), chunk in self._decoded:
            data = chunk.reshape(-1).view(np.uint8)
            digest.update(data)
            last = index == tensor.grid.count - 1
            if last:
                tensor.check_digest(digest.hexdigest())
            yield data
            self._progress.advance(name, data.nbytes)
            if last:
                return


def _decode_job(job: tuple[StoredTensor, int]) -> np.ndarray:
    tensor, index = job
    return tensor.decode_chunk(index)


def _decompress_folder(
    source: Path,
    target: Path,
    threads: int,
    progress: Progress | None,
    max_bytes: int | None,
    *,
    force: bool,
) -> Path:
    _refuse_inside(source, target)
    found = compressed_files(source)
    if progress is not None:
        progress.begin_folder(decoded_bytes(found))
    with atomic_folder(target, force=force) as partial:
        for file in sorted(source.rglob("*")):
            if file.is_file() and file not in found and not file.name.endswith(".tensorcomp-part"):
                copied = partial / file.relative_to(source)
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copied)
        for file in found:
            with CompressedFile(file) as opened:
                opened.check_expansion(max_bytes)
                name = restored_name(file.name, opened.manifest.recipe.kind)
                restored = partial / file.relative_to(source).parent / name
                restored.parent.mkdir(parents=True, exist_ok=True)
                _restore_file(opened, restored, threads, progress, force=False)
    return target


def decoded_bytes(files: list[Path]) -> int:
    """Return the bytes of all tensors of compressed files once they are decoded."""
    total = 0
    for path in files:
        with CompressedFile(path) as file:
            total += sum(info.nbytes for info in file.tensors)
    return total


def compressed_files(folder: Path) -> list[Path]:
    """Return the compressed files of a folder.

    Raises
    ------
    CheckpointError
        If it holds none.
    """
    found = sorted(file for file in folder.rglob(f"*{COMPRESSED}") if file.is_file())
    if not found:
        raise CheckpointError(f"{folder}: holds no *{COMPRESSED} file")
    return found
