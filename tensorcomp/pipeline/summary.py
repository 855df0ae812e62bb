"""Summarize a checkpoint: sizes, its tensors as a table or as JSON values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    counted,
    percent,
    printable,
    ratio_text,
    shape_text,
    snr_text,
)
from tensorcomp._tables import Column, Table
from tensorcomp.container.records import PruningRecord
from tensorcomp.pipeline.tensor_summary import TensorSummary


def row_shape(row: TensorSummary) -> str:
    """Return the text of a tensor's shape."""
    return shape_text(row.shape)


def _named(row: TensorSummary) -> str:
    same = "" if row.same_as is None else f"\n  = {printable(row.same_as)}"
    return printable(row.name) + same


def _why(row: TensorSummary) -> str:
    role = f"{row.role}: {row.role_why}" if row.role_why else ""
    return printable("; ".join(filter(None, (row.why, role))))


SIZE_COLUMNS = (
    Column("Bytes", "bytes", lambda row: row.stored, bytes_text),
    Column("Bits", "bits_per_weight", lambda row: row.bits_per_weight, bits_text),
    Column("Ratio", "ratio", lambda row: row.ratio, ratio_text, spare=2),
)


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

    def pruning(self) -> dict[str, Any] | None:
        """Return the figures of all pruned tensors as JSON values; None if none was selected.

        Returns
        -------
        dict
            ``scores`` and ``granularities`` by which they were pruned, mostly one each; ``count``
            of the ``weights`` of the selected tensors were set to zero, the part ``sparsity``;
            ``worst_rel_l2``, the largest share of its norm that a tensor lost by pruning alone;
            ``kept_snr_db``, the least SNR of the weights that are not pruned, of all tensors, in
            dB, null if they are exact.
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
        """Return the figures as JSON values; the keys are part of the command line's interface.

        Returns
        -------
        dict
            ``input_bytes`` is the size of the original and ``output_bytes`` that of the
            compressed checkpoint, whichever way the job went; ``ratio`` is the first over the
            second. ``bits_per_weight`` counts every byte of the output, and is null without
            weights. Each of ``tensors`` has its role and how that is known, its errors (0 if
            exact) and its SNR in dB (null if exact); ``codec`` is the text of its tree, ``same as
            NAME`` for a duplicate, null if it is not compressed. Tensors of a folder also have
            their ``file``. A pruned checkpoint has ``pruned``: how many of the ``weights`` of the
            selected tensors were set to zero; and so has each of these, with the share of its norm
            that this alone cost (``rel_l2``).
        """
        pruning = self.pruning()
        return {
            "input_bytes": self.input_bytes,
            "output_bytes": self.output_bytes,
            "ratio": self.ratio,
            "bits_per_weight": self.bits_per_weight,
            "tensors": [row.to_dict() for row in self.tensors],
            **({} if pruning is None else {"pruned": pruning}),
        }

    def table(self) -> Table:
        """Return a table of all tensors."""
        numbers = {tree: str(number) for number, tree in enumerate(by_tree(self.tensors), 1)}

        def number(row: TensorSummary) -> str:
            return "=" if row.same_as is not None else numbers.get(tree_family(row.tree), "-")

        columns = (
            Column(
                "File",
                "file",
                lambda row: row.file,
                printable,
                left=True,
                optional=True,
                heading=True,
            ),
            Column("Tensor", "name", lambda row: row.name, printable, left=True, narrow=_named),
            Column("Shape", "shape", row_shape, left=True),
            Column("Type", "dtype", lambda row: row.dtype, printable, left=True),
            Column("Role", "role", lambda row: row.role, left=True, spare=1),
            *SIZE_COLUMNS,
            Column("", "rel_l2", lambda row: row.rel_l2),
            Column("SNR dB", "snr_db", lambda row: row.snr_db, snr_text, optional=True),
            Column("Gap", "", lambda row: row.gap, bits_text, optional=True, spare=3),
            Column("", "max_abs_error", lambda row: row.max_abs_error),
            Column("Pruned", "", lambda row: share_text(row.pruned, row.weights), optional=True),
            Column("Tree", "codec", lambda row: row.codec, printable, left=True, narrow=number),
            Column("Why", "", _why, left=True, spare=9),
        )
        return Table(columns, self.tensors)

    def totals(self) -> str:
        """Return sizes, ratio and rate in one line."""
        tensors = counted(len(self.tensors), "tensor")
        bits = self.bits_per_weight
        rate = "" if bits is None else f", {bits_text(bits)} bits per weight"
        if not self.compressed:
            return f"{tensors}, {bytes_text(self.input_bytes)}{rate}; not compressed"
        worst = min((row.snr_db for row in self.tensors if row.snr_db is not None), default=None)
        error = "" if worst is None else f", SNR of each tensor ≥ {snr_text(worst)} dB"
        return (
            f"{tensors}, {bytes_text(self.input_bytes)} in {bytes_text(self.output_bytes)}: "
            f"ratio {ratio_text(self.ratio)}{rate}{error}"
        )

    def __str__(self) -> str:
        return "\n".join([*self.table().lines(), "", self.totals()])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.totals()}>"

    def _repr_html_(self) -> str:
        """Return the table and totals for a notebook."""
        return f"{self.table()._repr_html_()}<p>{self.totals()}</p>"


def join(summaries: Iterable[CheckpointSummary]) -> CheckpointSummary:
    """Return the figures of several files together."""
    parts = list(summaries)
    return CheckpointSummary(
        input_bytes=sum(part.input_bytes for part in parts),
        output_bytes=sum(part.output_bytes for part in parts),
        tensors=tuple(row for part in parts for row in part.tensors),
        compressed=any(part.compressed for part in parts),
    )


def pruning_figures(records: Sequence[tuple[PruningRecord, int]]) -> dict[str, Any]:
    """Return the figures of records, each with the elements of its tensor."""
    count = sum(record.count for record, _ in records)
    weights = sum(elements for _, elements in records)
    return {
        "scores": list(dict.fromkeys(record.score for record, _ in records)),
        "granularities": list(dict.fromkeys(record.granularity for record, _ in records)),
        "count": count,
        "weights": weights,
        "sparsity": count / weights if weights else 0.0,
        "worst_rel_l2": max(record.rel_l2 for record, _ in records),
    }


def share_text(record: PruningRecord | None, weights: int) -> str | None:
    """Return which part of so many weights a record says is pruned; None if there is none."""
    return None if record is None or not weights else percent(record.count / weights)


def tree_family(tree: str | None) -> str:
    """Return a tree's text without its steps, which are each tensor's own."""
    return re.sub(r"\bstep=[^,)]+", "step=…", tree or "")


def by_tree(rows: Iterable[TensorSummary]) -> dict[str, list[TensorSummary]]:
    """Return the tensors of each tree, steps apart, in the order of the trees."""
    groups: dict[str, list[TensorSummary]] = {}
    for row in rows:
        if row.tree is not None:
            groups.setdefault(tree_family(row.tree), []).append(row)
    return groups
