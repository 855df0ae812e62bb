"""Compressors of tensors on a device, without wrappers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, Reduction, State
from tensorcomp.gradients.compressors.draws import shared_key
from tensorcomp.gradients.cuda.blobs import device_blob, receive_on
from tensorcomp.gradients.cuda.decoded import DenseTensor, SparseTensor, sent_on
from tensorcomp.gradients.cuda.states import to_device, to_host
from tensorcomp.gradients.cuda.transforms import drawn_positions, host
from tensorcomp.gradients.payload.decoded import DecodedGradient


@dataclass(frozen=True)
class OnDevice(Compressor):
    """A compressor without wrappers, for tensors on a device.

    Parameters
    ----------
    plain : Compressor
        The one for arrays on the host.
    device : torch.device
    """

    plain: Any
    device: torch.device

    @property
    def reduction(self) -> Reduction:  # type: ignore[override]
        """That of the plain compressor."""
        found: Reduction = self.plain.reduction
        return found

    @property
    def unbiased(self) -> bool:  # type: ignore[override]
        """That of the plain compressor."""
        return bool(self.plain.unbiased)

    def text(self) -> str:
        """Return the plain compressor's text: they read each other's payloads."""
        found: str = self.plain.text()
        return found

    def init(self, spec: GradientSpec) -> State:
        """Return the state before the first step, on the device."""
        state: State = self.plain.init(spec)
        return to_device(state, self.device)

    def step(self, gradient: Any, state: Any) -> tuple[Payload, State]:
        """Compress on the host, which is where the plain compressor works."""
        payload, following = self.plain.step(host(gradient), to_host(state))
        sent = None if payload.decoded is None else sent_on(payload.decoded, self.device)
        return replace(payload, decoded=sent), to_device(following, self.device)

    def receive(self, payload: Payload) -> DecodedGradient:
        """Return what a payload decodes to, on the device."""
        return sent_on(self.plain.receive(payload), self.device)

    def decode(self, payload: Payload) -> Any:
        """Return the gradient of a payload, a tensor of its spec's shape on the device."""
        spec = payload.spec
        dtype = torch.float64 if spec.dtype == np.float64 else torch.float32
        out = torch.zeros(spec.size, dtype=dtype, device=self.device)
        self.receive(payload).add_to(out, 1.0)  # type: ignore[arg-type]
        return out.reshape(spec.shape)


@dataclass(frozen=True)
class DeviceTree(OnDevice):
    """The counterpart of `TreeCompressor`."""

    def step(self, gradient: Any, state: Any) -> tuple[Payload, State]:
        """Compress a tensor where it is."""
        return device_blob(self.plain.tree, gradient, state.spec), state

    def receive(self, payload: Payload) -> DecodedGradient:
        """Return what a payload decodes to, on the device."""
        return receive_on(self.plain.tree, payload, self.device)


@dataclass(frozen=True)
class DeviceDense(OnDevice):
    """The counterpart of `Dense`."""

    def phases(self, gradient: Any, state: Any) -> Any:
        """Yield the gradient."""
        mean = yield gradient
        return mean, DenseTensor(gradient.reshape(-1)), state


@dataclass(frozen=True)
class DeviceRandomK(OnDevice):
    """The counterpart of `RandomK`."""

    def phases(self, gradient: Any, state: Any) -> Any:
        """Yield the values of the drawn elements (k,)."""
        size = gradient.numel()
        count = self.plain.kept(size)
        key = int(shared_key(state.spec, self.plain.seed, state.count))
        positions, _ = drawn_positions(key, size, count, gradient.device)
        values = gradient.reshape(-1)[positions]
        if self.plain.scale:
            values = values * (size / max(count, 1))
        averaged = yield values.clone()
        mean = torch.zeros_like(gradient)
        mean.view(-1)[positions] = averaged
        return mean, SparseTensor(positions, values), replace(state, count=state.count + 1)


@dataclass(frozen=True)
class DevicePowerSgd(OnDevice):
    """The counterpart of `PowerSgd`.

    Products are those of the device's own library, whose sums have an order of their own; factors,
    of r columns, go to the host to be made orthonormal.
    """

    def phases(self, gradient: Any, state: Any) -> Any:
        """Yield M·Q (m, r), then Mᵀ·P (p, r)."""
        if not state.right.numel():
            mean = yield gradient
            return mean, DenseTensor(gradient.reshape(-1)), state
        matrix = gradient.reshape(gradient.shape[0], -1)
        product = yield matrix @ state.right
        exact = self.plain.orthonormal_left(host(product.reshape(matrix.shape[0], -1)), state)
        left = torch.from_numpy(exact).to(gradient.device)
        own = matrix.T @ left
        right = (yield own.clone()).reshape(own.shape)
        sent = DenseTensor((left @ own.T).reshape(-1))
        following = self.plain.following(to_host(state), host(right))
        mean = (left @ right.T).reshape(gradient.shape)
        return mean, sent, to_device(following, gradient.device)
