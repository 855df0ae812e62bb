"""Write metrics of gradient compression for TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tensorcomp.errors import GradientError, needing
from tensorcomp.gradients.monitoring.metrics import StepMetrics

_FIGURES = ("payload_bytes", "density", "cosine", "residual_ratio", "achieved")


class TensorBoardLog:
    """Log steps in a folder for TensorBoard, one curve for each figure.

    Curves are called ``gradients/bytes/payload`` and so on, as in `StepMetrics.scalars`; those of
    a tensor are ``gradients/tensors/NAME/density``, ``…/cosine``, ``…/residual_ratio``,
    ``…/payload_bytes`` and ``…/achieved``.

    Parameters
    ----------
    folder : Path or str
        Is made if it is not there.
    tensors : collection of str, optional
        Names of the tensors that get curves of their own.
    prefix : str, optional
        What names of curves start with.

    Raises
    ------
    GradientError
        If torch or TensorBoard is not installed.
    """

    def __init__(
        self, folder: Path | str, *, tensors: Collection[str] = (), prefix: str = "gradients"
    ) -> None:
        self._writer = _writer(folder)
        self._tensors = frozenset(tensors)
        self._prefix = prefix

    def write(self, metrics: StepMetrics) -> None:
        """Write the figures of a step; those that were not measured get no point."""
        for name, value in metrics.scalars().items():
            self._writer.add_scalar(f"{self._prefix}/{name}", value, metrics.step)
        for tensor in metrics.tensors:
            if tensor.name in self._tensors:
                plain = re.sub(r"[^\w.\-]", "_", tensor.name)  # viewers take "/" for a path
                for name in _FIGURES:
                    value = getattr(tensor, name)
                    if value is not None:
                        tag = f"{self._prefix}/tensors/{plain}/{name}"
                        self._writer.add_scalar(tag, float(value), metrics.step)

    def close(self) -> None:
        """Write out what is still in memory, and close the log."""
        self._writer.close()

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _writer(folder: Path | str) -> Any:
    with needing("torch,tensorboard", GradientError, "this log is written by TensorBoard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(str(folder))
