"""Run compressors on torch tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensorcomp.gradients.base import (
    Compressor,
    GradientSpec,
    Payload,
    Phases,
    Reduction,
    State,
    chain,
    leaf_of,
)
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.cuda.blobs import receive_on
from tensorcomp.gradients.payload.arrays import move
from tensorcomp.gradients.payload.decoded import DecodedGradient


@dataclass(frozen=True)
class OnDevice(Compressor):
    """Run a compressor on tensors of a device, its state among them.

    Parameters
    ----------
    plain : Compressor
        Takes tensors as well as arrays (`Compressor.takes_tensors`).
    device : torch.device
    """

    plain: Compressor
    device: torch.device

    @property
    def reduction(self) -> Reduction:  # type: ignore[override]
        """The plain compressor's."""
        return self.plain.reduction

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        """The plain compressor's."""
        return self.plain.unbiased

    def text(self) -> str:
        """Return the plain compressor's text: they read each other's payloads."""
        return self.plain.text()

    def init(self, spec: GradientSpec) -> State:
        """Return the state before the first step, on the device."""
        return move(self.plain.init(spec), self.device)

    def step(self, gradient: Any, state: State) -> tuple[Payload, State]:
        """Compress a tensor."""
        return self.plain.step(gradient, state)

    def phases(self, gradient: Any, state: State) -> Phases:
        """Compress a tensor for reduction by sum."""
        return self.plain.phases(gradient, state)

    def receive(self, payload: Payload) -> DecodedGradient:
        """Decode a payload to tensors on the device."""
        leaf = leaf_of(self.plain)
        if isinstance(leaf, TreeCompressor):
            return receive_on(leaf.tree, payload, self.device)
        return move(self.plain.receive(payload), self.device)

    def decode(self, payload: Payload) -> Any:
        """Decode a payload to a tensor of its spec's shape on the device."""
        spec = payload.spec
        dtype = torch.float64 if spec.dtype == np.float64 else torch.float32
        out = torch.zeros(spec.size, dtype=dtype, device=self.device)
        self.receive(payload).add_to(out, 1.0)
        return out.reshape(spec.shape)


def on_device(compressor: Compressor, device: torch.device | str) -> OnDevice | None:
    """Return a compressor for tensors on a device, or None.

    Parameters
    ----------
    compressor : Compressor
        Concrete: from `Compressor.at`.
    device : torch.device or str

    Returns
    -------
    OnDevice or None
        None if gradients must go to the host: its root is not computed on devices, or it or one of
        its wrappers takes arrays only.
    """
    if not all(one.takes_tensors for one in chain(compressor)):
        return None
    return OnDevice(compressor, torch.device(device))
