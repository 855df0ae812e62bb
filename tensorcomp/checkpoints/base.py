"""What every source of tensors offers, whatever its file format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

import numpy as np


@dataclass(frozen=True)
class TensorInfo:
    """Name, type and size of one stored tensor.

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
class Recipe:
    """What rebuilds a checkpoint file once its tensors are decoded.

    Parameters
    ----------
    kind : str
        The file format: ``"safetensors"``, ``"torch"`` or ``"npz"``.
    structure : mapping
        JSON values only.
    attachments : mapping of str to bytes
        What is too large or too binary for JSON.
    """

    kind: str
    structure: Mapping[str, Any] = field(default_factory=dict)
    attachments: Mapping[str, bytes] = field(default_factory=dict)


class Source(Protocol):
    """What is compressed: an open checkpoint, or tensors in memory."""

    tensors: tuple[TensorInfo, ...]
    aliases: Mapping[str, str]
    nbytes: int

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes, flat uint8."""
        ...

    def recipe(self) -> Recipe:
        """Return what rebuilds the file."""
        ...


class TensorSource(Protocol):
    """Where a restored file takes its tensors from: a compressed checkpoint, decoded on demand."""

    tensors: tuple[TensorInfo, ...]

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        """Yield the tensor's bytes in order, as flat uint8 arrays of bounded size."""
        ...


class Checkpoint(ABC):
    """An open source checkpoint: its tensors in storage order, read one by one.

    Used as a context manager; `close` unmaps the file.

    Attributes
    ----------
    path : Path
        The file.
    nbytes : int
        The file's size in bytes.
    tensors : tuple of TensorInfo
        Every tensor that must be stored, in the file's order.
    aliases : mapping of str to str
        Further names of tensors in `tensors`: tied weights.
    metadata : mapping of str to str, or None
        What a safetensors file says about itself.
    """

    kind: ClassVar[str]
    path: Path
    nbytes: int
    tensors: tuple[TensorInfo, ...]
    aliases: Mapping[str, str]
    metadata: Mapping[str, str] | None = None

    @abstractmethod
    def read(self, name: str) -> np.ndarray:
        """Return the tensor's bytes, C order and little-endian, as a flat read-only uint8 array.

        A view of the mapped file where the format allows; nothing is copied then.
        """

    @abstractmethod
    def recipe(self) -> Recipe:
        """Return what rebuilds the file from its tensors."""

    @abstractmethod
    def close(self) -> None:
        """Release the file."""

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()
