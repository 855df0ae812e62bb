"""Opens a checkpoint file of any format, and writes one back."""

from __future__ import annotations

import os
from pathlib import Path
from pkgutil import resolve_name

from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate
from tensorcomp.checkpoints.detect import detect_format
from tensorcomp.errors import FormatError

# By name: what a format needs is imported when such a file is met.
_HERE = "tensorcomp.checkpoints"
_OPENERS = {
    "safetensors": f"{_HERE}.safetensors.file:SafetensorsFile",
    "torch": f"{_HERE}.layouts.torch_file:TorchFile",
    "npz": f"{_HERE}.layouts.npz_file:NpzFile",
}
_RESTORERS = {
    "safetensors": f"{_HERE}.safetensors.file:restore_safetensors",
    "torch": f"{_HERE}.layouts.torch_restore:restore_torch",
    "npz": f"{_HERE}.layouts.npz_file:restore_npz",
}


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
    >>> with open_checkpoint("model.safetensors") as checkpoint:
    ...     for info in checkpoint.tensors:
    ...         data = checkpoint.read(info.name)
    """
    path = Path(path)
    checkpoint: Checkpoint = resolve_name(_OPENERS[detect_format(path)])(path)
    return checkpoint


def restore(template: SourceTemplate, source: Checkpoint, out_path: str | os.PathLike[str]) -> None:
    """Write the checkpoint file that a template describes, from its decoded tensors.

    A safetensors file is equal to the original in every byte; a torch file loads as an equal
    object, an ``.npz`` archive as equal arrays.

    Parameters
    ----------
    template : SourceTemplate
        From `Checkpoint.template`.
    source : Checkpoint
        Its tensors are those of `Checkpoint.tensors`, in the same order.
    out_path : str or path-like
        Created, or overwritten; give a temporary name and rename it when this returns.

    Raises
    ------
    CheckpointError
        If the file cannot be written.
    FormatError
        If the template is damaged or does not fit the tensors.
    """
    if template.kind not in _RESTORERS:
        raise FormatError(
            f"cannot write a checkpoint of kind {template.kind!r}; known: {', '.join(_RESTORERS)}"
        )
    resolve_name(_RESTORERS[template.kind])(template, source, Path(out_path))
