"""Summarize checkpoints: figures of each tensor, counted from bytes in the file."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.records import PruningRecord, TensorRecord


@dataclass(frozen=True)
class TensorSummary:
    """Sizes, tree and errors of one tensor.

    Parameters
    ----------
    name, dtype, shape, role
        As in the checkpoint; the role is the planner's.
    nbytes : int
        Bytes of the tensor in the original; 0 for a tied name, which has none of its own.
    stored : int
        Bytes of it in this file, its part of a bundle's if it is in one; 0 for a duplicate or tied
        name.
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
    role_why : str
        How the role is known.
    pruned : PruningRecord or None
        How the tensor was pruned, or that which holds its data; the errors count it.
    bound : mapping of str to float
        What its errors, or those of its weights that are not pruned, are promised to keep.
    coded : bool
        Whether its tree could represent every chunk; known of what was just compressed only.
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
    role_why: str = ""
    pruned: PruningRecord | None = None
    bound: Mapping[str, float] = field(default_factory=dict)
    coded: bool = True

    @property
    def max_rel_l2(self) -> float | None:
        """The rel-L2 that is promised; None if none is."""
        return self.bound.get("max_rel_l2")

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

    @property
    def gap(self) -> float | None:
        """Bits per weight above R(D) = log2(1 / rel-L2), that of Gaussian weights; None if exact.

        Weights of another distribution, or of unlike scales, may take fewer bits than that.
        """
        if not self.rel_l2 or self.bits_per_weight is None:
            return None
        return self.bits_per_weight - max(-math.log2(self.rel_l2), 0.0)


@dataclass(frozen=True)
class CheckpointSummary:
    """Sizes of a checkpoint file or folder, and its tensors.

    Parameters
    ----------
    input_bytes : int
        Size of the original.
    output_bytes : int
        Size as it is stored: compressed, every byte counted, or that of the original again.
    tensors : tuple of TensorSummary
        In the checkpoint's order, tied names last.
    compressed : bool
        Whether tensorcomp compressed it.
    """

    input_bytes: int
    output_bytes: int
    tensors: tuple[TensorSummary, ...]
    compressed: bool

    @property
    def lossy(self) -> bool:
        """Whether any tensor lost anything."""
        return any(row.rel_l2 for row in self.tensors)

    @property
    def pruned(self) -> tuple[TensorSummary, ...]:
        """The tensors that were selected for pruning, equal ones once."""
        return tuple(row for row in self.tensors if row.pruned is not None and row.same_as is None)

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


@dataclass(frozen=True)
class FileResult:
    """Manifest and sizes of one compressed file.

    Parameters
    ----------
    manifest : Manifest
        As it was written.
    blobs : mapping of str to int
        The bytes of each blob.
    output_bytes : int
        Of the whole file.
    refused : collection of str
        Tensors of which the planned tree could not represent every chunk.
    """

    manifest: Manifest
    blobs: Mapping[str, int]
    output_bytes: int
    refused: Collection[str] = ()

    @property
    def input_bytes(self) -> int:
        """Bytes of the original."""
        return self.manifest.source_bytes

    def stored(self, record: TensorRecord) -> int:
        """Return the bytes of a tensor's blob, or its part of its bundle's; 0 for a duplicate."""
        if record.same_as is not None:
            return 0
        if record.bundle is None:
            return self.blobs[record.name]
        return self.manifest.layout.share(record, self.blobs[record.bundle])

    def summary(self, file: str | None = None) -> CheckpointSummary:
        """Return the figures of each tensor; `file` names one of several."""
        sizes = {r.name: self.stored(r) for r in self.manifest.tensors.values()}
        rows = _rows(self.manifest, sizes, file, self.refused)
        return CheckpointSummary(self.input_bytes, self.output_bytes, rows, compressed=True)


def summarise_compressed(opened: CompressedFile, file: str | None = None) -> CheckpointSummary:
    """Return the figures of a compressed file; `file` names one of several."""
    manifest = opened.manifest
    sizes = {name: opened.blob_bytes(name) for name in manifest.tensors}
    rows = _rows(manifest, sizes, file)
    return CheckpointSummary(manifest.source_bytes, opened.nbytes, rows, compressed=True)


def _rows(
    manifest: Manifest, sizes: Mapping[str, int], file: str | None, refused: Collection[str] = ()
) -> tuple[TensorSummary, ...]:
    from tensorcomp.planning.roles.classify import classify_all

    roles = classify_all(manifest.infos)
    rows = []
    for record in manifest.tensors.values():
        stored = manifest.stored(record.name)
        planned = manifest.planned(record)
        role = roles[record.name]
        row = TensorSummary(
            name=record.name,
            dtype=record.dtype,
            shape=record.shape,
            role=record.role,
            nbytes=record.nbytes,
            stored=sizes[record.name],
            tree=planned.tree if planned else None,
            why=planned.why if planned else "",
            same_as=record.same_as,
            file=file,
            rel_l2=stored.rel_l2,
            max_abs_error=stored.max_abs_error,
            role_why=role.why if role.role == record.role else "",  # or the file is older
            pruned=stored.pruned,
            bound=stored.bound,
            coded=record.name not in refused,
        )
        rows.append(row)
    return (*rows, *_tied(rows, manifest.aliases.items()))


def summarise_checkpoint(checkpoint: Checkpoint, file: str | None = None) -> CheckpointSummary:
    """Return the figures of a checkpoint that is not compressed.

    Parameters
    ----------
    checkpoint : Checkpoint
    file : str, optional
        Its name, where it is one of several.
    """
    from tensorcomp.planning.roles.classify import classify_all

    roles = classify_all(checkpoint.tensors)
    rows = [
        TensorSummary(
            name=info.name,
            dtype=info.dtype,
            shape=info.shape,
            role=roles[info.name].role,
            nbytes=info.nbytes,
            stored=info.nbytes,
            file=file,
            role_why=roles[info.name].why,
        )
        for info in checkpoint.tensors
    ]
    rows += _tied(rows, checkpoint.aliases.items())
    return CheckpointSummary(checkpoint.nbytes, checkpoint.nbytes, tuple(rows), compressed=False)


def _tied(rows: Iterable[TensorSummary], aliases: Iterable[tuple[str, str]]) -> list[TensorSummary]:
    by_name = {row.name: row for row in rows}
    return [
        TensorSummary(
            name=name,
            dtype=by_name[target].dtype,
            shape=by_name[target].shape,
            role=by_name[target].role,
            nbytes=0,
            stored=0,
            same_as=target,
            tied=True,
            file=by_name[target].file,
            rel_l2=by_name[target].rel_l2,
            max_abs_error=by_name[target].max_abs_error,
            role_why=by_name[target].role_why,
            pruned=by_name[target].pruned,
        )
        for name, target in aliases
    ]


def join(summaries: Iterable[CheckpointSummary]) -> CheckpointSummary:
    """Return the figures of several files together."""
    parts = list(summaries)
    return CheckpointSummary(
        input_bytes=sum(part.input_bytes for part in parts),
        output_bytes=sum(part.output_bytes for part in parts),
        tensors=tuple(row for part in parts for row in part.tensors),
        compressed=any(part.compressed for part in parts),
    )
