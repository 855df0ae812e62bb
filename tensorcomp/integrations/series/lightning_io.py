"""Keep the checkpoints of Lightning's Trainer in a series."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from tensorcomp.io.files import atomic_file
from tensorcomp.series.series import Series

_KEY = "tensorcomp.series.step"
_MAX_POINTER = 1 << 10  # bytes


class SeriesIO:
    """Keep the checkpoints of a Lightning Trainer in a series.

    A ``CheckpointIO`` plugin. What Lightning would write as one torch file is a step of the series;
    at the file's own path is a line of JSON with the step's number, so that names, links and
    ``ckpt_path`` are as ever.
    Checkpoints that Lightning removes lose that line, and stay in the series.

    Parameters
    ----------
    path : str or path-like
        The series' folder.
    **keywords
        Those of `tensorcomp.Series`.

    Raises
    ------
    ImportError
        If neither ``lightning`` nor ``pytorch_lightning`` is installed.
    """

    def __init__(self, path: str | os.PathLike[str], **keywords: Any) -> None:
        self.series = Series(path, **keywords)
        fabric = "lightning_fabric" if "pytorch_lightning" in sys.modules else "lightning.fabric"
        io = import_module(f"{fabric}.plugins.io")
        io.CheckpointIO.register(type(self))
        self._plain = io.TorchCheckpointIO()

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | os.PathLike[str],
        storage_options: Any | None = None,
    ) -> None:
        """Add a checkpoint under its global step, or the next number that is free."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        steps = {step.step for step in self.series.steps}
        number = int(checkpoint.get("global_step", 0))
        while number in steps:
            number += 1
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".series-") as folder:
            file = Path(folder, "checkpoint.ckpt")
            self._plain.save_checkpoint(checkpoint, file, storage_options)
            self.series.add_path(file, number)
        with atomic_file(path, force=True) as pointer:
            pointer.write(json.dumps({_KEY: number}).encode())

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Return a checkpoint of the series, or of an ordinary file."""
        number = _pointed(Path(path))
        with tempfile.TemporaryDirectory() as folder:
            if number is not None:
                path = self.series.get(number, out=Path(folder, "checkpoint.ckpt"))
            location = "cpu" if map_location is None else map_location
            found: dict[str, Any] = self._plain.load_checkpoint(path, location, weights_only)
            return found

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove the file at a path; the series keeps the step."""
        self._plain.remove_checkpoint(path)

    def teardown(self) -> None:
        """Do nothing: every step is on the disk already."""


def _pointed(path: Path) -> int | None:
    """Return the step that a file names; None for another file, or none at all."""
    try:
        with path.open("rb") as file:
            return int(json.loads(file.read(_MAX_POINTER))[_KEY])
    except (OSError, ValueError, LookupError, TypeError):
        return None
