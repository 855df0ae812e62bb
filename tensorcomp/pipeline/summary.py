"""Summarize a checkpoint: sizes, its tensors as a table or as JSON values."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    counted,
    printable,
    ratio_text,
    snr_text,
)
from tensorcomp._tables import Column, Table
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.model import Copied
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.records import BaseRecord, TensorRecord
from tensorcomp.pipeline.tensor_summary import (
    PRUNED_COLUMN,
    ROLE_COLUMN,
    SIZE_COLUMNS,
    TYPE_COLUMNS,
    TensorSummary,
    by_tree,
    pruning_figures,
    tree_family,
)
from tensorcomp.planning.roles.classify import classify_all


def _named(row: TensorSummary) -> str:
    same = "" if row.same_as is None else f"\n  = {printable(row.same_as)}"
    return printable(row.name) + same


def _file(row: TensorSummary) -> str | None:
    return row.file


def _row_snr(row: TensorSummary) -> float | None:
    return -20 * math.log10(row.row_error) if row.row_error else None


def _output_error(row: TensorSummary) -> float | None:
    return row.output_error or None


def _reason(row: TensorSummary) -> str:
    role = f"{row.role}: {row.role_reason}" if row.role_reason else ""
    return printable("; ".join(filter(None, (row.reason, role))))


class FileFigures(NamedTuple):
    """Sizes of a compressed file of a folder, and where it finds its bases there."""

    file: str
    bases: tuple[str, ...]
    input_bytes: int
    output_bytes: int


@dataclass(frozen=True, repr=False)
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
    copied : Copied or None
        A folder's other files, which are not in the sizes; None for a single file.
    has_rest : bool
        Whether the sizes are of more than tensors and headers: of what else files hold.
    bases : tuple of BaseRecord
        Files that decoding needs too; not in the sizes.
    files : tuple of FileFigures
        Of the compressed files, each.
    """

    input_bytes: int
    output_bytes: int
    tensors: tuple[TensorSummary, ...]
    compressed: bool
    copied: Copied | None = field(default=None, kw_only=True)
    has_rest: bool = field(default=False, kw_only=True)
    bases: tuple[BaseRecord, ...] = field(default=(), kw_only=True)
    files: tuple[FileFigures, ...] = field(default=(), kw_only=True)

    @property
    def lossy(self) -> bool:
        """Whether any tensor lost anything."""
        return any(row.rel_l2 for row in self.tensors)

    @property
    def with_lost_rows(self) -> list[TensorSummary]:
        """The tensors of which a row is all but lost, the worst first.

        Not those of which the output's error is known, which rows that matter little may cost.
        """
        lost = [row for row in self.tensors if row.row_error and not row.output_error]
        return sorted(lost, key=lambda row: -row.row_error)

    @property
    def pruned(self) -> tuple[TensorSummary, ...]:
        """The tensors that were selected for pruning, equal ones once."""
        return tuple(row for row in self.tensors if row.pruned is not None and row.same_as is None)

    @property
    def related(self) -> tuple[FileFigures, ...]:
        """The files of a folder that are coded against other files in it."""
        names = {one.file for one in self.files}
        return tuple(one for one in self.files if not names.isdisjoint(one.bases))

    @property
    def weights(self) -> int:
        """Number of elements of all tensors; duplicates count, tied names do not."""
        return sum(row.weights for row in self.tensors if not row.tied)

    @property
    def ratio(self) -> float:
        """Original bytes / stored bytes, every byte counted; 0 without any."""
        return self.input_bytes / max(self.output_bytes, 1)

    @property
    def folder_ratio(self) -> float:
        """Ratio of all files, those that are copied included."""
        copied = self.copied.bytes if self.copied else 0
        return (self.input_bytes + copied) / (self.output_bytes + copied)

    @property
    def bits_per_weight(self) -> float | None:
        """Bits of the files for each element; None if there is none."""
        return 8 * self.output_bytes / self.weights if self.weights else None

    def pruning(self) -> dict[str, Any] | None:
        """Return the figures of all pruned tensors as JSON values; None without any.

        They are those of `pruning_figures`, and ``kept_snr_db``, the least SNR in dB of the weights
        of all tensors that are not pruned, null if they are exact or repaired.
        """
        if not self.pruned:
            return None
        kept = (row.kept_snr_db() for row in self.pruned)
        records = [(row.pruned, row.weights) for row in self.pruned if row.pruned is not None]
        return {
            **pruning_figures(records),
            "kept_snr_db": min((snr for snr in kept if snr is not None), default=None),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values, with the keys that ``--json`` prints.

        Returns
        -------
        dict
            ``input_bytes`` is the size of the original and ``output_bytes`` that of the
            compressed checkpoint, whichever way the job went; ``ratio`` is the first over the
            second. ``bits_per_weight`` counts every byte of the output, and is null without
            weights. Each of ``tensors`` has its role and how that is known, its errors (0 if
            exact) and its SNR in dB (null if exact), and ``output_error`` where
            statistics measured it; ``codec`` is the text of its tree, ``same as
            NAME`` for a duplicate, null if it is not compressed. Tensors of a folder also have
            their ``file``. A pruned checkpoint, and each pruned tensor, has ``pruned``; those that
            pruning was asked for and left as they are have ``unpruned``, the reason. What was
            compressed against a base has ``bases``, their names, sizes and digests; a folder with
            such files in it, ``files``, the sizes and bases of each. A folder has
            ``copied``, the number and bytes of its other files, with the reason for each that is a
            checkpoint but cannot be read, and ``folder_ratio``, which counts them; the other
            figures do not.
        """
        pruning, copied = self.pruning(), self.copied
        return {
            "input_bytes": self.input_bytes,
            "output_bytes": self.output_bytes,
            "ratio": self.ratio,
            "bits_per_weight": self.bits_per_weight,
            "tensors": [row.to_dict() for row in self.tensors],
            **({} if pruning is None else {"pruned": pruning}),
            **({"bases": [base._asdict() for base in self.bases]} if self.bases else {}),
            **({"files": [one._asdict() for one in self.files]} if self.related else {}),
            **({} if copied is None else {"copied": copied._asdict()}),
            **({} if copied is None else {"folder_ratio": self.folder_ratio}),
        }

    def table(self) -> Table:
        """Return a table of all tensors."""
        numbers = {tree: str(number) for number, tree in enumerate(by_tree(self.tensors), 1)}

        def number(row: TensorSummary) -> str:
            return "=" if row.same_as is not None else numbers.get(tree_family(row.tree), "-")

        columns = (
            Column("File", "file", _file, printable, left=True, optional=True, heading=True),
            Column("Tensor", "name", lambda row: row.name, printable, left=True, narrow=_named),
            *TYPE_COLUMNS,
            ROLE_COLUMN,
            *SIZE_COLUMNS,
            Column("", "rel_l2", lambda row: row.rel_l2),
            Column("SNR dB", "snr_db", lambda row: row.snr_db, snr_text, optional=True),
            Column("Row dB", "", _row_snr, snr_text, optional=True),
            Column("Output", "output_error", _output_error, "{:.3g}".format, optional=True),
            Column("", "worst_row_rel_l2", lambda row: row.row_error or None),
            Column("Gap", "", lambda row: row.gap, bits_text, optional=True, spare=3),
            Column("", "max_abs_error", lambda row: row.max_abs_error),
            PRUNED_COLUMN,
            Column("Tree", "codec", lambda row: row.codec, printable, left=True, narrow=number),
            Column("Why", "", _reason, left=True, spare=9),
        )
        return Table(columns, self.tensors)

    def totals(self) -> str:
        """Return sizes, ratio and rate in one line."""
        tied = sum(row.tied for row in self.tensors)
        tensors = counted(len(self.tensors) - tied, "tensor")
        tensors += f" and {counted(tied, 'tied name')}" if tied else ""
        bits = self.bits_per_weight
        rate = "" if bits is None else f", {bits_text(bits)} bits per weight"
        if not self.compressed:
            return f"{tensors}, {bytes_text(self.input_bytes)}{rate}; not compressed"
        worst = min((row.snr_db for row in self.tensors if row.snr_db is not None), default=None)
        error = "" if worst is None else f", SNR of each tensor ≥ {snr_text(worst)} dB"
        output = max((row.output_error for row in self.tensors), default=0.0)
        error += f", output error ≤ {output:.3g}" if output else ""
        return (
            f"{tensors}, {bytes_text(self.input_bytes)} in {bytes_text(self.output_bytes)}: "
            f"ratio {ratio_text(self.ratio)}{rate}{error}"
        )

    def bases_line(self) -> list[str]:
        """Return a line of the bases that decoding needs; none without any."""
        if self.related:
            before = sum(one.input_bytes for one in self.related)
            after = sum(one.output_bytes for one in self.related)
            count = f"{len(self.related):,} of {counted(len(self.files), 'file')}"
            sizes = f"{bytes_text(before)} in {bytes_text(after)}"
            return [f"{count} against others: {sizes}, ratio {ratio_text(before / after)}"]
        files = (f"{printable(base.name)} ({bytes_text(base.nbytes)})" for base in self.bases)
        return [f"against {', '.join(files)}: decompressing needs it"] if self.bases else []

    def copied_line(self) -> list[str]:
        """Return a line of a folder's other files; none without any."""
        if not self.copied or not self.copied.files:
            return []
        files = f"{counted(self.copied.files, 'other file')}, {bytes_text(self.copied.bytes)}"
        ratio = f", copied: ratio of the folder {ratio_text(self.folder_ratio)}"
        return [files + (ratio if self.compressed else "")]

    def __str__(self) -> str:
        more = [*self.bases_line(), *self.copied_line()]
        return "\n".join([*self.table().lines(), "", self.totals(), *more])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.totals()}>"

    def _repr_html_(self) -> str:
        """Return the table and totals for a notebook."""
        totals = "; ".join([self.totals(), *self.copied_line()])
        return f"{self.table()._repr_html_()}<p>{totals}</p>"


