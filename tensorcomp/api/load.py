"""Load tensors, compressed or not, by functions with safetensors' signatures."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp._threads import thread_count
from tensorcomp.api.frameworks import Framework, framework_of
from tensorcomp.api.safetensors_errors import safetensors_errors
from tensorcomp.api.tensor_slice import TensorSlice
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.file import SafetensorsFile
from tensorcomp.container.decoding import Job, decode_all, decode_jobs
from tensorcomp.container.manifest import is_compressed
from tensorcomp.container.model import BasePaths, base_paths
from tensorcomp.container.plain_tensor import open_tensor
from tensorcomp.container.reader import CompressedFile, check_claim, open_safetensors
from tensorcomp.container.records import TensorRecord
from tensorcomp.container.tensor_blob import ChunkedTensor
from tensorcomp.errors import (
    CheckpointError,
    FormatError,
    InputTypeError,
    MissingFileError,
    OptionError,
)
from tensorcomp.io.locations import location
from tensorcomp.io.memory_pages import empty_in_large_pages

_ALIGNMENT = 64
_BACKENDS = ("mmap", "pread")
_File: TypeAlias = CompressedFile | SafetensorsFile


@safetensors_errors()
def load(
    data: bytes,
    framework: str = "np",
    device: Any = "cpu",
    *,
    threads: int | None = None,
    max_bytes: int | None = None,
    bases: BasePaths = (),
) -> dict[str, Any]:
    """Return the tensors of a file's bytes, like ``safetensors.numpy.load``.

    Parameters
    ----------
    data : bytes
        From `save`, or the content of a safetensors file, compressed or not.
    framework : {"np", "pt"}
        NumPy arrays, or torch tensors.
    device : str or torch.device
        Where torch tensors go.
    threads : int, optional
        All available processors by default.
    max_bytes : int, optional
        Limit of the bytes of tensors in memory; by default 1 GiB and 1,000 times the file.
    bases : path or iterable of paths, optional
        Files and folders to find the bases in that it was compressed against; else the file's own
        folder.

    Returns
    -------
    dict of str to array
        Under every name, aliases included; tied tensors share memory. A dtype that the framework
        lacks comes as flat uint8.

    Raises
    ------
    CheckpointError, FormatError
        If the bytes are not a safetensors file, or damaged.
    """
    if not isinstance(data, bytes):
        raise InputTypeError(f"expected bytes, got a {type(data).__name__}; see load_file")
    return _load_all(data, framework, device, threads, max_bytes, bases=bases)


@safetensors_errors()
def load_file(
    filename: str | os.PathLike[str],
    framework: str = "np",
    device: Any = "cpu",
    *,
    backend: str = "mmap",
    threads: int | None = None,
    max_bytes: int | None = None,
    bases: BasePaths = (),
) -> dict[str, Any]:
    """Return a file's tensors, like ``safetensors.*.load_file``.

    Parameters
    ----------
    filename : str or path-like
        A safetensors file, compressed or not.
    framework, device, threads, max_bytes, bases
        As for `load`.
    backend : {"mmap", "pread"}
        Whether the file is mapped into memory, or read.

    Returns
    -------
    dict of str to array
        As for `load`.

    Raises
    ------
    CheckpointError, FormatError
        If the file cannot be read, is not a safetensors file, or is damaged. A
        ``SafetensorError`` too; a ``FileNotFoundError`` if there is none.
    """
    return _load_all(location(filename), framework, device, threads, max_bytes, backend, bases)


class _Place(NamedTuple):
    """What tells a tensor's bytes: the number of what is decoded, and a span of it."""

    number: int
    start: int
    info: TensorInfo | TensorRecord


def _open(
    source: bytes | Path, framework: Framework, backend: str = "mmap", bases: BasePaths = ()
) -> _File:
    """Open a safetensors file, compressed or not."""
    if backend not in _BACKENDS:
        raise OptionError(f"expected backend to be one of {', '.join(_BACKENDS)}, got {backend!r}")
    if isinstance(source, Path) and not os.path.lexists(source):
        raise MissingFileError(f"No such file or directory: {source}")
    file = open_safetensors(source, mapped=backend == "mmap", private=framework.shares_files)
    return CompressedFile(file, base_paths(bases)) if is_compressed(file) else file


def _load_all(
    source: bytes | Path,
    framework: str,
    device: Any,
    threads: int | None,
    max_bytes: int | None,
    backend: str = "mmap",
    bases: BasePaths = (),
) -> dict[str, Any]:
    form = framework_of(framework, device)
    with _open(source, form, backend, bases) as file:
        _check_expansion(file, max_bytes)
        file.fetch()
        return _decode(file, form, threads)


def _check_expansion(file: _File, max_bytes: int | None = None) -> None:
    if isinstance(file, CompressedFile):
        file.check_expansion(max_bytes)
    else:
        check_claim(sum(info.nbytes for info in file.tensors), file, max_bytes)


