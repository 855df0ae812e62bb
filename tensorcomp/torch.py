"""Offer the functions of ``safetensors.torch`` for compressed files."""

from __future__ import annotations

import os
from typing import Any

from tensorcomp.api import load as loading
from tensorcomp.api.save import save, save_file

__all__ = ["load", "load_file", "save", "save_file"]


def load(data: bytes) -> dict[str, Any]:
    """Return the torch tensors of compressed bytes (see `tensorcomp.load`)."""
    return loading.load(data, "pt")


def load_file(filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Any]:
    """Return a compressed file's torch tensors (see `tensorcomp.load_file`).

    Parameters
    ----------
    filename : str or path-like
    device : str, int or torch.device
    """
    return loading.load_file(filename, "pt", device)
