"""Names of tensors: shown on one line, and kept apart."""

from __future__ import annotations

from collections.abc import Collection

_LONGEST = 80
_LISTED = 5


def shown(name: object) -> str:
    """Return a name taken from a file as one short, printable, quoted line."""
    text = repr(str(name))
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 20]}…{text[-15:]} ({len(str(name))} characters)"


def listed(names: Collection[object]) -> str:
    """Return the first few names, quoted, and how many more there are."""
    first = ", ".join(shown(name) for _, name in zip(range(_LISTED), names, strict=False))
    rest = len(names) - _LISTED
    return f"{first} and {rest} more" if rest > 0 else first


def unique_name(name: str, taken: set[str]) -> str:
    """Return `name`, numbered if it is taken, and take it.

    Text that UTF-8 cannot hold (halves of surrogate pairs) is spelled out.
    """
    name = name.encode("utf-8", "backslashreplace").decode()
    unique, count = name, 1
    while unique in taken:
        count += 1
        unique = f"{name}#{count}"
    taken.add(unique)
    return unique
