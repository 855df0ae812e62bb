"""Lossless trees for zeros, on tensors as large as chunks."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from chunk_coding import ChunkCase
from chunk_sources import BF16, FP8, dead_slices, layer, two_of_four, with_zero_signs, with_zeros


def sparse_cases() -> Iterator[tuple[str, ChunkCase]]:
    """Yield the cases by name."""
    for zeros in (10, 300, 500, 700, 900, 990, 999):
        for dtype in ("f4", BF16):
            source = partial(_zeroed, 300, 1025, dtype, zeros)
            mask = "bitpack" if 200 < zeros < 800 else "gaps"
            name = f"{np.dtype(dtype).name}, {zeros / 10} % zeros"
            yield f"sparse: {name}", ChunkCase(f"sparse(mask={mask}, values=floats)", (source,))
    two = partial(_zeroed, 1100, 1000, BF16, 800)
    for tree in (
        "sparse(mask=gaps, values=groupfloats(0, groups=1))",
        "sparse(mask=ans(contexts=16, states=12), values=raw)",
        "sparse(mask=huffman, values=palette)",
    ):
        yield f"{tree}: two chunks", ChunkCase(tree, (two,))
    blocks = partial(dead_slices, 400, 700, "f4")
    yield "sparse: runs", ChunkCase("sparse(mask=runlength, values=floats)", (blocks,))
    for dtype in ("f4", "f2", BF16, "f8", FP8):
        name = np.dtype(dtype).name
        signs = partial(_signed_zeros, 300, 1025, dtype)
        yield f"zeros: {name}", ChunkCase("zeros(values=sparse(mask=gaps, values=raw))", (signs,))
        dead = partial(dead_slices, 400, 700, dtype)
        yield f"live: {name}", ChunkCase("live(values=live(1, values=floats))", (dead,))
        pruned = partial(two_of_four, 300, 1023, dtype)
        yield f"packed: {name}", ChunkCase("packed", (pruned,))
    for dtype in ("f4", "f2", BF16, "f8"):
        large = partial(_outliers, 300, 1025, dtype)
        for inner in ("floats", "uniform(0.002)"):
            name = f"outliers: {np.dtype(dtype).name}, {inner}"
            yield name, ChunkCase(f"outliers(1, values={inner})", (large,))
    yield (
        "outliers: two chunks",
        ChunkCase("outliers(1, values=trellis(0.01))", (partial(_outliers, 1100, 1000, "f4"),)),
    )
    yield "live: two chunks", ChunkCase("live", (partial(dead_slices, 1400, 900, BF16),))
    few = partial(_zeroed, 300, 1000, "f4", 995)
    yield "packed(4, 16): few", ChunkCase("packed(4, 16)", (few,))
    yield "packed(3, 7): few", ChunkCase("packed(3, 7, mask=huffman, values=raw)", (few,))


def _zeroed(rows: int, columns: int, dtype: str | np.dtype, per_thousand: int) -> np.ndarray:
    return with_zeros(layer(rows, columns, dtype), per_thousand)


def _outliers(rows: int, columns: int, dtype: str | np.dtype) -> np.ndarray:
    array = layer(rows, columns, dtype).copy()
    array.reshape(-1)[:: 7919 * 5] = 60_000
    array[rows // 2, ::3] *= 1024
    return array


def _signed_zeros(rows: int, columns: int, dtype: str | np.dtype) -> np.ndarray:
    return with_zero_signs(layer(rows, columns, dtype), 400)
