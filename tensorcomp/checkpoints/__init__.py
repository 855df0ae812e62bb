"""Where tensors come from and go to: safetensors files, torch files, NumPy archives, folders."""

from tensorcomp.checkpoints.checkpoint import Checkpoint, Recipe, TensorInfo, TensorSource
from tensorcomp.checkpoints.folder import CheckpointFolder, copy_others, scan_folder
from tensorcomp.checkpoints.opening import open_checkpoint, restore

__all__ = [
    "Checkpoint",
    "CheckpointFolder",
    "Recipe",
    "TensorInfo",
    "TensorSource",
    "copy_others",
    "open_checkpoint",
    "restore",
    "scan_folder",
]
