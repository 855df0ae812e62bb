"""Save what came of a verb as an HTML page or a section of a model card."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import tensorcomp
from tensorcomp.api.compress_result import CompressResult
from tensorcomp.api.plan import PlanReport
from tensorcomp.errors import CheckpointError
from tensorcomp.gradients.cost_model.estimate import Estimate
from tensorcomp.io.files import atomic_file
from tensorcomp.io.locations import location
from tensorcomp.metrics.comparison import Comparison
from tensorcomp.pipeline.summary import CheckpointSummary
from tensorcomp.reports.checkpoint_report import checkpoint_report
from tensorcomp.reports.comparison_report import comparison_report
from tensorcomp.reports.estimate_report import estimate_report
from tensorcomp.reports.html_page import html_page
from tensorcomp.reports.model_card import model_card
from tensorcomp.reports.report import Report

_REPORTS: Mapping[type, Callable[[Any], Report]] = {
    **dict.fromkeys((CompressResult, PlanReport, CheckpointSummary), checkpoint_report),
    Comparison: comparison_report,
    Estimate: estimate_report,
    Report: lambda report: report,
}
_WRITERS = {".html": html_page, ".md": model_card}
_USER = re.compile(r"://(?:[^/?#]*@|[^/?#@]*:.*@)", re.DOTALL)
_QUERY = re.compile(r"(://[^?#]*)[?#].*", re.DOTALL)


def save_report(
    result: Any,
    path: str | os.PathLike[str],
    *,
    title: str = "",
    command: str = "",
    settings: Mapping[str, str] = MappingProxyType({}),
    force: bool = False,
) -> None:
    """Save a result as an HTML page, or as a section of a model card.

    Parameters
    ----------
    result : CompressResult, CheckpointSummary, PlanReport, Comparison, Estimate or Report
        What `compress`, `inspect`, `plan`, `compare` or `estimate` returned.
    path : str or path-like
        ``.html``: one page that loads nothing, with plots and a table of all tensors; ``.md``:
        Markdown. It appears complete or not at all.
    title : str
        What it is about; by default the name of a compressed file.
    command : str
        The command line to be shown; none by default.
    settings : mapping of str to str
        To be listed beside the versions. Credentials and queries of URLs are left out, here as in
        the command.
    force : bool
        Replace an existing file.

    Raises
    ------
    CheckpointError
        If the name ends in another suffix, exists without `force`, or cannot be written.

    Examples
    --------
    >>> from tensorcomp import Budget, compress
    >>> budget = Budget(bits_per_weight=4)
    >>> result = compress("model.safetensors", "small.tc.safetensors", budget=budget)
    >>> save_report(result, "card.md")
    """
    path = location(path)
    text = report_text(result, path, title=title, command=command, settings=settings)
    with atomic_file(path, force=force) as file:
        file.write(text.encode())


def report_text(
    result: Any, path: Path, *, title: str, command: str, settings: Mapping[str, str]
) -> str:
    """Return what `save_report` writes into a file of this name."""
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise CheckpointError("expected a name that ends in .html or .md", path=path)
    report = _REPORTS[type(result)](result)
    known = {
        **settings,
        "Date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "tensorcomp": tensorcomp.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "Platform": f"{platform.system()} {platform.machine()}",
    }
    title = title or (report.stored.name if report.stored else "")
    shown = {name: _without_secrets(value) for name, value in known.items()}
    return write(report, _without_secrets(title), _without_secrets(command), shown)


def _without_secrets(text: str) -> str:
    """Return a text without the credentials and queries of URLs in it."""
    return " ".join(_QUERY.sub(r"\1", _USER.sub("://", word)) for word in text.split(" "))
