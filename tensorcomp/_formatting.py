"""Figures and names as short text, and text in aligned columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

_LONGEST = 300  # characters of a name; a hostile file's may have millions
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")
_BREAKS = "./_-:, "


def bytes_text(nbytes: int) -> str:
    """Return a size in decimal units with three digits: ``90.9 MB``.

    Examples
    --------
    >>> [bytes_text(size) for size in (999, 1000, 90_868_376, 999_999)]
    ['999 B', '1.00 kB', '90.9 MB', '1.00 MB']
    """
    if nbytes < 1000:
        return f"{nbytes} B"
    size, unit = nbytes / 1000, 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{three_digits(size)} {_UNITS[unit]}"


def three_digits(value: float) -> str:
    """Return a number with three digits, but no fewer than all those of its integer part.

    Examples
    --------
    >>> [three_digits(value) for value in (1.2345, 99.97, 12345.6)]
    ['1.23', '100', '12,346']
    """
    for decimals, limit in ((2, 9.995), (1, 99.95)):
        if value < limit:
            return f"{value:.{decimals}f}"
    return f"{value:,.0f}"


def counted(number: int, what: str) -> str:
    """Return a number of things: ``1 tensor``, ``1,000 tensors``."""
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def snr_text(snr: float | None) -> str:
    """Return a signal-to-noise ratio in dB; a dash if exact."""
    return "-" if snr is None else f"{snr:.1f}"


def ratio_text(ratio: float | None) -> str:
    """Return a ratio, or a dash where there is none."""
    if ratio is None:
        return "-"
    return f"{ratio:.3f}" if ratio < 9.9995 else three_digits(ratio)


def bits_text(bits: float | None) -> str:
    """Return bits per weight, or a dash where there is none."""
    return "-" if bits is None else f"{bits:.2f}"


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape: ``384×1536``; ``[]`` is a scalar's."""
    return "×".join(map(str, shape)) if shape else "[]"


def printable(text: str) -> str:
    """Return a name from a file as `escaped` does, its middle cut out if it is long."""
    text = escaped(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"


def escaped(text: str) -> str:
    r"""Return text with whatever could move the cursor, or cannot be shown, spelled out.

    Examples
    --------
    >>> print(escaped("a\x1b[31m b"))
    a\x1b[31m b
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def cells(text: str) -> int:
    """Return how many terminal columns a line takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fold(text: str, width: int) -> str:
    """Break a long name into lines after a dot or the like; later ones are indented.

    Parameters
    ----------
    text : str
        One line.
    width : int
        Columns of a line at most, above 2.

    Examples
    --------
    >>> print(fold("encoder.layer.0.attention.weight", 18))
    encoder.layer.0.
      attention.weight
    """
    lines = []
    indent = ""
    while cells(text) > width - len(indent):
        taken, room = 0, width - len(indent)
        while (room := room - _cells(text[taken])) >= 0:
            taken += 1
        taken = max(taken, 1)
        after = 1 + max(text.rfind(mark, 0, taken) for mark in _BREAKS)
        if after > taken // 2:
            taken = after
        lines.append(f"{indent}{text[:taken].rstrip()}")
        text, indent = text[taken:], "  "
    return "\n".join([*lines, indent + text])


def in_columns(rows: Sequence[Sequence[str]], right: Collection[int], gap: int = 2) -> list[str]:
    """Return the lines of a table.

    Parameters
    ----------
    rows : sequence of sequence of str
        The first may be the head. A cell may have several lines.
    right : collection of int
        Columns that are aligned on the right.
    gap : int, optional
        Spaces between columns.
    """
    widths = column_widths(rows)
    lines = []
    for row in rows:
        split = [cell.split("\n") for cell in row]
        for level in range(max(map(len, split))):
            parts = [cell[level] if level < len(cell) else "" for cell in split]
            padded = [
                " " * (widths[i] - cells(part)) + part
                if i in right
                else part + " " * (widths[i] - cells(part))
                for i, part in enumerate(parts)
            ]
            lines.append((" " * gap).join(padded).rstrip())
    return lines


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column of a table is."""
    return [
        max(cells(line) for cell in column for line in cell.split("\n"))
        for column in zip(*rows, strict=True)
    ]
