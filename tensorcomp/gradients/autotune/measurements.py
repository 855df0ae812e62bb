"""What a rank measures of its link, its speed and its gradients, as bytes for the others."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.autotune.link_estimate import LinkEstimate
from tensorcomp.gradients.base import Compressor, GradientSpec
from tensorcomp.gradients.cost_model.model import Link

_MEGABYTE = 1e6
SAMPLE = 1 << 16  # elements of a tensor that are coded to measure it
SMALLEST = 4096  # elements of a tensor that is worth it
_JOINED = 1 << 19  # elements of samples that are coded at once, to tell speed from single calls
_ROW = 512


@dataclass(frozen=True)
class Trial:
    """A candidate's payload of a tensor.

    Parameters
    ----------
    nbytes : float
        Of all that a rank gives to a collective, for the whole tensor.
    error : float
        ‖g − ĝ‖₂ / ‖g‖₂ of what it decodes to.
    """

    nbytes: float
    error: float


@dataclass(frozen=True)
class Speed:
    """How long a tensor takes to code.

    Parameters
    ----------
    call : float
        Seconds of a tensor without elements.
    per_megabyte : float
        Seconds for 10⁶ bytes of its gradient.
    """

    call: float = 0.0
    per_megabyte: float = 0.0

    def seconds(self, nbytes: float, pieces: int = 1) -> float:
        """Return the seconds of a gradient of so many bytes, coded in so many pieces."""
        return self.call * pieces + self.per_megabyte * nbytes / _MEGABYTE

    @classmethod
    def of(cls, timed: Iterable[tuple[float, float]]) -> Speed:
        """Return what pairs of bytes and seconds tell."""
        law = LinkEstimate(half_life=math.inf)  # the law is the same
        for nbytes, seconds in timed:
            law = law.observe(nbytes, seconds)
        found = law.link()
        if found is None:
            return cls()
        return cls(found.latency, _MEGABYTE / found.bandwidth)


@dataclass(frozen=True)
class Measurement:
    """What a rank measured.

    Parameters
    ----------
    bandwidth : float
        Bytes per second of its link.
    latency : float
        Seconds of a message.
    encode, decode : mapping of str to Speed
        By a candidate's text.
    trials : mapping of str to mapping of str to Trial
        By a candidate's text, then by parameter.
    age : int
        How many measurements of the link ago speeds and trials were measured.
    """

    bandwidth: float
    latency: float = 0.0
    encode: Mapping[str, Speed] = field(default_factory=dict)
    decode: Mapping[str, Speed] = field(default_factory=dict)
    trials: Mapping[str, Mapping[str, Trial]] = field(default_factory=dict)
    age: int = 0

    @property
    def link(self) -> Link:
        """Its link."""
        return Link(self.bandwidth, self.latency)

    def on(self, link: Link) -> Measurement:
        """Return the same speeds and trials on a link that was measured anew."""
        return replace(self, bandwidth=link.bandwidth, latency=link.latency, age=self.age + 1)

    def to_bytes(self) -> bytes:
        """Return it as JSON."""
        value = {
            "bandwidth": None if math.isinf(self.bandwidth) else self.bandwidth,
            "latency": self.latency,
            "encode": {t: [s.call, s.per_megabyte] for t, s in self.encode.items()},
            "decode": {t: [s.call, s.per_megabyte] for t, s in self.decode.items()},
            "trials": {
                text: {name: [trial.nbytes, trial.error] for name, trial in found.items()}
                for text, found in self.trials.items()
            },
            "age": self.age,
        }
        return json.dumps(value, allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Measurement:
        """Return what `to_bytes` made bytes of.

        Raises
        ------
        GradientError
            If they are no such bytes.
        """
        try:
            value = json.loads(data)
            bandwidth = value["bandwidth"]
            found = cls(
                bandwidth=math.inf if bandwidth is None else _figure(bandwidth),
                latency=_figure(value["latency"]),
                encode=_speeds(value["encode"]),
                decode=_speeds(value["decode"]),
                trials={
                    text: {name: Trial(*map(_figure, pair)) for name, pair in trials.items()}
                    for text, trials in value["trials"].items()
                },
                age=int(_figure(value["age"])),
            )
            _ = found.link  # one that cannot be is refused
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise GradientError(f"{len(data)} bytes are no measurement of a rank") from error
        return found


def _figure(value: Any) -> float:
    number = float(value)
    if isinstance(value, (bool, str)) or not 0 <= number < math.inf:
        raise ValueError
    return number


def _speeds(values: Mapping[str, Any]) -> dict[str, Speed]:
    return {text: Speed(*map(_figure, pair)) for text, pair in values.items()}


def measure(
    candidates: Mapping[str, Compressor],
    gradients: Iterable[tuple[GradientSpec, np.ndarray]],
    link: Link,
    *,
    sample: int = SAMPLE,
) -> Measurement:
    """Code some of each gradient by every candidate.

    Parameters
    ----------
    candidates : mapping of str to Compressor
        By text; concrete ones, see `Compressor.at`.
    gradients : iterable of (GradientSpec, numpy.ndarray)
        Tensors of less than 4,096 elements, and those with NaN or Inf, are passed over.
    link : Link
        As this rank sees it.
    sample : int
        Elements of a tensor that are coded at most: whole rows where a row is not longer.

    Returns
    -------
    Measurement
    """
    large = ((spec, gradient) for spec, gradient in gradients if spec.size >= SMALLEST)
    parts = [(spec, *_sampled(spec, gradient, sample)) for spec, gradient in large]
    parts = [(spec, part, some) for spec, part, some in parts if np.isfinite(part).all()]
    joined = _together(parts)
    encode, decode, trials = {}, {}, {}
    for text, candidate in candidates.items():
        found: dict[str, Trial] = {}
        encoded, decoded = [], []
        for part, some in joined:
            _tried(candidate, part[:8], replace(some, shape=part[:8].shape))  # loads kernels
            _, *timed = _tried(candidate, part, some)
            encoded.append((some.nbytes, timed[0]))
            decoded.append((some.nbytes, timed[1]))
        for spec, part, some in parts:
            trial, encoding, decoding = _tried(candidate, part, some)
            found[spec.name] = Trial(trial.nbytes * spec.size / some.size, trial.error)
            encoded.append((some.nbytes, encoding))
            decoded.append((some.nbytes, decoding))
        trials[text], encode[text], decode[text] = found, Speed.of(encoded), Speed.of(decoded)
    return Measurement(link.bandwidth, link.latency, encode, decode, trials)


def _sampled(
    spec: GradientSpec, gradient: np.ndarray, sample: int
) -> tuple[np.ndarray, GradientSpec]:
    """Return some elements of a gradient and their spec."""
    if spec.size > sample:
        row = spec.size // spec.shape[0]
        whole = row <= sample
        gradient = gradient[: sample // row] if whole else gradient.reshape(-1)[:sample]
    part = np.ascontiguousarray(gradient, spec.dtype)
    return part, GradientSpec(spec.name, part.shape, spec.dtype, spec.role, spec.worker)


def _together(
    parts: Iterable[tuple[GradientSpec, np.ndarray, GradientSpec]],
) -> list[tuple[np.ndarray, GradientSpec]]:
    """Return all samples as one matrix and its spec, if there are any."""
    flat = [part.reshape(-1) for _, part, _ in parts]
    if not flat:
        return []
    whole = np.concatenate(flat)[:_JOINED]
    matrix = whole[: whole.size // _ROW * _ROW].reshape(-1, _ROW)
    return [(matrix, GradientSpec("samples", matrix.shape, matrix.dtype))]


def _tried(
    candidate: Compressor, part: np.ndarray, spec: GradientSpec
) -> tuple[Trial, float, float]:
    """Return a candidate's payload of an array, and the seconds of encoding and decoding it."""
    state = candidate.init(spec)
    begun = time.perf_counter()
    if candidate.reduction == "sum":
        phases = candidate.phases(part, state)
        nbytes, decoded = 0, part
        try:
            array = next(phases)
            while True:
                nbytes += array.nbytes
                array = phases.send(array)
        except StopIteration as done:
            decoded = done.value[0]
        encoded = received = time.perf_counter()
    else:
        payload, _ = candidate.step(part, state)
        encoded = time.perf_counter()
        decoded = candidate.decode(payload)
        received = time.perf_counter()
        nbytes = len(payload.data)
    norm = float(np.linalg.norm(part.reshape(-1)))
    lost = float(np.linalg.norm(part.reshape(-1) - decoded.reshape(-1)))
    error = lost / norm if norm else 0.0
    return Trial(float(nbytes), error), encoded - begun, received - encoded
