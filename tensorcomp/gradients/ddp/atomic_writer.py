"""Replace distributed checkpoints at one instant."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter

from tensorcomp.io.files import held, refuse_nul, sync
from tensorcomp.io.locations import local_path


class AtomicWriter(FileSystemWriter):
    """Write a distributed checkpoint that replaces another at one instant.

    torch's own writes over the data of the save before, and removes its metadata before it names
    the new ones. Here data files have new names, the metadata, written last, take the place of the
    old, and then data files that they do not name are removed.
    """

    def __init__(self, path: str, alone: contextlib.ExitStack) -> None:
        super().__init__(path)
        self.fs, self._alone = KeepingFiles(), alone

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """Lock the folder until the stack ends; give files names of their own."""
        self._alone.enter_context(held(Path(self.path)))
        plans, save = super().prepare_global_plan(plans), uuid.uuid4().hex[:12]
        for plan in plans:
            plan.storage_data.prefix = f"__{save}{plan.storage_data.prefix}"
        return plans

    def finish(self, metadata: Any, results: Any) -> None:
        """Name the metadata, and remove what they do not name."""
        sync(Path(self.path))
        super().finish(metadata, results)
        sync(Path(self.path))
        named = {place.relative_path for place in metadata.storage_data.values()}
        for file in Path(self.path).glob("__*.distcp"):
            if file.name not in named:
                file.unlink()


class KeepingFiles(FileSystem):
    """Files on a disk of which none is removed before another takes its place."""

    def init_path(self, path: Any) -> Path:
        """Return an absolute path, since the working folder may change.

        A URL is refused, which torch would take for a folder here.
        """
        place = local_path(path)
        refuse_nul(place)
        return Path(os.path.abspath(place))  # noqa: PTH100 - links stay as they are

    def rm_file(self, path: Any) -> None:
        """Leave the file."""

    def rename(self, path: Any, new_path: Any) -> None:
        """Rename a file, and replace another."""
        Path(path).replace(new_path)
