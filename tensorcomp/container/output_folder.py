"""Make the output folders of models."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from types import MappingProxyType

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.folder import copy_others
from tensorcomp.container.model import Model
from tensorcomp.errors import CheckpointError
from tensorcomp.io.atomic_folder import atomic_folder
from tensorcomp.io.files import link_file, writing
from tensorcomp.io.locations import is_remote


def refuse_nested(source: Path, target: Path) -> None:
    """Raise `CheckpointError` if one of two folders contains the other."""
    if is_remote(source) != is_remote(target):
        return
    inner, outer = (
        path if is_remote(path) else Path(os.path.realpath(path)) for path in (source, target)
    )
    if outer.is_relative_to(inner):
        raise CheckpointError("lies in the input folder; give another by out=…", path=target)
    if inner.is_relative_to(outer):
        raise CheckpointError("holds the input folder; give another by out=…", path=target)


@contextlib.contextmanager
def output_folder(
    model: Model,
    target: Path,
    written: Mapping[Path, Path],
    texts: Mapping[Path, str] = MappingProxyType({}),
    *,
    force: bool,
    spooled: bool = False,
) -> Iterator[Path]:
    """Make a folder atomically with a model's other files; yield its path.

    In an object store, what is made is told from what is whole, as `store_folder` says.

    Parameters
    ----------
    model : Model
    target : Path
    written : mapping of Path to Path
        What each name of a shard becomes, relative to the folder.
    texts : mapping of Path to str
        Further files to write.
    force : bool
    spooled : bool
        Whether shards are written more than once.

    Raises
    ------
    CheckpointError
        If one of the folders contains the other, two files would get one name, or the output
        cannot be made.
    """
    refuse_nested(model.path, target)
    outputs = {file: written.get(file, file) for file in (*model.others, *written, *model.links)}
    sources: dict[Path, Path] = {}
    for source, name in outputs.items():
        if (other := sources.setdefault(name, source)) != source:
            both = f"both {shown(other)} and {shown(source)} would become {shown(name)}"
            raise CheckpointError(f"{both}; move one of them away", path=model.path)
    if is_remote(target):
        from tensorcomp.container.store_folder import store_folder

        with store_folder(
            model, target, outputs, written, texts, force=force, spooled=spooled
        ) as made:
            yield made
        return
    with atomic_folder(target, {*map(PurePath, (*sources, *texts))}, force=force) as partial:
        copy_others(model.path, model.others, partial)
        for name in sources:
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with writing(partial / name):
                (partial / name).write_text(text, "utf-8")
        yield partial
        for link, file in model.links.items():
            link_file(partial / outputs[file], partial / outputs[link])
