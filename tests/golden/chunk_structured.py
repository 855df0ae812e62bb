"""Lossless trees for few values, grids and runs, on tensors as large as chunks."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from chunk_coding import ChunkCase
from chunk_sources import (
    BF16,
    FP8,
    counts,
    few_values,
    increasing,
    on_grid,
    random_words,
    runs,
    with_zero_signs,
)


def structured_cases() -> Iterator[tuple[str, ChunkCase]]:
    """Yield lossless cases of data that are no ordinary weights or integers."""
    for dtype, power in (("i8", 1), ("i8", 5), ("i4", 2), ("u4", 3), ("u8", 8)):
        source = partial(increasing, 150_000, dtype, power)
        yield f"gaps: {dtype}, gaps to the power of {power}", ChunkCase("gaps", (source,))
    yield "gaps: two chunks", ChunkCase("gaps", (partial(increasing, 1_100_000, "i4", 1),))
    for dtype in ("u1", "i2", "i4", "u8", "f4"):
        for longest in (8, 400, 100_000):
            source = partial(runs, 300_000, dtype, longest)
            yield f"runlength: {dtype}, up to {longest}", ChunkCase("runlength", (source,))
    for dtype in ("f4", "f8", "f2", BF16):
        name = np.dtype(dtype).name
        for group in (0, 32, 64, 128, 768):
            source = partial(on_grid, 200, 768, dtype, group)
            yield f"grid: {name}, steps of {group}", ChunkCase("grid", (source,))
        source = partial(on_grid, 1400, 768, dtype, 768)
        yield f"grid(8): {name}, two chunks", ChunkCase("grid(8, codes=huffman)", (source,))
        dead = partial(_dead_grid, 100, 768, dtype)
        yield f"grid: {name}, rows of zeros", ChunkCase("grid", (dead,))
        signed = partial(_signed_grid, 100, 768, dtype)
        yield f"grid: {name}, signs of zeros", ChunkCase("grid", (signed,))
    for dtype, count in (
        ("f4", 2), ("f4", 30), ("f4", 3000), ("f4", 60_000), ("f8", 5000), ("f2", 200),
        (BF16, 90), ("i4", 700), ("i8", 50_000), ("u2", 5000), ("u1", 150), (FP8, 60),
    ):  # fmt: skip
        source = partial(few_values, 301, 1000, dtype, count)
        name = f"{count} values of {np.dtype(dtype).name}"
        yield f"palette: {name}", ChunkCase("palette", (source,))
    yield (
        "palette: two chunks",
        ChunkCase(
            "palette(table=raw(bytes=zstd), codes=huffman(contexts=8))",
            (partial(few_values, 1100, 1000, "f4", 100),),
        ),
    )
    yield (
        "constant: all sizes",
        ChunkCase(
            "constant",
            tuple(
                lambda dtype=dtype: np.full((1100, 1000), 7, dtype)
                for dtype in ("u1", "i2", "f4", "i8")
            ),
        ),
    )
    yield "raw: random", ChunkCase("raw", (partial(random_words, 300, 1000, "f4"),))
    for level in (1, 3, 15):
        source = partial(counts, 100_000, "i4")
        yield f"zstd({level}): counts", ChunkCase(f"raw(bytes=zstd(level={level}))", (source,))


def _dead_grid(rows: int, columns: int, dtype: str | np.dtype) -> np.ndarray:
    array = on_grid(rows, columns, dtype, columns)
    array[:3] = array[7::5] = 0
    return array


def _signed_grid(rows: int, columns: int, dtype: str | np.dtype) -> np.ndarray:
    return with_zero_signs(on_grid(rows, columns, dtype, columns), 300)
