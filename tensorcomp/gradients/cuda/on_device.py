"""Run compressors on torch tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, State
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.cuda.blobs import receive_on
from tensorcomp.gradients.payload.arrays import move
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.wrappers.base import Outer, chain, leaf_of


@dataclass(frozen=True)
class OnDevice(Outer, Compressor):  # type: ignore[override]
    """Run a compressor on tensors of a device, its state among them.

    Parameters
    ----------
    inner : Compressor
        Takes tensors as well as arrays (`Compressor.takes_tensors`).
    device : torch.device
    """

    inner: Compressor
    device: torch.device

    def init(self, spec: GradientSpec) -> State:
        """Return the state before the first step, on the device."""
        return move(self.inner.init(spec), self.device)

    def receive(self, payload: Payload) -> DecodedGradient:
        """Decode a payload to tensors on the device."""
        leaf = leaf_of(self.inner)
        if isinstance(leaf, TreeCompressor):
            return receive_on(leaf.tree, payload, self.device)
        return move(self.inner.receive(payload), self.device)

    def decode(self, payload: Payload) -> Any:
        """Decode a payload to a tensor of its spec's shape on the device."""
        spec = payload.spec
        dtype = torch.float64 if spec.dtype.itemsize == 8 else torch.float32
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