def join(summaries: Iterable[CheckpointSummary], copied: Copied | None) -> CheckpointSummary:
    """Return the figures of a folder's checkpoints together."""
    parts = list(summaries)
    return CheckpointSummary(
        sum(part.input_bytes for part in parts),
        sum(part.output_bytes for part in parts),
        tuple(row for part in parts for row in part.tensors),
        compressed=any(part.compressed for part in parts),
        copied=copied,
        has_rest=any(part.has_rest for part in parts),
        bases=tuple(dict.fromkeys(base for part in parts for base in part.bases)),
        files=tuple(one for part in parts for one in part.files),
    )


class FileResult(NamedTuple):
    """Manifest and sizes of one compressed file.

    Parameters
    ----------
    manifest : Manifest
    blobs : mapping of str to int
        Bytes of each blob.
    output_bytes : int
    refused : collection of str
        Tensors of which the planned tree could not represent every chunk.
    unpruned : mapping of str to str
        Tensors that pruning was asked for and left as they are, and why.
    """

    manifest: Manifest
    blobs: Mapping[str, int]
    output_bytes: int
    refused: Collection[str] = ()
    unpruned: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, file: CompressedFile, refused: Collection[str] = ()) -> FileResult:
        """Return what an open file says of itself."""
        return cls(file.manifest, file.blobs, file.nbytes, refused, {})

    @property
    def input_bytes(self) -> int:
        """Bytes of the original."""
        return self.manifest.source_bytes

    @property
    def weights(self) -> int:
        """Number of elements of its tensors."""
        records, hidden = self.manifest.tensors.items(), self.manifest.hidden
        return sum(math.prod(record.shape) for name, record in records if name not in hidden)

    def stored(self, record: TensorRecord) -> int:
        """Return the bytes of a tensor's blob or part of a bundle; 0 for a duplicate."""
        return self.manifest.stored_bytes(record, self.blobs)

    def summary(self, file: str | None = None) -> CheckpointSummary:
        """Return the figures of each tensor; `file` names one of several."""
        manifest, rows = self.manifest, {}
        roles = classify_all(manifest.infos)
        for info, record in zip(manifest.infos, manifest.tensors.values(), strict=True):
            if info.name in manifest.hidden:
                continue
            holder, planned, role = (
                manifest.stored(info.name),
                manifest.planned(record),
                record.role,
            )
            rows[info.name] = TensorSummary.of(
                info,
                role,
                self.stored(record),
                tree=planned.tree if planned else None,
                reason=planned.reason if planned else "",
                same_as=record.same_as,
                file=file,
                rel_l2=holder.rel_l2,
                max_abs_error=holder.max_abs_error,
                # An older file may have another role.
                role_reason=roles[info.name].reason if roles[info.name].role == role else "",
                pruned=holder.pruned,
                bound=holder.bound,
                row_error=holder.row_error,
                output_error=holder.output_error,
                coded=info.name not in self.refused,
                unpruned=self.unpruned.get(info.name, ""),
            )
        tensors = _with_tied(rows, manifest.aliases)
        sizes = self.input_bytes, self.output_bytes
        rest = bool(manifest.hidden)
        folder = posixpath.dirname(file or "")
        bases = (posixpath.join(folder, base.name) for base in manifest.bases)
        files = (FileFigures(file or "", tuple(map(posixpath.normpath, bases)), *sizes),)
        return CheckpointSummary(
            *sizes, tensors, compressed=True, has_rest=rest, bases=manifest.bases, files=files
        )


def summarise(checkpoint: Checkpoint, file: str | None = None) -> CheckpointSummary:
    """Return the figures of an open checkpoint, compressed or not.

    `file` is its path in a folder, None where it is the only one.
    """
    if isinstance(checkpoint, CompressedFile):
        return FileResult.of(checkpoint).summary(file)
    roles = classify_all(checkpoint.tensors)
    rows = {}
    for info in checkpoint.arrays:
        role, reason = roles[info.name]
        rows[info.name] = TensorSummary.of(info, role, info.nbytes, file=file, role_reason=reason)
    tensors = _with_tied(rows, checkpoint.aliases)
    return CheckpointSummary(checkpoint.nbytes, checkpoint.nbytes, tensors, compressed=False)


def _with_tied(
    rows: Mapping[str, TensorSummary], aliases: Mapping[str, str]
) -> tuple[TensorSummary, ...]:
    """Return the rows of tensors, and one per further name, which stores nothing."""
    nothing: dict[str, Any] = {"nbytes": 0, "stored": 0, "tree": None, "reason": "", "bound": {}}
    tied = (
        replace(rows[target], name=name, same_as=target, tied=True, coded=True, **nothing)
        for name, target in aliases.items()
    )
    return (*rows.values(), *tied)
