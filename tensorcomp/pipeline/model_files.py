"""The files of one model together: what a plan calls their tensors, and how they are opened."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tensorcomp.checkpoints.base import Source
from tensorcomp.container.paths import open_original
from tensorcomp.pipeline.job import Pipeline

if TYPE_CHECKING:
    from tensorcomp.planning.allocation_problem import Draft
    from tensorcomp.planning.planner import Planner

Opener: TypeAlias = "Callable[[Path], AbstractContextManager[Source]]"


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


@contextlib.contextmanager
def sources_of(keys: Mapping[Path, Mapping[str, str]], pipeline: Pipeline) -> Iterator[Opener]:
    """Yield what opens each file of a model: all of them stay open if they are pruned together.

    Parameters
    ----------
    keys : mapping of Path to mapping of str to str
        From `tensor_keys`.
    pipeline : Pipeline

    Raises
    ------
    PruningError
        If the model cannot be pruned as asked.
    """
    if pipeline.prune is None:
        yield open_original
        return
    with contextlib.ExitStack() as stack:
        originals = [stack.enter_context(open_original(path)) for path in keys]
        pruned = pipeline.pruned_together(originals, list(keys.values()))
        by_path = dict(zip(keys, pruned, strict=True))
        yield lambda path: contextlib.nullcontext(by_path[path])


def draft_files(
    pipeline: Pipeline,
    planner: Planner,
    keys: Mapping[Path, Mapping[str, str]],
    opened: Opener,
) -> tuple[Draft, int]:
    """Return the draft of some files together, and their bytes.

    Parameters
    ----------
    pipeline : Pipeline
    planner : Planner
    keys : mapping of Path to mapping of str to str
        From `tensor_keys`.
    opened : callable
        Opens a file, from `sources_of`.

    Raises
    ------
    PlanError
        If what was asked for is not for these tensors.
    """
    drafts, nbytes = [], 0
    for path, names in keys.items():
        with opened(path) as checkpoint:
            drafts.append(pipeline.draft(checkpoint).renamed(names))
            nbytes += checkpoint.nbytes
    draft = functools.reduce(operator.add, drafts)
    planner.check_used(draft)
    return draft, nbytes
