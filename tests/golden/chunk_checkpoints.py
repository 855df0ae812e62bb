"""Whole checkpoints with tensors as large as chunks, and what is done with them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from chunk_sources import (
    BF16,
    E5M2,
    FP8,
    codes,
    dead_slices,
    few_values,
    increasing,
    layer,
    noise,
    of_width,
    on_grid,
    runs,
    two_of_four,
    with_extremes,
    with_zero_signs,
    with_zeros,
)
from golden_cases import weights

from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.pruning import Pruning

_BUDGETS = {
    "lossless": None,
    "4 bits": Budget(bits_per_weight=4),
    "20 dB": Budget(min_snr=20),
    "max error": Budget(max_abs_error=2.0**-9),
}
_PRUNED: dict[str, dict[str, Any]] = {
    "magnitude": {"prune": Pruning("magnitude", 0.75)},
    "lowest of rows": {"prune": Pruning("magnitude", 0.6, scope="row")},
    "pattern": {"prune": Pruning("random(7)", granularity="nm(2, 4)", where="*.weight")},
    "rows, 20 dB": {
        "prune": Pruning("magnitude", 0.5, granularity="row", where=["*large*", "*wide*"]),
        "budget": Budget(min_snr=20),
    },
}


def checkpoint_cases() -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """Yield by name which checkpoint is compressed, and the arguments of `compress`."""
    asked = {"mixture": _BUDGETS, "language": dict(list(_BUDGETS.items())[::2])}
    for name, budgets in asked.items():
        for effort in EFFORTS:
            for limit, budget in budgets.items():
                yield f"{name}, {effort}, {limit}", (name, {"effort": effort, "budget": budget})
    for pruning, arguments in _PRUNED.items():
        yield f"language, pruned by {pruning}", ("language", arguments)


def language() -> dict[str, np.ndarray]:
    """Return weights like a language model's, most of them bfloat16, many of them small.

    Their names tell no roles, since factors would be tried, which machines round differently.
    """
    tensors = {"stack.0.large.weight": layer(1100, 1000, BF16)}
    flat = layer(1, 10 << 17, BF16).reshape(-1)
    used = 0

    def take(*shape: int) -> np.ndarray:
        nonlocal used
        used += 7919
        return flat[used : used + int(np.prod(shape))].reshape(shape)

    for number in range(2):
        name = f"stack.{number}"
        for part in range(4):
            tensors[f"{name}.{part}.weight"] = take(192, 192)
            tensors[f"{name}.{part}.lora_A"] = take(4, 192)
            tensors[f"{name}.{part}.lora_B"] = np.zeros((192, 4), BF16)
            tensors[f"{name}.{part}.bias"] = take(192)
        tensors[f"{name}.wide.weight"] = layer(250, 516, BF16)
        tensors[f"{name}.norm.weight"] = (1 + weights(1, 192, number)[0]).astype(np.float32)
        for expert in range(20):
            tensors[f"{name}.experts.{expert}.scale"] = weights(1, 60 + 7 * expert, expert)[0]
    return tensors


def mixture() -> dict[str, np.ndarray]:
    """Return tensors of all dtypes and of all structures that the planner looks for."""
    tensors = {
        "conv.weight": layer(64, 288).reshape(64, 32, 3, 3),
        "conv.bias": layer(1, 2000)[0],
        "linear.weight": layer(100, 515, "f2"),
        "double.weight": layer(40, 515, "f8"),
        "eight.weight": layer(150, 300, FP8),
        "five.weight": layer(100, 300, E5M2),
        "columns.weight": np.ascontiguousarray(layer(300, 200, BF16, 9, 1).T),
        "broken.weight": with_extremes(layer(100, 515)),
        "sparse.weight": with_zeros(layer(100, 600), 900),
        "signed.weight": with_zero_signs(layer(100, 600, BF16), 700),
        "pattern.weight": two_of_four(100, 512, BF16),
        "dead.weight": dead_slices(100, 600, "f4"),
        "fake_quantized.weight": on_grid(150, 768, "f4", 768),
        "grouped.weight": on_grid(100, 768, "f2", 64),
        "clustered.weight": few_values(150, 1000, "f4", 16),
        "codes": codes(100, 999, "i1", 12),
        "unsigned": codes(100, 500, "u1", 20),
        "zero_points": of_width(30_000, "i4", 5).reshape(300, 100),
        "segments": runs(60_000, "i4", 300),
        "positions": increasing(20_000, "i8", 1),
        "mask": of_width(50_000, "u1", 1).astype(np.bool_),
        "ones": np.ones((300, 100), np.float32),
        "noise": noise()[:40_000],
        "complex": layer(50, 200).view(np.complex64),
    }
    for number in range(24):
        tensors[f"block.{number}.steps"] = np.array([number, 1000], np.int64)
        tensors[f"block.{number}.scale"] = layer(24, 90 + number)[number]
    return tensors


CHECKPOINTS = {"language": language, "mixture": mixture}
CHECKPOINT_CASES = dict(checkpoint_cases())
