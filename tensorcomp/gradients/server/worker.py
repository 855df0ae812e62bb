"""Compress gradients of a worker to messages, without a process group."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp._names import clean_name, clean_names
from tensorcomp.codecs.rounding import is_real
from tensorcomp.dtypes import dtype_name, numpy_dtype
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, State, StepInfo
from tensorcomp.gradients.payload.arrays import floats
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.payload.states import carry, flatten, reading_saved, unflatten
from tensorcomp.gradients.server.message import Message
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.feedback import FeedbackState
from tensorcomp.planning.roles.classify import classify

SERVER = -1  # the number of whoever answers workers


@dataclass(frozen=True)
class _Held:
    """Hold the state of a tensor, and the compressor and step that it came from."""

    compressor: Compressor
    state: State
    info: StepInfo


class WorkerCompression:
    """Compress one worker's gradients to messages; keep states by name.

    Parameters
    ----------
    compressor : Compressor or str
        A text is parsed by `parse_compressor`: error feedback is on where it is needed.
    worker : int, optional
        The number of the worker.
    weight : float, optional
        What its gradients count for in a mean: its part of the samples, say.

    Attributes
    ----------
    step : int
        Of the next message.

    Raises
    ------
    GradientError
        If the text cannot be parsed, or the weight is not above 0.

    Examples
    --------
    >>> worker = WorkerCompression("topk(0.125)")
    >>> gradient = np.array([0.5] * 14 + [-8.0, 2.0], np.float32)
    >>> Message.from_bytes(worker.compress({"w": gradient})).arrays()["w"][-3:].tolist()
    [0.0, -8.0, 2.0]
    """

    def __init__(
        self, compressor: Compressor | str, *, worker: int = 0, weight: float = 1.0
    ) -> None:
        if isinstance(compressor, str):
            compressor = parse_compressor(compressor)
        self.compressor = compressor
        self.worker = worker
        self.weight = checked_weight(weight)
        self.step = 0
        self._held: dict[str, _Held] = {}

    def compress(
        self,
        gradients: Mapping[str, Any],
        *,
        info: StepInfo | None = None,
        weight: float | None = None,
    ) -> bytes:
        """Return the message of a step; states become those after it.

        Parameters
        ----------
        gradients : mapping of str to array
            By parameter, NumPy's or torch's. Floats; shorter ones than float32 are widened. A
            parameter that is not there keeps its state, and is left out of the mean at this step.
        info : StepInfo, optional
            Where it is not known from the count of messages.
        weight : float, optional
            Of this message, if not the worker's.

        Raises
        ------
        GradientError
            If an array holds no floats, or a value that is not finite, or has another shape than
            before. States then are as they were.
        """
        info = StepInfo(self.step) if info is None else info
        weight = self.weight if weight is None else checked_weight(weight)
        payloads: dict[str, Payload] = {}
        held: dict[str, _Held] = {}
        texts: dict[str, str] = {}
        for name, clean in clean_names(gradients).items():
            array = _floats(name, gradients[name])
            now = self._at(clean, array, info)
            payload, state = now.compressor.step(array, now.state)
            payloads[name] = replace(payload, decoded=None)
            texts[name] = now.compressor.text()
            held[clean] = replace(now, state=state)
        data = Message(info.step, self.worker, weight, payloads, texts).to_bytes()
        self._held |= held
        self.step = info.step + 1
        return data

    def _at(self, name: str, array: np.ndarray, info: StepInfo) -> _Held:
        """Return a tensor's compressor at a step, and its state before that."""
        before = self._held.get(name)
        if before is None:
            return self._fresh(name, array.shape, array.dtype, info)
        spec = before.state.spec
        if (spec.shape, spec.dtype) != (array.shape, array.dtype):
            raise GradientError(
                f"the gradient of {name!r} is {array.dtype} {array.shape}, but was "
                f"{spec.dtype} {spec.shape}; give another parameter another name"
            )
        compressor = self.compressor.at(info, spec)
        same = compressor == before.compressor
        return _Held(compressor, before.state if same else carry(compressor, before.state), info)

    def _fresh(self, name: str, shape: tuple[int, ...], dtype: np.dtype, info: StepInfo) -> _Held:
        """Return a tensor's compressor at a step, and its state before the first."""
        role = classify(name, dtype_name(dtype), shape)
        spec = GradientSpec(name, shape, dtype, role, self.worker)
        compressor = self.compressor.at(info, spec)
        return _Held(compressor, compressor.init(spec), info)

    def take_back(self, data: bytes) -> None:
        """Add a message that was lost or refused back to this worker's residuals.

        Parameters
        ----------
        data : bytes
            From `compress`, of any earlier step.

        Raises
        ------
        CodecError
            If it is damaged.
        GradientError
            If it is another worker's, or a compressor has no error feedback.
        """
        message = Message.from_bytes(data)
        if message.worker != self.worker:
            raise GradientError(
                f"a message of worker {message.worker} cannot be taken back by {self.worker}"
            )
        held: dict[str, _Held] = {}
        for name, sent in message.decoded().items():
            clean = name if name in self._held else clean_name(name)
            before = self._held.get(clean)
            if before is None:
                raise GradientError(f"no gradient of {name!r} was sent since states were loaded")
            held[clean] = replace(before, state=_with_residual(before.state, sent))
        self._held |= held

    def state_dict(self) -> dict[str, Any]:
        """Return the state as nested dictionaries of copied arrays and numbers.

        `load_state_dict` of a worker with the same compressor then goes on bit for bit.
        """
        return {
            "step": self.step,
            "worker": self.worker,
            "tensors": {
                name: {
                    "shape": list(one.state.spec.shape),
                    "dtype": dtype_name(one.state.spec.dtype),
                    "step": one.info.step,
                    "phase": one.info.phase,
                    "choice": one.info.choices.get(name, ""),
                    "state": copy.deepcopy(flatten(one.state)),
                }
                for name, one in self._held.items()
            },
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take a state from `state_dict`.

        Raises
        ------
        GradientError
            If it is damaged, or that of another compressor.
        """
        with reading_saved():
            tensors = saved["tensors"]
            names = clean_names(tensors)
            held = {names[name]: self._restored(names[name], one) for name, one in tensors.items()}
            self.step, self._held = saved_step(saved["step"]), held

    def _restored(self, name: str, one: Mapping[str, Any]) -> _Held:
        dtype = numpy_dtype(one["dtype"])
        if dtype is None or not is_real(dtype):
            raise GradientError(f"the saved state of {name!r} is of type {shown(one['dtype'])}")
        choices = {name: one["choice"]} if one["choice"] else {}
        info = StepInfo(saved_step(one["step"]), one["phase"], choices)
        shape = tuple(int(axis) for axis in one["shape"])
        for key, value in one["state"].items():  # before so much is allocated
            if key.endswith("residual") and np.size(value) != math.prod(shape):
                raise GradientError(f"the saved state of {name!r} is of another shape than {shape}")
        fresh = self._fresh(name, shape, dtype, info)
        unlike = sorted(set(flatten(fresh.state)) ^ set(one["state"]))
        if unlike:
            raise GradientError(
                f"the saved state of {name!r} is another compressor's than "
                f"{fresh.compressor.text()}: only one of them has {unlike[0]!r}"
            )
        return replace(fresh, state=unflatten(fresh.state, copy.deepcopy(one["state"])))


def checked_weight(weight: float, who: str = "") -> float:
    """Return a weight in a mean; refuse one that is not above 0 and finite."""
    if not 0 < weight < math.inf:
        raise GradientError(f"{who}expected a finite weight above 0, got {weight!r}")
    return float(weight)


def saved_step(value: Any) -> int:
    """Return the step of a saved state; refuse one that no message holds."""
    step = int(value)
    if not 0 <= step < 1 << 63:
        raise ValueError(f"expected a step from 0 to 2**63 - 1, got {step}")
    return step


def _floats(name: str, values: Any) -> np.ndarray:
    """Return a gradient in the type that it is coded in; refuse what is not finite."""
    array = floats(name, values)
    if not np.isfinite(array).all():
        count = array.size - int(np.count_nonzero(np.isfinite(array)))
        raise GradientError(
            f"{count:,} values of the gradient of {name!r} are not finite; skip this step: "
            "nothing was sent, states are as they were"
        )
    return array


def _with_residual(state: State, sent: DecodedGradient) -> State:
    """Return a state with what was sent added to its residual."""
    if isinstance(state, FeedbackState):
        wide = state.residual.astype(state.spec.dtype)
        sent.add_to(wide, 1.0)
        return replace(state, residual=wide.astype(state.residual.dtype, copy=False))
    inner = getattr(state, "inner", None)
    if inner is None:
        raise GradientError(
            f"what was sent of {state.spec.name!r} cannot be taken back: its compressor has no "
            "error feedback"
        )
    return replace(state, inner=_with_residual(inner, sent))  # type: ignore[call-arg]
