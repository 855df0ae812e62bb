"""Tables of tensors as lines of text, folded to a terminal or one line a tensor for a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tensorcomp.reports.metrics import Summary, TensorRow
from tensorcomp.reports.text import (
    bits_text,
    bytes_text,
    cells,
    column_widths,
    fold,
    in_columns,
    printable,
    ratio_text,
    shape_text,
)

_NARROWEST = 20  # columns of a name
_WHYS = 3  # reasons listed for one tree


def totals(summary: Summary) -> str:
    """Return sizes, ratio and rate in one line."""
    tensors = _counted(len(summary.tensors), "tensor")
    bits = summary.bits_per_weight
    rate = "" if bits is None else f", {bits_text(bits)} bits per weight"
    if not summary.compressed:
        return f"{tensors}, {bytes_text(summary.input_bytes)}{rate}; not compressed"
    return (
        f"{tensors}, {bytes_text(summary.input_bytes)} in {bytes_text(summary.output_bytes)}: "
        f"ratio {ratio_text(summary.ratio)}{rate}"
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
    head = (*_HEAD, "Tree", "Why")
    rows: list[tuple[str, ...]] = [("File", *head) if files else head]
    for row in summary.tensors:
        tree = "-" if row.codec is None else printable(row.codec)
        line = (printable(row.name), *_figures(row), tree, printable(row.why))
        rows.append((printable(row.file or ""), *line) if files else line)
    first = 5 if files else 4
    return in_columns(rows, right=range(first, first + 3))


_HEAD = ("Tensor", "Shape", "Type", "Role", "Bytes", "Bits", "Ratio")


def _figures(row: TensorRow) -> tuple[str, ...]:
    return (
        shape_text(row.shape),
        printable(row.dtype),
        row.role,
        bytes_text(row.stored),
        bits_text(row.bits_per_weight),
        ratio_text(row.ratio),
    )


def _folded(summary: Summary, width: int) -> list[str]:
    numbers = _numbered(summary.tensors)
    rows = []
    for row in summary.tensors:
        same = "" if row.same_as is None else f"\n  = {printable(row.same_as)}"
        tree = "=" if same else str(numbers.get(row.tree or "", "-"))
        rows.append((printable(row.name) + same, *_figures(row), tree))
    lines = _fitted([(*_HEAD, "Tree"), *rows], width, right=range(4, 8))
    headed = list(_with_headings(summary.tensors, lines))
    return [*headed, *_legend(summary.tensors, numbers, width)]


def _numbered(rows: Iterable[TensorRow]) -> dict[str, int]:
    trees: dict[str, int] = {}
    for row in rows:
        if row.tree is not None:
            trees.setdefault(row.tree, len(trees) + 1)
    return trees


def _fitted(rows: Sequence[Sequence[str]], width: int, right: Iterable[int]) -> list[list[str]]:
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
            coded[row.tree].append(row)
    if coded:
        yield from ("", "Trees")
    for tree, used in coded.items():
        yield from fold(f"{numbers[tree]}  {printable(tree)}", width).split("\n")
        before, after = sum(row.nbytes for row in used), sum(row.stored for row in used)
        count = f"{_counted(len(used), 'tensor')}, {bytes_text(before)} in {bytes_text(after)}"
        whys = Counter(row.why for row in used).most_common()
        reasons = "; ".join(printable(why) for why, _ in whys[:_WHYS])
        more = f"; {len(whys) - _WHYS} more" if len(whys) > _WHYS else ""
        for line in fold(f"{count}: {reasons}{more}", max(width - 3, _NARROWEST)).split("\n"):
            yield f"   {line}"


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
    others = _counted(len(costly) - len(shown), "other")
    label = f"{others} and the header"
    share = f"{100 * rest / summary.output_bytes:.1f} %"
    rows.append((label, "", "", bytes_text(rest), share, "", ""))
    if width is None:
        return in_columns(rows, right=range(3, 7))
    return [line for block in _fitted(rows, width, right=range(3, 7)) for line in block]


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
