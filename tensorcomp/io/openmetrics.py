"""Render metrics as OpenMetrics text, and keep a file of them up to date."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from tensorcomp._log import LOGGER
from tensorcomp.errors import OptionError
from tensorcomp.io.files import refuse_nul
from tensorcomp.io.locations import local_path

_END = "# EOF\n"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_PERIOD = 1.0  # seconds between two writes, at least


class Metric(NamedTuple):
    """A metric and its value.

    Parameters
    ----------
    name : str
        Letters, digits and underscores; ends with the unit, if there is one.
    value : float
    text : str
        What it is, for people.
    kind : {"gauge", "counter"}
    unit : str
        Such as ``bytes``.
    """

    name: str
    value: float
    text: str
    kind: Literal["gauge", "counter"] = "gauge"
    unit: str = ""


def openmetrics_text(metrics: Iterable[Metric], labels: Mapping[str, str]) -> str:
    r"""Return metrics in the text format of OpenMetrics 1.0.

    Examples
    --------
    >>> steps = Metric("steps", 3, "Steps so far.", "counter")
    >>> print(openmetrics_text([steps], {"rank": "0"}), end="")
    # TYPE steps counter
    # HELP steps Steps so far.
    steps_total{rank="0"} 3
    # EOF
    """
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    lines = []
    for name, value, text, kind, unit in metrics:
        lines += [f"# TYPE {name} {kind}", *([f"# UNIT {name} {unit}"] if unit else [])]
        lines.append(f"# HELP {name} {text.translate(_ESCAPES)}")
        sample = f"{name}_total" if kind == "counter" else name
        lines.append(f"{sample}{{{pairs}}} {value:.17g}" if pairs else f"{sample} {value:.17g}")
    return "".join(f"{line}\n" for line in lines) + _END


class OpenMetricsFile:
    """File of metrics that is replaced as a whole, once a second at most.

    A file that cannot be written is told once in the log, and changes nothing else.

    Parameters
    ----------
    path : str or path-like
        By convention ``*.prom``.
    labels : mapping of str to str
        Of every sample.

    Raises
    ------
    OptionError
        If something else than metrics is there.
    """

    def __init__(self, path: str | os.PathLike[str], labels: Mapping[str, str]) -> None:
        self._path, self._labels = local_path(path), dict(labels)
        refuse_nul(self._path)
        self._due, self._told = -1.0, False
        if os.path.lexists(self._path) and not _holds_metrics(self._path):
            raise OptionError(
                f"{self._path}: expected a file of metrics or none, got another; give another name"
            )

    @property
    def is_due(self) -> bool:
        """Whether the last write was long enough ago."""
        return time.monotonic() >= self._due

    def write(self, metrics: Iterable[Metric]) -> None:
        """Replace the file."""
        self._due = time.monotonic() + _PERIOD
        # Not `atomic_file`, which waits until the disk has it: that may take as long as a shard.
        partial = self._path.with_name(f".{self._path.name}.tensorcomp-part")
        try:
            partial.write_text(openmetrics_text(metrics, self._labels), "utf-8")
            partial.replace(self._path)
        except OSError as error:
            if not self._told:
                LOGGER.warning("%s: metrics cannot be written: %s", self._path, error.strerror)
            self._told = True
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def _holds_metrics(path: Path) -> bool:
    try:
        return path.is_file() and path.read_bytes().endswith(_END.encode())
    except OSError:
        return False
