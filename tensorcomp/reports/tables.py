"""Tables of tensors as lines of text, folded to a terminal or one line a tensor for a pipe."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    cells,
    column_widths,
    counted,
    fold,
    in_columns,
    printable,
    ratio_text,
    shape_text,
    snr_text,
)
from tensorcomp.api.inspect import Summary, TensorRow
from tensorcomp.reports.pruned import pruned_share

_NARROWEST = 20  # columns of a name
_LESS_NEEDED = ("Gap", "Ratio", "Role")  # the first is left out first
_WHYS = 3  # reasons listed for one tree


def totals(summary: Summary) -> str:
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


def tensor_table(summary: Summary, width: int | None = None) -> list[str]:
    """Return a table of all tensors.

    Parameters
    ----------
    summary : Summary
    width : int, optional
        Columns to keep within. If one line a tensor does not fit, names are folded, and trees are
        numbered and explained below the table. By default everything is on one line.
    """
    if not summary.tensors:
        return []
    flat = _flat(summary)
    if width is None or max(map(cells, flat)) <= width:
        return flat
    return _folded(summary, width)


def _flat(summary: Summary) -> list[str]:
    files = any(row.file is not None for row in summary.tensors)
    head = (*_head(summary), "Tree", "Why")
    rows: list[tuple[str, ...]] = [("File", *head) if files else head]
    for row in summary.tensors:
        tree = "-" if row.codec is None else printable(row.codec)
        role = f"{row.role}: {row.role_why}" if row.role_why else ""
        why = "; ".join(filter(None, (row.why, role)))
        figures = (*_figures(row, errors=summary.lossy), *_pruned(summary, row))
        line = (printable(row.name), *figures, tree, printable(why))
        rows.append((printable(row.file or ""), *line) if files else line)
    first = 5 if files else 4
    return in_columns(rows, right=range(first, first + len(head) - 6))


_HEAD = ("Tensor", "Shape", "Type", "Role", "Bytes", "Bits", "Ratio")
_LOSSY_HEAD = (*_HEAD, "SNR dB", "Gap")  # the gap is that of the bits to R(D)


def _head(summary: Summary) -> tuple[str, ...]:
    head = _LOSSY_HEAD if summary.lossy else _HEAD
    return (*head, "Pruned") if summary.pruned else head


def _pruned(summary: Summary, row: TensorRow) -> tuple[str, ...]:
    """Return the cell that says what was pruned of a tensor, if there is such a column."""
    return (pruned_share(row),) if summary.pruned else ()


def _figures(row: TensorRow, *, errors: bool = False) -> tuple[str, ...]:
    """Return the figures of a row, with its error and its gap to R(D) if asked."""
    figures = (
        shape_text(row.shape),
        printable(row.dtype),
        row.role,
        bytes_text(row.stored),
        bits_text(row.bits_per_weight),
        ratio_text(row.ratio),
    )
    return (*figures, snr_text(row.snr_db), bits_text(row.gap)) if errors else figures


def _folded(summary: Summary, width: int) -> list[str]:
    numbers = _numbered(summary.tensors)
    rows: list[tuple[str, ...]] = []
    for row in summary.tensors:
        same = "" if row.same_as is None else f"\n  = {printable(row.same_as)}"
        tree = "=" if same else str(numbers.get(_family(row.tree), "-"))
        figures = (*_figures(row, errors=summary.lossy), *_pruned(summary, row))
        rows.append((printable(row.name) + same, *figures, tree))
    head, *rows = without_less_needed([(*_head(summary), "Tree"), *rows], width)
    lines = fitted([head, *rows], width, right=range(head.index("Bytes"), len(head)))
    headed = list(_with_headings(summary.tensors, lines))
    legend = _legend(summary.tensors, numbers, width)
    return [*headed, *legend, *_roles_legend(summary.tensors, width)]


def _numbered(rows: Iterable[TensorRow]) -> dict[str, int]:
    trees: dict[str, int] = {}
    for row in rows:
        if row.tree is not None:
            trees.setdefault(_family(row.tree), len(trees) + 1)
    return trees


def _family(tree: str | None) -> str:
    """Return a tree's text without its steps, which are each tensor's own."""
    return re.sub(r"\bstep=[^,)]+", "step=…", tree or "")


def without_less_needed(rows: list[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """Return a table without the columns that can be done without, as far as it is too wide."""
    for title in _LESS_NEEDED:
        widths = column_widths(rows)[1:]
        if sum(widths) + len(widths) + _NARROWEST <= width:
            break
        if title in rows[0]:
            place = rows[0].index(title)
            rows = [(*row[:place], *row[place + 1 :]) for row in rows]
    return rows


def fitted(rows: Sequence[Sequence[str]], width: int, right: Iterable[int]) -> list[list[str]]:
    """Return each row's lines, with the first column folded so that they keep within `width`."""
    others = column_widths(rows)[1:]
    gap = 2 if sum(others) + 2 * len(others) + 2 * _NARROWEST <= width else 1
    room = max(width - sum(others) - gap * len(others), _NARROWEST)
    folded = [
        ("\n".join(fold(line, room) for line in name.split("\n")), *rest) for name, *rest in rows
    ]
    lines = iter(in_columns(folded, list(right), gap))
    return [[next(lines) for _ in name.split("\n")] for name, *_ in folded]


