"""Opens a checkpoint file of any format, and writes one back."""

from __future__ import annotations

import os
from pathlib import Path

from tensorcomp import checkpoints
from tensorcomp.checkpoints.checkpoint import Checkpoint, Recipe, TensorSource
from tensorcomp.checkpoints.sniff import sniff
from tensorcomp.errors import FormatError

# Names in `checkpoints`, which imports what a format needs when such a file is met.
_OPENERS = {"safetensors": "SafetensorsFile", "torch": "TorchFile", "npz": "NpzFile"}
_RESTORERS = {"safetensors": "restore_safetensors", "torch": "restore_torch", "npz": "restore_npz"}


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint file; its format is told from its content.

    Parameters
    ----------
    path : str or path-like
        A safetensors file, a torch file or an ``.npz`` archive. See `scan_folder` for folders.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, or of another format.

    Examples
    --------
    >>> with open_checkpoint("model.safetensors") as checkpoint:  # doctest: +SKIP
    ...     for info in checkpoint.tensors:
    ...         data = checkpoint.read(info.name)
    """
    path = Path(path)
    checkpoint: Checkpoint = getattr(checkpoints, _OPENERS[sniff(path)])(path)
    return checkpoint


def restore(recipe: Recipe, source: TensorSource, out_path: str | os.PathLike[str]) -> None:
    """Write the checkpoint file that a recipe describes, from its decoded tensors.

    A safetensors file is equal to the original in every byte; a torch file loads as an equal
    object, an ``.npz`` archive as equal arrays.

    Parameters
    ----------
    recipe : Recipe
        From `Checkpoint.recipe`.
    source : TensorSource
        Its tensors are those of `Checkpoint.tensors`, in the same order.
    out_path : str or path-like
        Created, or overwritten; give a temporary name and rename it when this returns.

    Raises
    ------
    CheckpointError
        If the file cannot be written.
    FormatError
        If the recipe is damaged or does not fit the tensors.
    """
    if recipe.kind not in _RESTORERS:
        raise FormatError(
            f"cannot write a checkpoint of kind {recipe.kind!r}; known are {', '.join(_RESTORERS)}"
        )
    getattr(checkpoints, _RESTORERS[recipe.kind])(recipe, source, Path(out_path))
