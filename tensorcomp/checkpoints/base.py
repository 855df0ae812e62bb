"""Define what every checkpoint offers, whatever its format; map its file."""

from __future__ import annotations

import ctypes
import mmap
import stat
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Self

import numpy as np

from tensorcomp._log import LOGGER
from tensorcomp.errors import CheckpointError, TensorcompError
from tensorcomp.io.files import reading
from tensorcomp.io.locations import is_remote

LOOK_BYTES = 256  # at both ends of a tensor, to guess how many duplicates there are


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name, dtype and size of a stored tensor.

    Parameters
    ----------
    name : str
        Any text; no length limit.
    dtype : str
        A safetensors dtype name (``"F32"``, ``"BF16"``, …); an unknown one means opaque bits.
    shape : tuple of int
        Elements along each axis; ``()`` is a scalar.
    nbytes : int
        Bytes of the tensor's data.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class SourceTemplate:
    """Structure and attachments that rebuild a checkpoint file from its tensors.

    Parameters
    ----------
    kind : str
        How it is written: ``"safetensors"`` or ``"layout"``; ``"torch"`` and ``"npz"`` of files
        of format 7 and before.
    structure : mapping
        JSON values only.
    attachments : mapping of str to bytes
        Data too large or too binary for JSON.
    """

    kind: str
    structure: Mapping[str, Any] = field(default_factory=dict)
    attachments: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def format(self) -> str:
        """Format of the checkpoint file, such as ``"torch"``."""
        return str(self.structure.get("format")) if self.kind == "layout" else self.kind


class Checkpoint(ABC):
    """Checkpoint of any format, compressed or not, read tensor by tensor.

    Used as a context manager; `close` releases the file.

    Attributes
    ----------
    kind : str
        The file format.
    path : Path
        The file; empty where there is none.
    nbytes : int
        The file's size in bytes, or that of the safetensors file with these tensors.
    tensors : tuple of TensorInfo
        Every tensor that must be stored, in the file's order.
    aliases : mapping of str to str
        Further names of tensors in `tensors`: tied weights.
    metadata : mapping of str to str, or None
        Metadata of a safetensors file.
    hidden : frozenset of str
        Tensors that hold the rest of a file: no array of its own.
    copies : bool
        Whether what `read` returns takes memory: it is no view of a file.
    notes : sequence of str, or None
        What is compressed as bytes, and why, each a line; None if only the arrays can tell.
    known_as : str
        Where files that are coded against it find it; by default the file's name.
    """

    kind: str = "safetensors"
    path: Path = Path()
    nbytes: int
    tensors: tuple[TensorInfo, ...]
    aliases: Mapping[str, str] = MappingProxyType({})
    metadata: Mapping[str, str] | None = None
    hidden: frozenset[str] = frozenset()
    copies: bool = False
    notes: Sequence[str] | None = None
    known_as: str = ""

    @abstractmethod
    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes in C order, little-endian, as flat uint8.

        They must not be changed: where the format allows, they are a view of the mapped file.
        """

    def ends(self, name: str) -> bytes:
        """Return a tensor's first and last bytes, by which equal ones are guessed."""
        data = self.read(name)
        return data[:LOOK_BYTES].tobytes() + data[-LOOK_BYTES:].tobytes()

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        """Yield the tensor's bytes in order, as flat uint8 arrays."""
        yield self.read(name)

    @abstractmethod
    def template(self) -> SourceTemplate:
        """Return what rebuilds the file from its tensors."""

    @property
    def arrays(self) -> tuple[TensorInfo, ...]:
        """Those of `tensors` that are not hidden."""
        return tuple([info for info in self.tensors if info.name not in self.hidden])

    def known_digest(self, name: str) -> str:
        """Return the recorded digest of a tensor's bytes; empty if there is none."""
        return ""

    def find_bases(self) -> list[Path]:
        """Find the files that decoding needs too; return where they are."""
        return []

    def is_exact(self, name: str) -> bool:
        """Return whether a tensor is what its file held before compression."""
        return True

    def close(self) -> None:  # noqa: B027 - most hold no file
        """Release the file."""

    def __enter__(self) -> Self:
        """Return self."""
        self._before = self._state()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        """Close the file; raise `CheckpointError` if it was changed while it was read.

        Digests tell whether what was read of a compressed file is sound.
        """
        self.close()
        sound = self.kind == "compressed" if kind is None else not issubclass(kind, TensorcompError)
        if not sound and self._state() != self._before:
            raise CheckpointError(
                "was changed while it was read; run again when nothing writes it", path=self.path
            ) from (error if isinstance(error, Exception) else None)

    def _state(self) -> tuple[int, ...]:
        if is_remote(self.path):  # is read in one version
            return ()
        try:
            status = self.path.stat()
        except OSError:
            return ()
        is_folder = stat.S_ISDIR(status.st_mode)  # such as that of what has no file
        state = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        return () if is_folder else state


def file_bytes(path: Path) -> np.ndarray:
    """Return the bytes of a file, mapped where its file system allows."""
    with reading(path), path.open("rb") as file:
        mapped = map_file(file) if path.stat().st_size else None
        return np.frombuffer(file.read() if mapped is None else mapped, np.uint8)


def map_file(file: BinaryIO, *, private: bool = False) -> memoryview | None:
    """Map a whole file for reading; return None where its file system refuses.

    A private mapping can be changed, and leaves the file as it is: pages are copied when they are
    first written to.
    """
    try:
        return _map(file, private=private)
    except (OSError, ValueError) as error:
        LOGGER.debug("%s: read, since it cannot be mapped: %s", file.name, error)
        return None


def _map(file: BinaryIO, *, private: bool) -> memoryview:
    """Map a whole file; the mapping takes no descriptor.

    `mmap.mmap` keeps a duplicate of the descriptor, so that a process with a limit of 64 could read
    no model of more shards. It is unmapped with the last view.

    Raises
    ------
    OSError, ValueError
        If the system refuses, or the file is empty.
    """
    access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
    held = mmap.mmap(file.fileno(), 0, access=access)
    if not hasattr(mmap, "MAP_SHARED"):  # on Windows, where descriptors are not so few
        return memoryview(held)
    size, libc = len(held), ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(3 * [ctypes.c_int]), ctypes.c_long)
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if private else 0)
    flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    address = libc.mmap(None, size, protection, flags, file.fileno(), 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return memoryview(held)
    held.close()
    pages = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(pages, libc.munmap, address, size).atexit = False
    return memoryview(pages) if private else memoryview(pages).toreadonly()
