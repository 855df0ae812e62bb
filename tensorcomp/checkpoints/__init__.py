"""Where tensors come from and go to: safetensors files, torch files, NumPy archives, folders."""

from tensorcomp.checkpoints.checkpoint import Checkpoint, Recipe, TensorInfo, TensorSource
from tensorcomp.checkpoints.opening import open_checkpoint, restore

__all__ = [
    "Checkpoint",
    "Recipe",
    "TensorInfo",
    "TensorSource",
    "open_checkpoint",
    "restore",
]
