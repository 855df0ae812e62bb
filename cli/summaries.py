"""Reads the figures of a file or a folder from disk, without decoding anything."""

from __future__ import annotations

from pathlib import Path

from tensorcomp.api.inspect import Summary, join, summarise_checkpoint, summarise_compressed
from tensorcomp.checkpoints.folder import scan_folder
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.container.paths import compressed_files, is_compressed
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import CheckpointError


def summarise(path: Path) -> Summary:
    """Return the figures of a checkpoint file or folder, compressed or not.

    Of a folder that holds compressed files these are taken, else its checkpoints.

    Parameters
    ----------
    path : Path

    Raises
    ------
    CheckpointError, FormatError
        If a file cannot be read.
    """
    if not path.is_dir():
        return _summarise_file(path, None)
    try:
        files = [file.relative_to(path) for file in compressed_files(path)]
    except CheckpointError:
        files = list(scan_folder(path).weights)
    return join(_summarise_file(path / file, file.as_posix()) for file in files)


def _summarise_file(path: Path, label: str | None) -> Summary:
    with open_checkpoint(path) as checkpoint:
        if not is_compressed(checkpoint):
            return summarise_checkpoint(checkpoint, label)
    with CompressedFile(path) as opened:
        return summarise_compressed(opened, label)
