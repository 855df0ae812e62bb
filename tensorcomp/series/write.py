"""Write the file of a step, against the step before where that is smaller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from tensorcomp._log import LOGGER
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.errors import TensorcompError
from tensorcomp.io.files import atomic_file
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.progress import Progress
from tensorcomp.series.journal import Step, describe
from tensorcomp.series.parts import joined

EXACT = "exact"


class Base(NamedTuple):
    """Base of a step: what it is coded against.

    Parameters
    ----------
    name : str
        Of its file in the series, or the path of one elsewhere.
    open : callable
        Opens it: what its decoder returns is what the step is compared with.
    most : int
        Bytes from which on a step is better a keyframe.
    """

    name: str
    open: Callable[[], AbstractContextManager[Checkpoint]]
    most: float


def write_step(
    parts: Mapping[str, Checkpoint],
    path: Path,
    about: Mapping[str, Any],
    base: Base | None = None,
    policy: str = EXACT,
    threads: int | None = None,
    progress: Progress | None = None,
    *,
    done: Callable[[], None] = lambda: None,
) -> Step:
    """Write a step as a new file, whole or not at all; return its record.

    It is a keyframe, too, where the base is damaged: a step that is to be kept is kept.
    """
    source = joined(parts, {**about, "base": None if base is None else base.name})

    def options(opened: Checkpoint | None) -> CompressOptions:
        return CompressOptions(base=opened, policy=policy, threads=threads)

    with atomic_file(path, force=False) as file:
        is_whole = False
        if base is not None:
            try:
                with base.open() as opened:
                    result = compress_source(source, file, options(opened), progress)
                is_whole = result.output_bytes < base.most
            except TensorcompError as error:
                LOGGER.warning("%s: written as a keyframe, since its base: %s", path.name, error)
        if not is_whole:
            compress_source(source, file, options(None), progress)
        done()  # which tells whether the files were changed meanwhile: it has no name yet
    return describe(path)