def _decode(file: _File, framework: Framework, threads: int | None = None) -> dict[str, Any]:
    """Decode every tensor into one allocation of large pages, of which they are views.

    Those of an ordinary file may be views of its private mapping instead.
    """
    if framework.shares_files and isinstance(file, SafetensorsFile):
        plain = {info.name: open_tensor(file, info) for info in file.tensors}
        return {
            info.name: TensorSlice(info, plain[info.name], framework).whole()
            for info in file.tensors
        }
    tensors, places = _places(file)
    sizes = [-(-tensor.grid.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in tensors]
    try:
        arena = empty_in_large_pages(sum(sizes))
    except MemoryError as error:
        raise CheckpointError(
            f"its tensors take {sum(sizes):,} bytes, more memory than there is; "
            "take them one by one by safe_open",
            path=file.where,
        ) from error
    starts = [0, *itertools.accumulate(sizes)]
    jobs: list[Job] = []
    for tensor, start in zip(tensors, starts, strict=False):
        out = np.ndarray(tensor.grid.shape, tensor.grid.dtype, arena, start)
        jobs += decode_jobs(tensor, out)
    decode_all(jobs, thread_count(threads))
    found = {}
    for name, (number, offset, info) in places.items():
        start = starts[number] + offset
        layout = framework.layout(info.dtype, info.shape, info.nbytes)
        found[name] = framework.tensor(arena[start : start + info.nbytes], info.dtype, layout)
    return found | {name: found[target] for name, target in file.aliases.items()}


def _places(file: _File) -> tuple[list[ChunkedTensor], dict[str, _Place]]:
    """Return what is to be decoded, and where in that each tensor lies."""
    if not isinstance(file, CompressedFile):
        plain = {info.name: _Place(n, 0, info) for n, info in enumerate(file.tensors)}
        return [open_tensor(file, info) for info in file.tensors], plain
    manifest = file.manifest
    numbers: dict[str, int] = {}  # of blobs
    places = {}
    for name, record in _records(file).items():
        stored = record if record.same_as is None else manifest.tensors[record.same_as]
        start = 0 if stored.bundle is None else manifest.layout.spans[stored.name].start
        places[name] = _Place(numbers.setdefault(stored.blob, len(numbers)), start, record)
    return [file.open_blob(manifest.blobs[name]) for name in numbers], places


def _records(file: CompressedFile) -> dict[str, TensorRecord]:
    """Return the records of a file's arrays."""
    records = file.manifest.tensors
    return {name: record for name, record in records.items() if name not in file.hidden}


class safe_open:
    """Open a file, compressed or not, for slices, like ``safetensors.safe_open``.

    Parameters
    ----------
    filename : str or path-like
    framework : {"np", "pt"}
    device : str or torch.device
        Where torch tensors go.
    backend : {"mmap", "pread"}
        Whether the file is mapped into memory, or read tensor by tensor.
    bases : path or iterable of paths, optional
        As for `load`.

    Raises
    ------
    CheckpointError, FormatError
        If the file cannot be read or is not a safetensors file. A ``SafetensorError`` too; a
        ``FileNotFoundError`` if there is none.

    Examples
    --------
    >>> with safe_open("model.tc.safetensors", framework="np") as file:
    ...     for name in file.keys():
    ...         rows = file.get_slice(name)[10:20]  # decodes only the chunks that hold them
    """

    @safetensors_errors()
    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str = "np",
        device: Any = "cpu",
        *,
        backend: str = "mmap",
        bases: BasePaths = (),
    ) -> None:
        self._framework = framework_of(framework, device)
        self._opened: _File | None = _open(location(filename), self._framework, backend, bases)
        self._infos: Mapping[str, TensorInfo | TensorRecord] = (
            _records(self._opened)
            if isinstance(self._opened, CompressedFile)
            else {info.name: info for info in self._opened.tensors}
        )

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    @property
    def _file(self) -> _File:
        if self._opened is None:
            raise CheckpointError("File is closed")
        return self._opened

    def keys(self) -> list[str]:
        """Return the names of all tensors, aliases included, sorted."""
        return sorted(self.offset_keys())

    @safetensors_errors()
    def offset_keys(self) -> list[str]:
        """Return the names in the order of the source file."""
        return [*self._infos, *self._file.aliases]

    @safetensors_errors()
    def metadata(self) -> dict[str, str] | None:
        """Return the source file's metadata, as it was."""
        file = self._file
        found: Any = file.metadata
        if isinstance(file, CompressedFile):
            found = file.manifest.template.structure.get("metadata")
        return dict(found) if isinstance(found, dict) else None

    @safetensors_errors()
    def get_tensor(self, name: str) -> Any:
        """Return a tensor.

        Raises
        ------
        FormatError
            If there is none of that name, or it is damaged.
        """
        return self.get_slice(name).whole()

    @safetensors_errors()
    def get_tensors(self) -> dict[str, Any]:
        """Return all tensors, as `load_file` does."""
        _check_expansion(self._file)
        self._file.fetch()
        return _decode(self._file, self._framework)

    @safetensors_errors()
    def get_slice(self, name: str) -> TensorSlice:
        """Return a tensor that decodes only what is taken from it by an index."""
        info = self._infos.get(self._file.aliases.get(name, name))
        if info is None:
            raise FormatError(f"has no tensor {shown(name)}", path=self._file.where)
        return TensorSlice(info, open_tensor(self._file, info), self._framework)
