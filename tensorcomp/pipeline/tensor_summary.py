"""Summarize single tensors of a checkpoint, compressed or not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    percent,
    printable,
    ratio_text,
    shape_text,
)
from tensorcomp._tables import Column
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.container.records import PruningRecord

_SIX_DIGITS = 5e-6  # by which a number of six digits may be off, relatively


@dataclass(frozen=True)
class TensorSummary:
    """Sizes, tree and errors of one tensor of a checkpoint.

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
        None if it is not compressed, or stored under another name.
    reason : str
        Why that tree; empty if there is none.
    same_as : str or None
        The tensor that holds its data.
    tied : bool
        Whether it is a further name of `same_as`, and not a tensor with equal bytes.
    file : str or None
        Its file of a folder.
    rel_l2, max_abs_error : float
        Measured errors, 0 if exact.
    role_reason : str
        Reason for the role.
    pruned : PruningRecord or None
        Pruning of the tensor, or of that which holds its data; the errors count it.
    bound : mapping of str to float
        Limits of its errors, or of those of its weights that are not pruned.
    row_error : float
        The largest rel-L2 of a row, where that row lost half of its norm or more and the tensor far
        less; else 0.
    output_error : float
        Relative error of what its layer returns; 0 if exact or not known.
    coded : bool
        Whether its tree could represent every chunk; known of a file just compressed only.
    unpruned : str
        Why it is left as it is, though pruning was asked for; known as `coded` is.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    nbytes: int
    stored: int
    tree: str | None = None
    reason: str = ""
    same_as: str | None = None
    tied: bool = False
    file: str | None = None
    rel_l2: float = 0
    max_abs_error: float = 0
    role_reason: str = ""
    pruned: PruningRecord | None = None
    bound: Mapping[str, float] = field(default_factory=dict)
    row_error: float = 0
    output_error: float = 0
    coded: bool = True
    unpruned: str = ""

    @classmethod
    def of(cls, info: TensorInfo, role: str, stored: int, **figures: Any) -> TensorSummary:
        """Return the summary of a tensor and its stored bytes, with further fields."""
        return cls(info.name, info.dtype, info.shape, role, info.nbytes, stored, **figures)

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
        """Bits per weight above R(D) of Gaussian weights; None if exact.

        R(D) = log2(1 / rel-L2).

        Weights of another distribution, or of unlike scales, may take fewer bits than that.
        """
        if not self.rel_l2 or self.bits_per_weight is None:
            return None
        return self.bits_per_weight - max(-math.log2(self.rel_l2), 0.0)

    def pruning(self) -> dict[str, Any]:
        """Return how it was pruned, as JSON values."""
        record = self.pruned
        assert record is not None
        return {
            "score": record.score,
            "granularity": record.granularity,
            "count": record.count,
            "sparsity": record.count / self.weights if self.weights else 0.0,
            "rel_l2": record.rel_l2,
            **({"repaired": True} if record.repaired else {}),
        }

    def kept_snr_db(self) -> float | None:
        """Return the least SNR of weights that are not pruned, in dB.

        None if they are exact or repaired.
        Their error is what the whole error has beyond that of pruning; where it is too small to be
        read from the six digits of the whole, the tensor's bound.
        """
        record = self.pruned
        assert record is not None
        if record.repaired or self.rel_l2 <= float(f"{record.rel_l2:.6g}") or record.rel_l2 >= 1:
            return None
        whole = (self.rel_l2 * (1 + _SIX_DIGITS)) ** 2
        rel_l2 = math.sqrt((whole - record.rel_l2**2) / (1 - record.rel_l2**2))
        return -20 * math.log10(min(rel_l2, self.bound.get("max_rel_l2") or math.inf))

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "role": self.role,
            "role_why": self.role_reason,
            "codec": self.codec,
            "bytes": self.stored,
            "bits_per_weight": self.bits_per_weight,
            "rel_l2": self.rel_l2,
            "snr_db": self.snr_db,
            "max_abs_error": self.max_abs_error,
            **({"worst_row_rel_l2": self.row_error} if self.row_error else {}),
            **({"output_error": self.output_error} if self.output_error else {}),
            **({} if self.pruned is None else {"pruned": self.pruning()}),
            **({"unpruned": self.unpruned} if self.unpruned else {}),
            **({} if self.file is None else {"file": self.file}),
        }


TYPE_COLUMNS = (
    Column("Shape", "shape", lambda row: shape_text(row.shape), left=True),
    Column("Type", "dtype", lambda row: row.dtype, printable, left=True),
)
ROLE_COLUMN = Column("Role", "role", lambda row: row.role, left=True, spare=1)
SIZE_COLUMNS = (
    Column("Bytes", "bytes", lambda row: row.stored, bytes_text),
    Column("Bits", "bits_per_weight", lambda row: row.bits_per_weight, bits_text),
    Column("Ratio", "ratio", lambda row: row.ratio, ratio_text, spare=2),
)


def _pruned(row: TensorSummary) -> float | None:
    return None if row.pruned is None or not row.weights else row.pruned.count / row.weights


PRUNED_COLUMN = Column("Pruned", "", _pruned, percent, optional=True)


def pruning_figures(records: Sequence[tuple[PruningRecord, int]]) -> dict[str, Any]:
    """Return the figures of records, each with its elements, as JSON values.

    Returns
    -------
    dict
        ``scores`` and ``granularities`` by which tensors were pruned, mostly one each; ``count`` of
        their ``weights`` were set to zero, the part ``sparsity``; ``worst_rel_l2``, the largest
        share of its norm that a tensor lost by pruning alone. ``repaired``, where some were, is
        their number.
    """
    count = sum(record.count for record, _ in records)
    repaired = sum(record.repaired for record, _ in records)
    weights = sum(elements for _, elements in records)
    return {
        "scores": list(dict.fromkeys(record.score for record, _ in records)),
        "granularities": list(dict.fromkeys(record.granularity for record, _ in records)),
        "count": count,
        "weights": weights,
        "sparsity": count / weights if weights else 0.0,
        "worst_rel_l2": max(record.rel_l2 for record, _ in records),
        **({"repaired": repaired} if repaired else {}),
    }


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
