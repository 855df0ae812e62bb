"""Define what every checkpoint offers, whatever its format."""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from tensorcomp.errors import CheckpointError, TensorcompError


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
        The file format: ``"safetensors"``, ``"torch"`` or ``"npz"``.
    structure : mapping
        JSON values only.
    attachments : mapping of str to bytes
        Data too large or too binary for JSON.
    """

    kind: str
    structure: Mapping[str, Any] = field(default_factory=dict)
    attachments: Mapping[str, bytes] = field(default_factory=dict)


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
    """

    kind: ClassVar[str] = "safetensors"
    path: Path = Path()
    nbytes: int
    tensors: tuple[TensorInfo, ...]
    aliases: Mapping[str, str] = MappingProxyType({})
    metadata: Mapping[str, str] | None = None

    @abstractmethod
    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes in C order, little-endian, as flat uint8.

        They must not be changed: where the format allows, they are a view of the mapped file.
        """

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        """Yield the tensor's bytes in order, as flat uint8 arrays."""
        yield self.read(name)

    @abstractmethod
    def template(self) -> SourceTemplate:
        """Return what rebuilds the file from its tensors."""

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
        try:
            status = self.path.stat()
        except OSError:
            return ()
        is_folder = stat.S_ISDIR(status.st_mode)  # such as that of what has no file
        state = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        return () if is_folder else state
