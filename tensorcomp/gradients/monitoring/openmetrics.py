"""Write metrics of gradient compression as OpenMetrics text."""

from __future__ import annotations

import os
from collections import defaultdict

from tensorcomp.gradients.monitoring.metrics import StepMetrics
from tensorcomp.io.openmetrics import Metric, OpenMetricsFile

_SUMS = {"nonfinite": "nonfinite_elements", "skipped": "skipped_steps"}


class OpenMetricsLog:
    """Keep a file of metrics, as `TensorBoardLog` logs steps.

    Bytes, seconds, steps and what is not finite are counters, ``tensorcomp_gradients_…_total``;
    ``density``, ``cosine`` and ``residual_ratio`` are those of the last step.

    Parameters
    ----------
    path : str or path-like
        By convention ``*.prom``; another one for each rank.
    rank : int, optional
        A label of every sample; by default that of the process group.

    Raises
    ------
    OptionError
        If something else than metrics is there.
    """

    def __init__(self, path: str | os.PathLike[str], *, rank: int | None = None) -> None:
        if rank is None:
            from torch import distributed

            is_one = distributed.is_available() and distributed.is_initialized()
            rank = distributed.get_rank() if is_one else 0
        self._file = OpenMetricsFile(path, {"rank": str(rank)})
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._last: dict[str, float] = {}

    def write(self, metrics: StepMetrics) -> None:
        """Count a step; the file is written once a second at most."""
        self._sums["steps"] += 1
        self._last = {}
        for name, value in metrics.scalars().items():
            kind, _, what = name.partition("/")
            if kind == "bytes":
                self._sums[f"{what}_bytes"] += value
            elif kind == "ms":
                self._sums[f"{what}_seconds"] += value / 1e3
            elif name in _SUMS:
                self._sums[_SUMS[name]] += value
            else:
                self._last[name] = value
        if self._file.is_due:
            self._file.write(self._metrics())

    def close(self) -> None:
        """Write what was counted since."""
        self._file.write(self._metrics())

    def __enter__(self) -> OpenMetricsLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _metrics(self) -> list[Metric]:
        found = []
        for name, value in self._sums.items():
            unit = name.rpartition("_")[2]
            text = f"Sum of {name.replace('_', ' ')}."
            found.append(Metric(name, value, text, "counter", unit if "_" in name else ""))
        for name, value in self._last.items():
            found.append(Metric(name, value, f"The {name.replace('_', ' ')} of the last step."))
        return [metric._replace(name=f"tensorcomp_gradients_{metric.name}") for metric in found]
