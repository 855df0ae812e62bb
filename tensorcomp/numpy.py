"""Offer the functions of ``safetensors.numpy``, whose `save` compresses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from tensorcomp.api import load as loading
from tensorcomp.api import save as saving
from tensorcomp.api.compress_result import CompressResult
from tensorcomp.api.load import safe_open
from tensorcomp.pipeline.options import CompressKeywords

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]


def load(
    data: bytes, *, threads: int | None = None, max_bytes: int | None = None
) -> dict[str, np.ndarray]:
    """Return the tensors of a file's bytes (see `tensorcomp.load`)."""
    return loading.load(data, "np", threads=threads, max_bytes=max_bytes)


def load_file(
    filename: str | os.PathLike[str],
    *,
    backend: str = "mmap",
    threads: int | None = None,
    max_bytes: int | None = None,
) -> dict[str, np.ndarray]:
    """Return the tensors of a file (see `tensorcomp.load_file`)."""
    return loading.load_file(filename, "np", backend=backend, threads=threads, max_bytes=max_bytes)


def save(
    tensor_dict: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    **keywords: Unpack[CompressKeywords],
) -> bytes:
    """Compress arrays into bytes (see `tensorcomp.save`)."""
    return saving.save(tensor_dict, metadata, **keywords)


def save_file(
    tensor_dict: Mapping[str, Any],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    **keywords: Unpack[CompressKeywords],
) -> CompressResult:
    """Compress arrays into a file (see `tensorcomp.save_file`)."""
    return saving.save_file(tensor_dict, filename, metadata, **keywords)
