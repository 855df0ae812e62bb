"""Count what a long job does, in a file of metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import MappingProxyType

from tensorcomp.io.openmetrics import Metric, OpenMetricsFile
from tensorcomp.progress import Progress


class MetricsFile(Progress):
    """Write the progress of a job as OpenMetrics text; a context manager.

    The file is replaced once a second at most, and when the block ends, also by an error. Node
    exporter's textfile collector reads it.

    Parameters
    ----------
    path : str or path-like
        By convention ``*.prom``. An older file of metrics is replaced.
    labels : mapping of str to str, optional
        Of every sample.

    Attributes
    ----------
    output_bytes : int
        Bytes that were written, once that is known.
    failures : int
        Things that failed; one more if the block ends by an error.

    Raises
    ------
    OptionError
        If something else than metrics is there.

    Examples
    --------
    >>> from tensorcomp import MetricsFile, compress
    >>> with MetricsFile("job.prom", labels={"job": "nightly"}) as metrics:
    ...     result = compress("model.safetensors", "m.tc.safetensors", progress=metrics)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        labels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._file = OpenMetricsFile(path, labels)
        self._started, self._begun = time.time(), time.monotonic()
        self._in_folder = False
        self._expected = self._pass = self._bytes = self._pieces = 0
        self._last: str | None = None
        self._ended = 0.0
        self.output_bytes = self.failures = 0

    def begin_folder(self, nbytes: int) -> None:
        """Start a folder."""
        self._in_folder = True
        self._expected, self._pass = nbytes, 0
        self._write()

    def begin(self, tensors: int, nbytes: int) -> None:
        """Start a file."""
        self._last = None
        if not self._in_folder:
            self._expected, self._pass = nbytes, 0
        self._write()

    def advance(self, name: str, nbytes: int) -> None:
        """Count bytes of a tensor."""
        self._pieces += name != self._last
        self._last = name
        self._bytes += nbytes
        self._pass += nbytes
        self._write()

    def __enter__(self) -> MetricsFile:
        """Write the file, and return self."""
        self._file.write(self._metrics())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the file once more."""
        self.failures += kind is not None
        self._ended = time.time()
        self._file.write(self._metrics())

    def _write(self) -> None:
        if self._file.is_due:
            self._file.write(self._metrics())

    def _metrics(self) -> list[Metric]:
        seconds = time.monotonic() - self._begun
        part = min(self._pass / self._expected, 1.0) if self._expected else 0.0
        found = [
            Metric("processed_bytes", self._bytes, "Bytes read.", "counter", "bytes"),
            Metric("processed_tensors", self._pieces, "Tensors read.", "counter", "tensors"),
            Metric("failures", self.failures, "Errors that ended the job.", "counter"),
            Metric("expected_bytes", self._expected, "Bytes to read.", unit="bytes"),
            Metric("output_bytes", self.output_bytes, "Bytes written.", unit="bytes"),
            Metric("progress_ratio", part, "Part that is done.", unit="ratio"),
            Metric("duration_seconds", seconds, "Time so far.", unit="seconds"),
            Metric("start_time_seconds", self._started, "Unix time.", unit="seconds"),
            Metric("end_time_seconds", self._ended, "Unix time; 0 till then.", unit="seconds"),
        ]
        return [metric._replace(name=f"tensorcomp_job_{metric.name}") for metric in found]
