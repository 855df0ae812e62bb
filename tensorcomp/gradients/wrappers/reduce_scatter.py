"""Reduce-scatter what would be gathered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcomp.gradients.base import Compressor, Reduction
from tensorcomp.gradients.wrappers.base import Outer


@dataclass(frozen=True)
class ReduceScatter(Outer, Compressor):  # type: ignore[override]
    """Reduce-scatter what the inner compressor would gather.

    Each rank owns a shard of the gradient, is sent everybody's payload of that shard, and sends
    their mean, compressed again, to all. Of payloads of S bytes a rank sends 2 (W − 1) / W · S
    bytes instead of the (W − 1) · S of an all-gather: it pays from three ranks on, where bandwidth
    counts more than the latency of three exchanges instead of one. What the second compression
    leaves out is in the residual of the shard's owner.

    Parameters
    ----------
    inner : Compressor
        What is summed on the way, dense gradients for one, is summed still.

    References
    ----------
    Li & Hoefler 2022, "Near-optimal sparse allreduce for distributed deep learning" (Ok-Topk); Tang
    et al. 2019, "DoubleSqueeze: parallel stochastic gradient descent with double-pass error-
    compensated compression".
    """

    id: ClassVar[str] = "owners"
    inner: Compressor

    @property
    def reduction(self) -> Reduction:  # type: ignore[override]
        """``"reduce_scatter"`` for what would be gathered."""
        inner = self.inner.reduction
        return "reduce_scatter" if inner == "gather" else inner

    def text(self) -> str:
        """Return ``owners(...)`` around the inner compressor's text."""
        return f"owners({self.inner.text()})"
