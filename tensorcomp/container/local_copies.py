"""Copy files of a model in an object store that are read more than once."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import replace

from tensorcomp.checkpoints.open import detect_format
from tensorcomp.container.model import Model
from tensorcomp.io.locations import is_remote
from tensorcomp.progress import Progress


@contextlib.contextmanager
def with_copies(
    model: Model, progress: Progress | None = None, *, every: bool = True
) -> Iterator[Model]:
    """Copy shards in an object store to temporary files; yield their model.

    Parameters
    ----------
    model : Model
    progress : Progress, optional
    every : bool
        Whether safetensors files are copied too, of which ranges can be read.

    Raises
    ------
    CheckpointError
        If there is no room for a copy, or a file cannot be read.
    """
    if not is_remote(model.path):
        yield model
        return
    files = {shard: model.file(shard) for shard in model.shards}
    wanted = [s for s, file in files.items() if every or detect_format(file) != "safetensors"]
    with contextlib.ExitStack() as stack:
        from tensorcomp.io.spool import local_copy

        copies = {}
        sizes = {shard: files[shard].stat().st_size for shard in wanted}
        if progress is not None:
            progress.begin(len(wanted), sum(sizes.values()))
        for shard in wanted:
            told = functools.partial((progress or Progress()).advance, f"copy of {shard.name}")
            copies[shard] = stack.enter_context(local_copy(files[shard], told))
        yield replace(model, copies=copies)
