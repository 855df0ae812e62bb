"""Where tensors come from and go to: safetensors files, torch files, NumPy archives, folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp.lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.checkpoints.checkpoint import Checkpoint, Recipe, TensorInfo, TensorSource
    from tensorcomp.checkpoints.folder import CheckpointFolder, copy_others, scan_folder
    from tensorcomp.checkpoints.npz_file import NpzFile, restore_npz
    from tensorcomp.checkpoints.opening import open_checkpoint, restore
    from tensorcomp.checkpoints.safetensors_file import SafetensorsFile, restore_safetensors
    from tensorcomp.checkpoints.torch_file import TorchFile
    from tensorcomp.checkpoints.torch_restore import restore_torch

_HOMES = {
    "Checkpoint": "checkpoint",
    "CheckpointFolder": "folder",
    "NpzFile": "npz_file",
    "Recipe": "checkpoint",
    "SafetensorsFile": "safetensors_file",
    "TensorInfo": "checkpoint",
    "TensorSource": "checkpoint",
    "TorchFile": "torch_file",
    "copy_others": "folder",
    "open_checkpoint": "opening",
    "restore": "opening",
    "restore_npz": "npz_file",
    "restore_safetensors": "safetensors_file",
    "restore_torch": "torch_restore",
    "scan_folder": "folder",
}

__all__ = [
    "Checkpoint",
    "CheckpointFolder",
    "NpzFile",
    "Recipe",
    "SafetensorsFile",
    "TensorInfo",
    "TensorSource",
    "TorchFile",
    "copy_others",
    "open_checkpoint",
    "restore",
    "restore_npz",
    "restore_safetensors",
    "restore_torch",
    "scan_folder",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
