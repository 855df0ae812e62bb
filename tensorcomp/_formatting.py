"""Format names, numbers and units for people."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_MAX_NAME = 300  # characters of a name; a hostile file's may have millions
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")
# What means something to Markdown in a line, mentions and links of plain addresses among them.
_MARKS = re.compile(
    r"\\(?!\w)|[`*<>&|~@$#]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])|(?<=:)/(?=/)|(?<=www)\."
)


def bytes_text(nbytes: int) -> str:
    """Return a size in decimal units with three digits: ``90.9 MB``.

    Examples
    --------
    >>> [bytes_text(size) for size in (999, 1000, 90_868_376, 999_999)]
    ['999 B', '1.00 kB', '90.9 MB', '1.00 MB']
    """
    return f"{nbytes} B" if nbytes < 1000 else scaled(nbytes / 1000, _UNITS)


def scaled(value: float, units: Sequence[str]) -> str:
    """Return a value with three digits, in the largest fitting decimal unit."""
    number = 0
    while value >= 999.5 and number < len(units) - 1:
        value, number = value / 1000, number + 1
    return f"{three_digits(value)} {units[number]}"


def three_digits(value: float) -> str:
    """Return a number with three digits, or all those of its integer part.

    Examples
    --------
    >>> [three_digits(value) for value in (1.2345, 99.97, 12345.6)]
    ['1.23', '100', '12,346']
    """
    for decimals, limit in ((2, 9.995), (1, 99.95)):
        if value < limit:
            return f"{value:.{decimals}f}"
    return f"{value:,.0f}"


def seconds_text(seconds: float) -> str:
    """Return a time with its unit.

    Examples
    --------
    >>> [seconds_text(seconds) for seconds in (0.0123, 0.5, 12.34, 4000.0)]
    ['12.3 ms', '0.50 s', '12.3 s', '4,000 s']
    """
    return f"{three_digits(seconds)} s" if seconds >= 0.1 else f"{milliseconds(seconds)} ms"


def milliseconds(seconds: float) -> str:
    """Return the number of milliseconds, without the unit."""
    return three_digits(1e3 * seconds)


def speed_text(nbytes: int, seconds: float) -> str:
    """Return a speed such as ``90.9 MB/s``."""
    return f"{bytes_text(round(nbytes / max(seconds, 1e-9)))}/s"


def percent(share: float) -> str:
    """Return a share in percent, with two digits after the point."""
    return f"{100 * share:.2f} %"


def counted(number: int, what: str) -> str:
    """Return a number of things: ``1 tensor``, ``1,000 tensors``."""
    plural = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def snr_text(snr: float | None) -> str:
    """Return a signal-to-noise ratio in dB; a dash if exact."""
    return "-" if snr is None else f"{snr:z.1f}"


def ratio_text(ratio: float | None) -> str:
    """Return a ratio, or a dash where there is none."""
    if ratio is None:
        return "-"
    return f"{ratio:.3f}" if ratio < 9.9995 else three_digits(ratio)


def bits_text(bits: float | None) -> str:
    """Return bits per weight, or a dash where there is none."""
    return "-" if bits is None else f"{bits:z.2f}"


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape: ``384×1536``; ``[]`` is a scalar's."""
    return "×".join(map(str, shape)) if shape else "[]"


def printable(text: str) -> str:
    """Return a name from a file, escaped, its middle cut out if it is long."""
    text = escaped(text)
    return text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME // 2]}…{text[-_MAX_NAME // 2 :]}"


def escaped(text: str) -> str:
    r"""Return text with what cannot be shown or moves the cursor escaped.

    Examples
    --------
    >>> print(escaped("a\x1b[31m b"))
    a\x1b[31m b
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def markdown_text(text: str) -> str:
    r"""Return a line as Markdown that shows it as it is.

    Examples
    --------
    >>> print(markdown_text("a_b|<i> [x](http://y)"))
    a_b\|\<i\> [x\](http:\//y)
    """
    return _MARKS.sub(r"\\\g<0>", text)


_MAX_SHOWN = 80
_MAX_LISTED = 5


def shown(name: object) -> str:
    """Return a name taken from a file as one short, printable, quoted line."""
    text = repr(str(name))
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[: _MAX_SHOWN - 20]}…{text[-15:]} ({len(str(name))} characters)"


def listed(names: Collection[object]) -> str:
    """Return the first few names, quoted, and how many more there are."""
    first = ", ".join(shown(name) for _, name in zip(range(_MAX_LISTED), names, strict=False))
    rest = len(names) - _MAX_LISTED
    return f"{first} and {rest} more" if rest > 0 else first


def unique_name(name: str, taken: set[str]) -> str:
    """Return `name`, numbered if it is taken, and take it.

    Text that UTF-8 cannot hold (halves of surrogate pairs) is escaped.
    """
    name = name.encode("utf-8", "backslashreplace").decode()
    unique, count = name, 1
    while unique in taken:
        count += 1
        unique = f"{name}#{count}"
    taken.add(unique)
    return unique
