"""Compress tensors in memory into bytes or a file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from tensorcomp.api.compress_result import CompressResult
from tensorcomp.api.safetensors_errors import safetensors_errors
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.io.files import atomic_file
from tensorcomp.io.locations import location
from tensorcomp.io.memory_file import MemoryFile
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressKeywords, CompressOptions


@safetensors_errors()
def save(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    **keywords: Unpack[CompressKeywords],
) -> bytes:
    """Compress tensors into bytes, like ``safetensors.*.save``.

    Parameters
    ----------
    tensors : mapping of str to numpy.ndarray or torch.Tensor
    metadata : mapping of str to str, optional
        Kept, and restored by `decompress`.
    **keywords
        Fields of `CompressOptions`; nothing is lost by default. The tensors given stay as they are.

    Returns
    -------
    bytes
        Contents of the file that `save_file` would write, for `load`.

    Raises
    ------
    InputTypeError
        If a value is not an array, or its dtype has no safetensors equal.
    PlanError
        If the budget cannot be kept.

    Examples
    --------
    >>> import numpy as np
    >>> data = save({"weight": np.zeros((2, 3), np.float32)})
    >>> from tensorcomp import load
    >>> load(data)["weight"].shape
    (2, 3)
    """
    options, source = CompressOptions(**keywords), MemoryCheckpoint(tensors, metadata)
    file = MemoryFile(source.nbytes)
    compress_source(source, file, options)
    return file.to_bytes()


@safetensors_errors()
def save_file(
    tensors: Mapping[str, Any],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    **keywords: Unpack[CompressKeywords],
) -> CompressResult:
    """Compress tensors into a file, like ``safetensors.*.save_file``.

    The file appears complete or not at all; one of that name is replaced.

    Parameters
    ----------
    tensors, metadata, **keywords
        As for `save`.
    filename : str or path-like
        By convention ``*.tc.safetensors``.

    Returns
    -------
    CompressResult
        Sizes, and the tree of each tensor.

    Raises
    ------
    InputTypeError
        If a value is not an array, or its dtype has no safetensors equal.
    CheckpointError
        If the file cannot be written.
    PlanError
        If the budget cannot be kept.
    """
    begun, path = time.perf_counter(), location(filename)
    options, source = CompressOptions(**keywords), MemoryCheckpoint(tensors, metadata)
    nbytes = source.nbytes if options.in_one_go else None
    with atomic_file(path, force=True, nbytes=nbytes) as file:
        result = compress_source(source, file, options)
    return CompressResult(path, {Path(path.name): result}, time.perf_counter() - begun)
