"""Wrappers around compressors of tensors on a device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, State, Wrapper
from tensorcomp.gradients.cuda.states import to_device
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.wrappers.feedback import FeedbackState
from tensorcomp.gradients.wrappers.momentum import MomentumState


@dataclass(frozen=True)
class _DeviceWrapper(Wrapper):
    """A wrapper for tensors on a device."""

    inner: Compressor
    plain: Any
    device: torch.device

    def text(self) -> str:
        """Return the inner compressor's text."""
        return self.inner.text()

    def init(self, spec: GradientSpec) -> State:
        """Return the state before the first step, on the device."""
        state: State = self.plain.init(spec)
        return to_device(state, self.device)

    def decode(self, payload: Payload) -> Any:
        """Return the gradient of a payload, a tensor of its spec's shape on the device."""
        return self.inner.decode(payload)


@dataclass(frozen=True)
class DeviceFeedback(_DeviceWrapper):
    """The counterpart of `ErrorFeedback`."""

    def before(self, gradient: Any, state: Any) -> Any:
        """Return gradient + decay × residual."""
        residual = state.residual.to(state.spare.dtype)
        if self.plain.decay != 1.0:  # rounded before it is added, as on the host
            residual = residual * self.plain.decay
        torch.add(gradient.reshape(-1), residual, out=state.spare)
        return state.spare.reshape(state.spec.shape)

    def after(self, given: Any, sent: DecodedGradient, state: Any, inner: State) -> FeedbackState:
        """Keep what was given but not sent."""
        left = given.reshape(-1)
        sent.subtract_from(left)
        if state.residual.dtype == left.dtype:
            return FeedbackState(state.spec, inner, left, state.residual)
        return FeedbackState(state.spec, inner, left.to(state.residual.dtype), left)


@dataclass(frozen=True)
class DeviceMomentum(_DeviceWrapper):
    """The counterpart of `MomentumCorrection`."""

    def before(self, gradient: Any, state: Any) -> Any:
        """Return the velocity, or with Nesterov's momentum what it will be."""
        flat = gradient.reshape(-1)
        given = state.spare
        if not bool(flat.any()):
            given.fill_(-0.0)  # what sums that cancel out are not: see `after`
            return given.reshape(state.spec.shape)
        factor, momentum = self._factor(flat), self.plain.momentum
        if self.plain.nesterov:
            factor, momentum = factor * (1 + momentum), momentum * momentum
        scaled = flat * factor if factor != 1.0 else flat
        torch.add(scaled, state.velocity * momentum, out=given)
        return given.reshape(state.spec.shape)

    def _factor(self, flat: torch.Tensor) -> float:
        if self.plain.clip is None:
            return 1.0
        norm = float(torch.linalg.vector_norm(flat.to(torch.float64)))
        limit: float = self.plain.clip / math.sqrt(self.plain.workers)
        return min(1.0, limit / norm)

    def after(self, given: Any, sent: DecodedGradient, state: Any, inner: State) -> MomentumState:
        """Keep the velocity where nothing was sent."""
        velocity = given.reshape(-1)
        still = velocity.numel() > 0 and not bool(velocity.any()) and bool(velocity[0].signbit())
        if still:
            velocity.copy_(state.velocity)
        elif self.plain.nesterov:
            velocity += state.velocity * self.plain.momentum
            velocity /= 1 + self.plain.momentum
        if self.plain.masking and sent.count < velocity.numel():
            sent.clear(velocity)
        return MomentumState(state.spec, inner, velocity, state.velocity)
