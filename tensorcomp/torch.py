"""Offer the functions of ``safetensors.torch``, whose `save` compresses."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Unpack

from tensorcomp.api import load as loading
from tensorcomp.api import save as saving
from tensorcomp.api.compress_result import CompressResult
from tensorcomp.api.load import safe_open
from tensorcomp.api.safetensors_errors import safetensors_errors
from tensorcomp.api.shared_tensors import check_tensors, further_names
from tensorcomp.checkpoints.safetensors.header import json_text
from tensorcomp.pipeline.options import CompressKeywords

if TYPE_CHECKING:
    import torch

__all__ = ["load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]


def load(
    data: bytes, *, threads: int | None = None, max_bytes: int | None = None
) -> dict[str, torch.Tensor]:
    """Return the torch tensors of a file's bytes (see `tensorcomp.load`)."""
    return loading.load(data, "pt", threads=threads, max_bytes=max_bytes)


def load_file(
    filename: str | os.PathLike[str],
    device: Any = "cpu",
    *,
    backend: str = "mmap",
    threads: int | None = None,
    max_bytes: int | None = None,
) -> dict[str, torch.Tensor]:
    """Return a file's torch tensors (see `tensorcomp.load_file`).

    Parameters
    ----------
    filename : str or path-like
    device : str, int or torch.device
    backend, threads, max_bytes
        As for `tensorcomp.load_file`.
    """
    return loading.load_file(
        filename, "pt", device, backend=backend, threads=threads, max_bytes=max_bytes
    )


@safetensors_errors()
def save(
    tensors: dict[str, torch.Tensor],
    metadata: dict[str, str] | None = None,
    **keywords: Unpack[CompressKeywords],
) -> bytes:
    """Compress torch tensors into bytes (see `tensorcomp.save`).

    Raises
    ------
    ValueError, RuntimeError
        If they are such as ``safetensors.torch.save`` refuses: not contiguous, sparse, with shared
        memory.
    """
    check_tensors(tensors)
    return saving.save(tensors, metadata, **keywords)


@safetensors_errors()
def save_file(
    tensors: dict[str, torch.Tensor],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    **keywords: Unpack[CompressKeywords],
) -> CompressResult:
    """Compress torch tensors into a file (see `tensorcomp.save_file`).

    Raises
    ------
    ValueError, RuntimeError
        As for `save`.
    """
    check_tensors(tensors)
    return saving.save_file(tensors, filename, metadata, **keywords)


def save_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
    **keywords: Unpack[CompressKeywords],
) -> CompressResult:
    """Compress a model's state into a file, shared tensors under one name.

    Parameters
    ----------
    model : torch.nn.Module
    filename : str or path-like
    metadata : dict of str to str, optional
        To which each name that is left out is added, with the one that stands for it.
    force_contiguous : bool
        Whether tensors that are not contiguous are saved as if they were; else they are refused.
    **keywords
        As for `save`.

    Raises
    ------
    ValueError, RuntimeError
        As for `save`; also if tensors share parts of memory that no tensor has as a whole.
    """
    state = model.state_dict()
    left_out = further_names(state)
    kept = {name: tensor for name, tensor in state.items() if name not in left_out}
    if force_contiguous:
        kept = {name: tensor.contiguous() for name, tensor in kept.items()}
    return save_file(kept, filename, left_out | (metadata or {}) or metadata, **keywords)


def load_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
) -> tuple[list[str], list[str]]:
    """Load a file into a model, whose shared tensors may have any of their names.

    Parameters
    ----------
    model : torch.nn.Module
    filename : str or path-like
    strict : bool
        Whether names must agree.
    device, backend
        As for `load_file`.

    Returns
    -------
    missing, unexpected : list of str
        What the file lacks, and what the model lacks.

    Raises
    ------
    RuntimeError
        If `strict`, and there are such.
    """
    tensors = load_file(filename, device, backend=backend)
    left_out = further_names(model.state_dict(), preferred=tensors)
    absent, other = model.load_state_dict(tensors, strict=False)
    missing = [name for name in absent if name not in left_out]
    # Two values for one tensor, unless they are one in the file as well.
    unexpected = other + [
        name
        for name, kept in left_out.items()
        if name in tensors
        and (kept not in tensors or tensors[name].data_ptr() != tensors[kept].data_ptr())
    ]
    if strict and (missing or unexpected):
        faults = {"Missing": missing, "Unexpected": unexpected}
        lines = [
            f"\n    {kind} key(s) in state_dict: {', '.join(map(json_text, sorted(names)))}"
            for kind, names in faults.items()
            if names
        ]
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(model).__name__}:{''.join(lines)}"
        )
    return missing, unexpected