def _with_headings(rows: Sequence[TensorRow], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the head, then the lines of each row, those of a folder under their file's name."""
    yield from lines[0]
    pairs = zip(rows, lines[1:], strict=True)
    for file, group in groupby(pairs, key=lambda pair: pair[0].file):
        if file is not None:
            yield from ("", printable(file))
        for _, block in group:
            yield from block


def _legend(rows: Sequence[TensorRow], numbers: dict[str, int], width: int) -> Iterator[str]:
    coded: dict[str, list[TensorRow]] = {tree: [] for tree in numbers}
    for row in rows:
        if row.tree is not None:
            coded[_family(row.tree)].append(row)
    if coded:
        yield from ("", "Trees")
    for tree, used in coded.items():
        yield from fold(f"{numbers[tree]}  {printable(tree)}", width).split("\n")
        before, after = sum(row.nbytes for row in used), sum(row.stored for row in used)
        count = f"{counted(len(used), 'tensor')}, {bytes_text(before)} in {bytes_text(after)}"
        reasons = _reasons(row.why for row in used)
        for line in fold(f"{count}: {reasons}", max(width - 3, _NARROWEST)).split("\n"):
            yield f"   {line}"


def _roles_legend(rows: Sequence[TensorRow], width: int) -> Iterator[str]:
    whys: dict[str, list[str]] = {}
    for row in rows:
        if row.role_why:
            whys.setdefault(row.role, []).append(row.role_why)
    if whys:
        yield from ("", "Roles")
    for role, found in sorted(whys.items()):
        line = f"{role}, {counted(len(found), 'tensor')}: {_reasons(found)}"
        yield from fold(line, width).split("\n")


def _reasons(whys: Iterable[str]) -> str:
    """Return the most common reasons, and how many more there are."""
    counted = Counter(whys).most_common()
    listed = "; ".join(printable(why) for why, _ in counted[:_WHYS])
    return f"{listed}; {len(counted) - _WHYS} more" if len(counted) > _WHYS else listed


def cost_table(summary: Summary, width: int | None = None, *, most: int = 8) -> list[str]:
    """Return a table of the tensors that take most bytes, and of all others together.

    Parameters
    ----------
    summary : Summary
    width : int, optional
        Columns to keep within; names are folded.
    most : int, optional
        How many tensors.
    """
    costly = sorted(summary.tensors, key=lambda row: -row.stored)
    shown = [row for row in costly[:most] if row.stored]
    if not shown:
        return []
    rows: list[tuple[str, ...]] = [
        ("Tensors that cost most", "Shape", "Type", "Bytes", "Share", "Bits", "Ratio")
    ]
    for row in shown:
        shape, dtype, _, *figures = _figures(row)
        share = f"{100 * row.stored / summary.output_bytes:.1f} %"
        rows.append((printable(row.name), shape, dtype, figures[0], share, *figures[1:]))
    rest = summary.output_bytes - sum(row.stored for row in shown)
    others = counted(len(costly) - len(shown), "other")
    label = f"{others} and the header"
    share = f"{100 * rest / summary.output_bytes:.1f} %"
    rows.append((label, "", "", bytes_text(rest), share, "", ""))
    if width is None:
        return in_columns(rows, right=range(3, 7))
    return [line for block in fitted(rows, width, right=range(3, 7)) for line in block]
