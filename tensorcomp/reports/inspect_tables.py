"""Show the tensors of a checkpoint: a table with its legend, totals, JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    counted,
    printable,
    ratio_text,
    shape_text,
    snr_text,
)
from tensorcomp._tables import Column, Table, Value, fold
from tensorcomp.pipeline.summary import CheckpointSummary, TensorSummary
from tensorcomp.reports.pruning import pruning_json, share_text, tensor_pruning_json

GAP = (
    "Gap: bits per weight above log₂(1 / rel-L2), what Gaussian weights of one scale take at "
    "least; below 0 where scales differ or weights are not Gaussian"
)
_REASONS = 3  # listed for one tree


def _shape(row: TensorSummary) -> str:
    return shape_text(row.shape)


def _named(row: TensorSummary) -> str:
    same = "" if row.same_as is None else f"\n  = {printable(row.same_as)}"
    return printable(row.name) + same


def _why(row: TensorSummary) -> str:
    role = f"{row.role}: {row.role_why}" if row.role_why else ""
    return printable("; ".join(filter(None, (row.why, role))))


_SIZES = (
    Column("Bytes", "bytes", lambda row: row.stored, bytes_text),
    Column("Bits", "bits_per_weight", lambda row: row.bits_per_weight, bits_text),
    Column("Ratio", "ratio", lambda row: row.ratio, ratio_text, spare=2),
)


def tensor_table(summary: CheckpointSummary) -> Table:
    """Return a table of all tensors."""
    numbers = {tree: str(number) for number, tree in enumerate(_by_tree(summary.tensors), 1)}

    def number(row: TensorSummary) -> str:
        return "=" if row.same_as is not None else numbers.get(_family(row.tree), "-")

    columns = (
        Column(
            "File", "file", lambda row: row.file, printable, left=True, optional=True, heading=True
        ),
        Column("Tensor", "name", lambda row: row.name, printable, left=True, narrow=_named),
        Column("Shape", "shape", _shape, left=True),
        Column("Type", "dtype", lambda row: row.dtype, printable, left=True),
        Column("Role", "role", lambda row: row.role, left=True, spare=1),
        *_SIZES,
        Column("", "rel_l2", lambda row: row.rel_l2),
        Column("SNR dB", "snr_db", lambda row: row.snr_db, snr_text, optional=True),
        Column("Gap", "", lambda row: row.gap, bits_text, optional=True, spare=3),
        Column("", "max_abs_error", lambda row: row.max_abs_error),
        Column("Pruned", "", lambda row: share_text(row.pruned, row.weights), optional=True),
        Column("Tree", "codec", lambda row: row.codec, printable, left=True, narrow=number),
        Column("Why", "", _why, left=True, spare=9),
    )
    return Table(columns, summary.tensors)


def tensor_legend(summary: CheckpointSummary, width: int | None) -> Iterator[str]:
    """Yield lines that explain the table of all tensors, as it is shown in `width` columns."""
    if width is not None and not tensor_table(summary).fits(width):
        yield from _trees_legend(summary.tensors, width)
        yield from _roles_legend(summary.tensors, width)


def totals(summary: CheckpointSummary) -> str:
    """Return sizes, ratio and rate in one line."""
    tensors = counted(len(summary.tensors), "tensor")
    bits = summary.bits_per_weight
    rate = "" if bits is None else f", {bits_text(bits)} bits per weight"
    if not summary.compressed:
        return f"{tensors}, {bytes_text(summary.input_bytes)}{rate}; not compressed"
    worst = min((row.snr_db for row in summary.tensors if row.snr_db is not None), default=None)
    error = "" if worst is None else f", SNR of each tensor ≥ {snr_text(worst)} dB"
    return (
        f"{tensors}, {bytes_text(summary.input_bytes)} in {bytes_text(summary.output_bytes)}: "
        f"ratio {ratio_text(summary.ratio)}{rate}{error}"
    )


def cost_table(summary: CheckpointSummary, most: int = 8) -> Table:
    """Return a table of the tensors that take most bytes, and of all others together."""
    costly = sorted(summary.tensors, key=lambda row: -row.stored)
    shown = [row for row in costly[:most] if row.stored]
    rest = summary.output_bytes - sum(row.stored for row in shown)
    others = len(costly) - len(shown)

    def share(nbytes: int) -> str:
        return f"{100 * nbytes / summary.output_bytes:.1f} %"

    columns = (
        Column("Tensors that cost most", "", lambda row: row.name, printable, left=True),
        Column("Shape", "", _shape, left=True),
        Column("Type", "", lambda row: row.dtype, printable, left=True),
        _SIZES[0],
        Column("Share", "", lambda row: share(row.stored)),
        *_SIZES[1:],
    )
    label = f"{counted(others, 'other')} and the header" if others else "the header"
    total: dict[str, Value] = {"Tensors that cost most": label, "bytes": rest, "Share": share(rest)}
    return Table(columns, shown, total if shown else {})


def summary_json(summary: CheckpointSummary) -> dict[str, Any]:
    """Return a summary as JSON values; the keys are part of the command line's interface.

    Returns
    -------
    dict
        ``input_bytes`` is the size of the original and ``output_bytes`` that of the compressed
        checkpoint, whichever way the job went; ``ratio`` is the first over the second.
        ``bits_per_weight`` counts every byte of the output, and is null without weights. Each of
        ``tensors`` has its role and how that is known, its errors (0 if exact) and its SNR in dB
        (null if exact); ``codec`` is the text of its tree, ``same as NAME`` for a duplicate, null
        if it is not compressed. Tensors of a folder also say their ``file``. A pruned checkpoint
        has ``pruned``: how many of the ``weights`` of the selected tensors were set to zero; and
        so has each of these, with the share of its norm that this alone cost (``rel_l2``).
    """
    pruned = pruning_json(summary)
    return {
        "input_bytes": summary.input_bytes,
        "output_bytes": summary.output_bytes,
        "ratio": summary.ratio,
        "bits_per_weight": summary.bits_per_weight,
        "tensors": [_row_json(row) for row in summary.tensors],
        **({} if pruned is None else {"pruned": pruned}),
    }


def _row_json(row: TensorSummary) -> dict[str, Any]:
    return {
        "name": row.name,
        "shape": list(row.shape),
        "dtype": row.dtype,
        "role": row.role,
        "role_why": row.role_why,
        "codec": row.codec,
        "bytes": row.stored,
        "bits_per_weight": row.bits_per_weight,
        "rel_l2": row.rel_l2,
        "snr_db": row.snr_db,
        "max_abs_error": row.max_abs_error,
        **({} if row.pruned is None else {"pruned": tensor_pruning_json(row)}),
        **({} if row.file is None else {"file": row.file}),
    }


def _family(tree: str | None) -> str:
    """Return a tree's text without its steps, which are each tensor's own."""
    return re.sub(r"\bstep=[^,)]+", "step=…", tree or "")


def _by_tree(rows: Iterable[TensorSummary]) -> dict[str, list[TensorSummary]]:
    groups: dict[str, list[TensorSummary]] = {}
    for row in rows:
        if row.tree is not None:
            groups.setdefault(_family(row.tree), []).append(row)
    return groups


def _trees_legend(rows: Iterable[TensorSummary], width: int) -> Iterator[str]:
    trees = _by_tree(rows)
    if trees:
        yield "Trees"
    for number, (tree, used) in enumerate(trees.items(), 1):
        before, after = sum(row.nbytes for row in used), sum(row.stored for row in used)
        count = f"{counted(len(used), 'tensor')}, {bytes_text(before)} in {bytes_text(after)}"
        reasons = fold(f"{count}: {_reasons(row.why for row in used)}", max(width - 3, 20))
        yield from fold(f"{number}  {printable(tree)}", width).split("\n")
        yield from (f"   {line}" for line in reasons.split("\n"))
    if trees:
        yield ""


def _roles_legend(rows: Iterable[TensorSummary], width: int) -> Iterator[str]:
    roles: dict[str, list[str]] = {}
    for row in rows:
        if row.role_why:
            roles.setdefault(row.role, []).append(row.role_why)
    if roles:
        yield "Roles"
    for role, whys in sorted(roles.items()):
        line = f"{role}, {counted(len(whys), 'tensor')}: {_reasons(whys)}"
        yield from fold(line, width).split("\n")
    if roles:
        yield ""


def _reasons(whys: Iterable[str]) -> str:
    """Return the most common reasons, and how many more there are."""
    common = Counter(whys).most_common()
    listed = "; ".join(printable(why) for why, _ in common[:_REASONS])
    return f"{listed}; {len(common) - _REASONS:,} more" if len(common) > _REASONS else listed
