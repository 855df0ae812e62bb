"""Offer the functions of ``safetensors.numpy`` for compressed files."""

from __future__ import annotations

import os

import numpy as np

from tensorcomp.api import load as loading
from tensorcomp.api.save import save, save_file

__all__ = ["load", "load_file", "save", "save_file"]


def load(data: bytes) -> dict[str, np.ndarray]:
    """Return the tensors of compressed bytes (see `tensorcomp.load`)."""
    return loading.load(data, "np")


def load_file(filename: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the tensors of a compressed file (see `tensorcomp.load_file`)."""
    return loading.load_file(filename, "np")
