"""Seconds of encoding and decoding all gradients of a ResNet-18 on one core, beside `torch.topk`.

Gradients are those of real backward passes. The residual is added and kept, as in training. What is
summed on the way has all its phases, both ways, in the first column.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.common.reporting import Columns, Limit, Sheet, number
from benchmarks.gradients.network import resnet18
from benchmarks.gradients.ways import TOP_K, TOP_K_SHARE
from tensorcomp.gradients.base import Compressor, GradientSpec, Payload, State, StepInfo
from tensorcomp.gradients.text import parse_compressor

TORCH = "torch.topk of 1 %, no coding"
COMPRESSORS = (
    TOP_K,
    "topk(0.001, values=affine(8), indices=gaps)",
    "sampled_threshold(0.01)",
    "randomk(0.01)",
    "sign",
    "int8",
    "int4",
    "fp16",
    "qsgd(4)",
    "powersgd(4)",
)
MILLISECONDS = 40.0
WARM = 2  # rounds in which kernels are compiled and memory is touched

_BATCH = 8
_BACKWARD_PASSES = 3
_SMALL = 4096  # elements below which tensors are coalesced, as in training


@dataclass(frozen=True)
class SpeedRow:
    """Medians of seconds on one core for all gradients; bits of payload an element."""

    compressor: str
    tensors: str
    elements: int
    encode: float
    decode: float = math.nan
    bits: float = math.nan


def gradients() -> list[dict[str, np.ndarray]]:
    """Return the gradients of some backward passes, by parameter."""
    torch.manual_seed(0)
    model = resnet18(10)
    found = []
    for _ in range(_BACKWARD_PASSES):
        model.zero_grad()
        images, labels = torch.randn(_BATCH, 3, 32, 32), torch.randint(0, 10, (_BATCH,))
        nn.functional.cross_entropy(model(images), labels).backward()
        found.append(
            {
                name: parameter.grad.numpy().copy()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
        )
    return found


def as_one(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return all gradients as one vector."""
    return {"all": np.concatenate([tensor.reshape(-1) for tensor in tensors.values()])}


def by_tensor(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return gradients by tensor, the small ones as one vector."""
    small = [t.reshape(-1) for t in tensors.values() if t.size < _SMALL]
    large = {name: t for name, t in tensors.items() if t.size >= _SMALL}
    return {**large, "small": np.concatenate(small)}


def speed_rows(rounds: int) -> list[SpeedRow]:
    """Measure every compressor, once by tensor and once as one vector."""
    torch.set_num_threads(1)
    taken = gradients()
    rows = [_topk_row([as_one(step)["all"] for step in taken], rounds)]
    for label, arranged in (("one vector", as_one), ("by tensor", by_tensor)):
        given = [arranged(step) for step in taken]
        rows += [_row(text, label, given, rounds) for text in COMPRESSORS]
    return rows


def _topk_row(given: Sequence[np.ndarray], rounds: int) -> SpeedRow:
    seconds = []
    for turn in range(rounds):
        values = torch.from_numpy(given[turn % len(given)])
        begin = time.perf_counter()
        torch.topk(values.abs(), round(TOP_K_SHARE * values.numel()), sorted=False)
        seconds.append(time.perf_counter() - begin)
    return SpeedRow(TORCH, "one vector", given[0].size, median(seconds))


@dataclass
class Course:
    """A compressor on its way through some steps: its states, and what it took."""

    compressors: dict[str, Compressor]
    specs: dict[str, GradientSpec]
    states: dict[str, State]
    encode: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def step(self, gradients: Mapping[str, np.ndarray], out: np.ndarray) -> None:
        """Do one step."""
        sent: dict[str, Payload] = {}
        size = 0
        begin = time.perf_counter()
        for name, gradient in gradients.items():
            if self.compressors[name].reduction == "sum":
                nbytes, self.states[name] = summed_alone(
                    self.compressors[name], gradient, self.states[name]
                )
                size += nbytes
            else:
                step = self.compressors[name].step
                sent[name], self.states[name] = step(gradient, self.states[name])
        between = time.perf_counter()
        for name, payload in sent.items():
            received = Payload(payload.data, payload.spec)
            part = out[: self.specs[name].size]
            self.compressors[name].receive(received).add_to(part, 0.5)
        self.decode.append(time.perf_counter() - between)
        self.encode.append(between - begin)
        self.sizes.append(size + sum(len(payload.data) for payload in sent.values()))


def summed_alone(compressor: Compressor, gradient: Any, state: State) -> tuple[int, State]:
    """Do all phases of a tensor as the only worker; return the bytes summed and the state."""
    phases = compressor.phases(gradient, state)
    size = 0
    array = next(phases)
    while True:
        size += array.nbytes
        try:
            array = phases.send(array)
        except StopIteration as end:
            return size, end.value[2]


def _row(text: str, label: str, given: Sequence[Mapping[str, np.ndarray]], rounds: int) -> SpeedRow:
    recipe = parse_compressor(text)
    specs = {name: GradientSpec(name, array.shape) for name, array in given[0].items()}
    compressors = {name: recipe.at(StepInfo(), spec) for name, spec in specs.items()}
    states = {name: compressors[name].init(spec) for name, spec in specs.items()}
    course = Course(compressors, specs, states)
    out = np.zeros(max(spec.size for spec in specs.values()), np.float32)
    for turn in range(-WARM, rounds):
        course.step(given[turn % len(given)], out)
    encode, decode, sizes = course.encode[WARM:], course.decode[WARM:], course.sizes[WARM:]
    elements = sum(spec.size for spec in specs.values())
    bits = 8 * median(sizes) / elements
    return SpeedRow(text, label, elements, median(encode), median(decode), bits)


def speed_sheet(rows: Sequence[SpeedRow]) -> Sheet:
    """Tabulate milliseconds."""
    count = rows[0].elements / 1e6 if rows else 0.0
    title = f"Encoding and decoding {count:.1f} M fp32 gradients on one core"
    columns: Columns = {
        "compressor": lambda row: row.compressor,
        "given": lambda row: row.tensors,
        "encode, ms": lambda row: number(1e3 * row.encode, 1),
        "decode, ms": lambda row: number(1e3 * row.decode, 1),
        "both, ms": lambda row: number(1e3 * (row.encode + row.decode), 1),
        "bits an element": lambda row: number(row.bits, 3),
    }
    return Sheet.of(title, rows, columns)


def speed_limits(rows: Sequence[SpeedRow]) -> list[Limit]:
    """Judge top-k 1 %."""
    return [
        Limit(
            f"{TOP_K}, {row.tensors}: ms both ways", 1e3 * (row.encode + row.decode), MILLISECONDS
        )
        for row in rows
        if row.compressor == TOP_K
    ]
