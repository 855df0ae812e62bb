"""Hold what compression wrote: paths and sizes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorcomp.container.model import Copied
from tensorcomp.pipeline.summary import CheckpointSummary, FileResult, join


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
    outputs : mapping of Path to Path
        Of a folder: what each of `files` became, relative to `path`.
    reused : int
        Number of `files` that an earlier run had finished, where a folder is compressed in parts.
    """

    path: Path
    files: Mapping[Path, FileResult]
    seconds: float
    copied: Copied | None = None
    outputs: Mapping[Path, Path] = field(default_factory=dict)
    reused: int = 0

    @functools.cached_property
    def summary(self) -> CheckpointSummary:
        """Figures of the checkpoint and of each tensor, as `inspect` returns them."""
        if not self.path.is_dir():
            (result,) = self.files.values()
            return result.summary()
        names = (self.outputs[path].as_posix() for path in self.files)
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
        """Original bytes / bytes written, of checkpoints; 0 without any."""
        return self.input_bytes / max(self.output_bytes, 1)

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
