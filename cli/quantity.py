"""Parse quantities with units: sizes, counts, bandwidths, times."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import click

_QUANTITY = re.compile(r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)\s*([a-zµ/]*)")
_DECIMAL = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def quantity(
    kind: str, units: Mapping[str, float], example: str, *, least: float, most: float = math.inf
) -> Callable[[str], float]:
    """Return a parser of a number, from `least` to below `most`, and its unit.

    Examples
    --------
    >>> quantity("length", {"m": 1, "km": 1000}, "5 km", least=0)("1.5 KM")
    1500.0
    """

    def parse(text: str) -> float:
        match = _QUANTITY.fullmatch(text.strip().lower())
        value = float(match[1]) * units.get(match[2], math.nan) if match else math.nan
        if not least <= value < most:
            raise click.BadParameter(f"{text!r}; expected a {kind} such as {example}")
        return value

    return parse


def size(text: str) -> int:
    """Return the bytes of a text such as ``700MB`` or ``1.5GiB``."""
    return int(_size(text))


def count(text: str) -> int:
    """Return a number of parameters: ``25e6``, ``25M``, ``7B``."""
    return round(_count(text))


_size = quantity(
    "size",
    {f"{prefix}{b}": n for prefix, n in (_DECIMAL | _BINARY).items() for b in ("", "b")},
    "700MB or 1.5GiB",
    least=0,
)
_count = quantity(
    "number of parameters",
    {"": 1, "k": 1e3, "m": 1e6, "b": 1e9},
    "25e6 or 7B",
    least=1,
    most=math.nextafter(1e15, math.inf),
)
bandwidth = quantity(
    "bandwidth",
    {f"{prefix}{unit}": n for prefix, n in _DECIMAL.items() for unit in ("bit", "bit/s", "bps")},
    "100mbit or 1gbit",
    least=math.nextafter(0, 1),
)
duration = quantity(
    "time",
    {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "50us, 90s or 2h",
    least=0,
)
