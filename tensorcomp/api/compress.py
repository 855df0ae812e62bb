"""Compress a checkpoint file, or a folder of shards beside its other files."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from tensorcomp.checkpoints.open import detect_format
from tensorcomp.container.model import (
    Copied,
    Model,
    compressed_path,
    default_output,
    open_model,
    open_original,
    output_folder,
    refuse_itself,
    refuse_suffix,
)
from tensorcomp.io.files import atomic_file, refuse_existing
from tensorcomp.pipeline.job import Shard, compress_shards, compress_source
from tensorcomp.pipeline.options import CompressKeywords, CompressOptions
from tensorcomp.pipeline.summary import CheckpointSummary, FileResult, join
from tensorcomp.progress import Progress


@dataclass(frozen=True, repr=False)
class CompressResult:
    """Result of compression: output path and sizes.

    Parameters
    ----------
    path : Path
        The file or folder.
    files : mapping of Path to FileResult
        One for each checkpoint file, by its path in the input folder, or by its name.
    seconds : float
        That the job took, from opening the input to renaming the output.
    copied : Copied or None
        Number and bytes of a folder's other files; None for a single file.
    """

    path: Path
    files: Mapping[Path, FileResult]
    seconds: float
    copied: Copied | None = None

    @functools.cached_property
    def summary(self) -> CheckpointSummary:
        """Figures of the checkpoint and of each tensor, as `inspect` returns them."""
        if not self.path.is_dir():
            (result,) = self.files.values()
            return result.summary()
        kinds = (result.manifest.template.kind for result in self.files.values())
        names = (path.as_posix() for path in map(compressed_path, self.files, kinds))
        return join(map(FileResult.summary, self.files.values(), names), self.copied)

    @property
    def input_bytes(self) -> int:
        """Bytes of the original."""
        return sum(result.input_bytes for result in self.files.values())

    @property
    def output_bytes(self) -> int:
        """Bytes written, every byte counted."""
        return sum(result.output_bytes for result in self.files.values())

    @property
    def ratio(self) -> float:
        """Original bytes / bytes written, of checkpoints."""
        return self.input_bytes / self.output_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values: those of `inspect`, path and seconds."""
        return {"path": str(self.path), "seconds": self.seconds, **self.summary.to_dict()}

    def __str__(self) -> str:
        return f"{self.path}\n{self.summary}"

    def __repr__(self) -> str:
        return f"<CompressResult {self.path}: {self.summary.totals()}>"

    def _repr_html_(self) -> str:
        """Return the table and totals for a notebook."""
        return self.summary._repr_html_()


def compress(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    options: CompressOptions | None = None,
    **keywords: Unpack[CompressKeywords],
) -> CompressResult:
    """Compress a checkpoint file or a folder; losslessly, unless asked otherwise.

    Parameters
    ----------
    path : str or path-like
        A safetensors file, a torch file, an ``.npz`` archive, or a folder of such files, whatever
        their names. Its other files are copied.
    out : str or path-like, optional
        By default beside the input: ``model.tc.safetensors`` for ``model.safetensors``,
        ``model.pt.tc.safetensors`` for ``model.pt``, ``NAME.tc`` for a folder.
    force : bool
        Replace an existing output.
    progress : Progress, optional
    options : CompressOptions, optional
        Settings of compression; or give its fields as keywords.
    **keywords
        Fields of `CompressOptions`: effort, profile, budget, codecs, bounds, importance, plan,
        prune, threads.

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
    model = open_model(path, compressed=False)
    target = Path(out) if out is not None else default_output(model.path)
    if model.is_folder:
        results = _compress_folder(model, target, options, progress or Progress(), force=force)
    else:
        refuse_suffix(model.path, target, "safetensors")
        refuse_itself(model.path, target)
        refuse_existing(target, force=force)
        with open_original(model.path) as source, atomic_file(target, force=force) as file:
            results = [compress_source(source, file, options, progress)]
    files = dict(zip(model.shards, results, strict=True))
    return CompressResult(target, files, time.perf_counter() - begun, model.copied)


def _compress_folder(
    model: Model, target: Path, options: CompressOptions, progress: Progress, *, force: bool
) -> list[FileResult]:
    written = {
        shard: compressed_path(shard, detect_format(model.file(shard))) for shard in model.names
    }
    with output_folder(model, target, written, force=force) as partial:
        shards = [
            Shard(
                functools.partial(open_original, model.file(shard)),
                functools.partial(atomic_file, partial / written[shard], force=True),
                keys,
            )
            for shard, keys in model.keys().items()
        ]
        nbytes = sum(model.file(shard).stat().st_size for shard in model.shards)
        return compress_shards(shards, options, progress, nbytes)
