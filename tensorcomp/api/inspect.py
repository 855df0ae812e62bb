"""Inspect a checkpoint: its tensors and their bytes, without decoding."""

from __future__ import annotations

import os

from tensorcomp.container.model import open_model
from tensorcomp.pipeline.summary import CheckpointSummary, join, summarise


def inspect(path: str | os.PathLike[str]) -> CheckpointSummary:
    """Return the sizes, trees and errors of a checkpoint's tensors.

    Parameters
    ----------
    path : str or path-like
        A checkpoint file or folder, compressed or not. Of a folder that holds compressed files
        these are taken, else its checkpoints.

    Raises
    ------
    CheckpointError, FormatError
        If a file cannot be read.
    """
    model = open_model(path)
    parts = []
    for shard in model.shards:
        with model.open(shard) as checkpoint:
            parts.append(summarise(checkpoint, model.label(shard)))
    return parts[0] if not model.is_folder else join(parts, model.copied)
