"""The figures of a checkpoint and of each of its tensors, counted from bytes in the file."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorcomp.checkpoints import Checkpoint
    from tensorcomp.container.reader import CompressedFile


@dataclass(frozen=True)
class TensorRow:
    """The figures of one tensor.

    Parameters
    ----------
    name, dtype, shape, role
        As in the checkpoint; the role is the planner's.
    nbytes : int
        Bytes of the tensor in the original; 0 for a tied name, which has none of its own.
    stored : int
        Bytes of it in this file; 0 for a duplicate or tied name.
    tree : str or None
        What it is coded by; None if it is not compressed, or stored under another name.
    why : str
        Why that tree; empty if there is none.
    same_as : str or None
        The tensor that holds its data.
    tied : bool
        Whether it is a further name of `same_as`, and not a tensor with equal bytes.
    file : str or None
        In which file of a folder.
    rel_l2, max_abs_error : float
        Measured errors, 0 if exact.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    nbytes: int
    stored: int
    tree: str | None = None
    why: str = ""
    same_as: str | None = None
    tied: bool = False
    file: str | None = None
    rel_l2: float = 0
    max_abs_error: float = 0

    @property
    def weights(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bits_per_weight(self) -> float | None:
        """Bits stored for each element; None if there is none."""
        return 8 * self.stored / self.weights if self.weights else None

    @property
    def ratio(self) -> float | None:
        """Original bytes / stored bytes; None if nothing is stored."""
        return self.nbytes / self.stored if self.stored else None

    @property
    def codec(self) -> str | None:
        """The tree, or which tensor holds the data; None if it is not compressed."""
        return self.tree if self.same_as is None else f"same as {self.same_as}"

    @property
    def snr_db(self) -> float | None:
        """Signal-to-noise ratio in dB; None if exact."""
        return -20 * math.log10(self.rel_l2) if self.rel_l2 else None


@dataclass(frozen=True)
class Summary:
    """The figures of a checkpoint file, or of all those of a folder.

    Parameters
    ----------
    input_bytes : int
        Size of the original.
    output_bytes : int
        Size as it is stored: compressed, every byte counted, or that of the original again.
    tensors : tuple of TensorRow
        In the checkpoint's order, tied names last.
    compressed : bool
        Whether tensorcomp compressed it.
    """

    input_bytes: int
    output_bytes: int
    tensors: tuple[TensorRow, ...]
    compressed: bool

    @property
    def weights(self) -> int:
        """Number of elements of all tensors; duplicates count, tied names do not."""
        return sum(row.weights for row in self.tensors if not row.tied)

    @property
    def ratio(self) -> float:
        """Original bytes / stored bytes, every byte of the files counted."""
        return self.input_bytes / self.output_bytes

    @property
    def bits_per_weight(self) -> float | None:
        """Bits of the files for each element; None if there is none."""
        return 8 * self.output_bytes / self.weights if self.weights else None


def summarise_compressed(opened: CompressedFile, file: str | None = None) -> Summary:
    """Return the figures of a compressed file.

    Parameters
    ----------
    opened : CompressedFile
    file : str, optional
        Its name, where it is one of several.
    """
    manifest = opened.manifest
    rows = []
    for record in manifest.tensors.values():
        planned = None if record.same_as is not None else manifest.trees[record.tree]
        row = TensorRow(
            name=record.name,
            dtype=record.dtype,
            shape=record.shape,
            role=record.role,
            nbytes=record.nbytes,
            stored=opened.blob_bytes(record.name),
            tree=planned.tree if planned else None,
            why=planned.why if planned else "",
            same_as=record.same_as,
            file=file,
        )
        rows.append(row)
    rows += _tied(rows, manifest.aliases.items())
    return Summary(manifest.source_bytes, opened.nbytes, tuple(rows), compressed=True)


def summarise_checkpoint(checkpoint: Checkpoint, file: str | None = None) -> Summary:
    """Return the figures of a checkpoint that is not compressed.

    Parameters
    ----------
    checkpoint : Checkpoint
    file : str, optional
        Its name, where it is one of several.
    """
    from tensorcomp.planning import classify

    rows = [
        TensorRow(
            name=info.name,
            dtype=info.dtype,
            shape=info.shape,
            role=classify(info.name, info.dtype, info.shape),
            nbytes=info.nbytes,
            stored=info.nbytes,
            file=file,
        )
        for info in checkpoint.tensors
    ]
    rows += _tied(rows, checkpoint.aliases.items())
    return Summary(checkpoint.nbytes, checkpoint.nbytes, tuple(rows), compressed=False)


def _tied(rows: Iterable[TensorRow], aliases: Iterable[tuple[str, str]]) -> list[TensorRow]:
    by_name = {row.name: row for row in rows}
    return [
        TensorRow(
            name=name,
            dtype=by_name[target].dtype,
            shape=by_name[target].shape,
            role=by_name[target].role,
            nbytes=0,
            stored=0,
            same_as=target,
            tied=True,
            file=by_name[target].file,
        )
        for name, target in aliases
    ]


def join(summaries: Iterable[Summary]) -> Summary:
    """Return the figures of several files together."""
    parts = list(summaries)
    return Summary(
        input_bytes=sum(part.input_bytes for part in parts),
        output_bytes=sum(part.output_bytes for part in parts),
        tensors=tuple(row for part in parts for row in part.tensors),
        compressed=any(part.compressed for part in parts),
    )
