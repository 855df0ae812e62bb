"""Trees that lose something, on tensors as large as chunks."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from chunk_coding import ChunkCase, Source, cases_of
from chunk_sources import (
    BF16,
    FP8,
    few_values,
    few_vectors,
    layer,
    two_scales,
    wide_scales,
    with_zeros,
)

FP32_STEP, FP32_FINE = 2.0**-10, 2.0**-17


def _sources() -> dict[str, Source]:
    return {
        "fp32": partial(layer, 300, 1025),
        "bf16": partial(layer, 300, 1000, BF16),
        "fp16": partial(layer, 200, 999, "f2"),
        "fp64": partial(layer, 150, 515, "f8"),
        "fp8": partial(layer, 150, 500, FP8),
        "two chunks": partial(layer, 1031, 1024, BF16),
        "fp32, two chunks": partial(layer, 1100, 1000),
        "a vector": lambda: layer(1, 1_200_000, BF16).reshape(-1),
        "a column": lambda: layer(1, 100_001).reshape(-1, 1),
        "long rows": partial(layer, 300, 4097, BF16),
        "conv": lambda: layer(256, 1152).reshape(256, 128, 3, 3),
        "conv, two chunks": lambda: layer(900, 1260, BF16).reshape(900, 140, 9),
        "two scales": partial(two_scales, 300, 1000, "f4"),
        "wide": partial(wide_scales, 300, 1000, "f4", 30),
        "zeros": lambda: with_zeros(layer(300, 1000), 600),
        "ties": partial(few_values, 300, 1000, "f4", 12),
        "coarse fp16": partial(_coarse, "f2"),
        "coarse bf16": partial(_coarse, BF16),
        "200 vectors of 4": partial(few_vectors, 200, 1000, 4, 200),
        "300 vectors of 7": partial(few_vectors, 100, 1001, 7, 300),
        "squares": lambda: np.square(layer(300, 1000)),
        "zero rows": lambda: layer(300, 1000) * (np.arange(300)[:, None] % 3 > 0),
    }


def _coarse(dtype: str | np.dtype) -> np.ndarray:
    """Return values of which some lie so near to a bound that rounding takes them beyond it."""
    chosen = np.arange(100_000) * 7919 % 37 * 2700
    values = layer(200, 500, dtype).reshape(-1)[chosen]
    return np.concatenate([values, -values])


def lossy_cases() -> Iterator[tuple[str, ChunkCase]]:
    """Yield the cases by name."""
    yield from cases_of(_quantizers() | _tables() | _pruners(), _sources())


def _quantizers() -> dict[str, tuple[str, ...]]:
    trees: dict[str, tuple[str, ...]] = {
        f"uniform({FP32_STEP})": (
            "fp32", "bf16", "fp16", "fp64", "two chunks", "a vector", "a column", "long rows",
            "zeros", "ties",
        ),
        f"uniform({FP32_FINE})": ("fp32", "fp64"),
        f"uniform({FP32_STEP}, codes=huffman(contexts=8))": ("fp32", "two chunks"),
        f"uniform({FP32_STEP}, bounded=true)": ("fp32", "fp64", "fp32, two chunks"),
        "uniform(0.0003, bounded=true)": ("fp32", "bf16", "fp64"),
        "uniform(0.0098, bounded=true)": ("coarse fp16",),
        "uniform(0.0035, bounded=true)": ("coarse bf16",),
        f"uniform({2.0**-6}, bounded=true)": ("fp16", "bf16"),
        f"uniform({2.0**-2})": ("fp8", "fp32"),
        f"trellis({2.0**-2})": ("fp8", "fp32"),
        f"trellis({FP32_FINE})": ("fp32", "fp64"),
        f"trellis({FP32_STEP}, codes=huffman)": ("two scales",),
        f"update(values=trellis({FP32_STEP}))": ("fp32", "bf16", "fp32, two chunks", "zero rows"),
        "rank1": ("squares",),
    }  # fmt: skip
    for states in (4, 8, 16, 32):
        ans = f"ans(contexts=16, states=12, trellis={states}, bypass=true)"
        trees[f"trellis({FP32_STEP}, {states}, codes={ans})"] = (
            ("fp32", "bf16", "two chunks", "a vector") if states == 8 else ("fp32", "two scales")
        )
        trees[f"trellis({2.0**-6}, {states}, codes=ans(trellis={states}))"] = ("fp32", "zeros")
    trees[f"trellis({2.0**-8})"] = (
        "fp64", "fp16", "long rows", "fp32, two chunks", "a column", "zeros", "two scales",
    )  # fmt: skip
    for bits in range(2, 9):
        trees[f"affine({bits})"] = ("bf16",)
        trees[f"affine({bits}, -1, symmetric=false)"] = ("fp32",)
    trees |= {
        "affine(4, 0)": ("fp16", "two chunks"),
        "affine(4, 100, codes=ans(contexts=8))": ("fp32, two chunks", "fp64", "zero rows"),
        "affine(8, 7)": ("fp32",),
        "affine(5, 64, symmetric=false)": ("fp8", "a column", "zero rows", "fp64"),
        "nf4": ("fp32", "bf16", "fp64", "two chunks", "zero rows"),
        "nf4(-1)": ("fp16",),
        "nf4(0)": ("fp32, two chunks",),
        "nf4(100)": ("fp32", "fp8"),
        "scales(values=trellis(0.02))": ("fp32", "bf16", "two chunks", "conv", "fp64"),
        "scales(axis=0, values=uniform(0.02))": ("fp16", "two scales", "zero rows"),
        "sign": ("fp32", "two chunks", "zeros"),
        "sign(128)": ("fp64", "fp16"),
        "ternary": ("fp32", "two chunks", "zero rows"),
        "ternary(0.5, 128)": ("fp64", "fp16"),
        "ternary(1.5, 0)": ("bf16",),
    }
    return trees


def _tables() -> dict[str, tuple[str, ...]]:
    return {
        "kmeans(2)": ("fp32", "two chunks"),
        "kmeans(3)": ("fp16", "fp64"),
        "kmeans(16)": (
            "fp32", "bf16", "two chunks", "fp32, two chunks", "a vector", "wide", "zeros", "ties",
        ),
        "kmeans(33, codes=huffman)": ("fp32", "fp8"),
        "kmeans(64)": ("fp32", "a column"),
        "kmeans(65)": ("bf16",),
        "kmeans(256)": ("fp32", "two chunks", "fp64", "wide"),
        "kmeans(1000)": ("fp32",),
        "kmeans(3000)": ("fp32",),
        "pq(256, 4)": ("200 vectors of 4",),  # learned vectors would differ between machines
        "pq(512, 7)": ("300 vectors of 7",),
        'cast("F16")': ("fp32", "fp64", "two scales", "wide"),
        'cast("BF16")': ("fp32", "fp64", "fp32, two chunks"),
        'cast("F8_E4M3")': ("fp32", "bf16", "two chunks"),
        'cast("F8_E5M2")': ("fp32", "fp16", "fp64"),
        'cast("F16", values=groupfloats(3, groups=4))': ("fp32, two chunks",),
    }  # fmt: skip


def _pruners() -> dict[str, tuple[str, ...]]:
    return {
        "magnitude(0.5)": ("fp32", "two chunks", "ties", "zeros"),
        "magnitude(0.95)": ("bf16", "fp32, two chunks", "fp64", "a vector"),
        "magnitude(0.8, values=kmeans(16, codes=huffman), mask=gaps)": ("fp32",),
        "magnitude(count=1000)": ("fp16", "fp8"),
        "topk(0.01)": ("fp32", "two chunks", "ties", "wide"),
        "topk(0.3, mask=bitpack)": ("bf16", "fp64", "fp32, two chunks", "ties"),
        "topk(777)": ("fp16", "a vector"),
        "threshold(0.001)": ("fp32", "two chunks", "fp64", "fp16"),
        "randomk(0.1, seed=5)": ("fp32", "two chunks", "a vector", "fp8"),
        "randomk(0.6, seed=123456789012345, offset=99)": ("bf16", "fp32, two chunks"),
        "nm(2, 4)": ("fp32", "two chunks", "fp64", "ties", "fp8"),
        "nm(3, 5, mask=huffman)": ("bf16", "fp16"),
        "nm(1, 16)": ("fp32", "fp32, two chunks"),
        "filter(0.3)": ("fp32", "two chunks", "conv", "conv, two chunks", "zero rows"),
        "channel(0.3)": ("fp32", "two chunks", "conv", "conv, two chunks", "fp64"),
        "block(4, 4, 0.5)": ("fp32", "two chunks", "conv"),
        "block(7, 16, 0.3)": ("bf16", "fp32, two chunks", "conv, two chunks"),
    }
