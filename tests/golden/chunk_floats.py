"""Coders of floats, on tensors as large as chunks."""

from collections.abc import Iterator
from functools import partial

from chunk_coding import ChunkCase, Source, cases_of
from chunk_sources import (
    BF16,
    E5M2,
    FP8,
    codes,
    equal_exponents,
    layer,
    narrow_rows,
    random_words,
    two_powers,
    two_scales,
    wide_scales,
    with_extremes,
    with_zeros,
)


def _floats() -> dict[str, Source]:
    """Return what the coders of ordinary floats must take."""
    return {
        "bf16, two chunks": partial(layer, 1031, 1024, BF16),
        "fp16, odd rows": partial(layer, 301, 1025, "f2"),
        "fp32": partial(layer, 150, 2049),
        "fp8": partial(layer, 1100, 1000, FP8),
        "e5m2": partial(layer, 300, 1000, E5M2),
        "rows of two scales": partial(two_scales, 900, 300, BF16),
        "rows of one scale": partial(layer, 500, 600, BF16, 1, 1),
        "narrow rows": partial(narrow_rows, 300, 1025),
        "extremes": lambda: with_extremes(layer(300, 1025)),
        "bf16 extremes": lambda: with_extremes(layer(700, 500, BF16)),
        "wide": partial(wide_scales, 1100, 1000, BF16, 60),
        "widest": partial(wide_scales, 500, 500, "f4", 250),
        "equal exponents": partial(equal_exponents, 300, 700),
        "a column": lambda: layer(1, 200_001, BF16).reshape(-1, 1),
        "a row": partial(layer, 1, 200_001, BF16),
        "a vector": lambda: layer(1, 1_200_000, BF16).reshape(-1),
        "short rows": lambda: layer(1, 30_000 * 9, "f2").reshape(-1, 3, 3),
        "long rows": partial(layer, 300, 4097, BF16),
        "half zeros": lambda: with_zeros(layer(400, 700, BF16), 500),
        "any bits": partial(random_words, 100, 1000, "f4"),
        "two powers": partial(two_powers, 240, 1000, BF16),
        "few": lambda: layer(45, 91),
        "integers": partial(codes, 300, 1000, "i2", 300),
    }


def _doubles() -> dict[str, Source]:
    return {
        "fp64": partial(layer, 200, 515, "f8"),
        "fp64 extremes": lambda: with_extremes(layer(70, 1025, "f8")),
        "fp64 wide": partial(wide_scales, 300, 300, "f8", 200),
        "fp64 widest": partial(wide_scales, 300, 300, "f8", 1500),
    }


def float_cases() -> Iterator[tuple[str, ChunkCase]]:
    """Yield the cases by name."""
    sources = _floats() | _doubles()
    doubles = ("fp64", "fp64 extremes", "fp64 wide")
    most = "exponent=ans(contexts=16, states=12), mantissa=bitpack"
    trees: dict[str, tuple[str, ...]] = {
        "groupfloats": tuple(_floats()),
        "groupfloats(0, groups=1)": (
            "bf16, two chunks", "fp16, odd rows", "a vector", "wide", "two powers",
        ),
        "groupfloats(0, groups=2)": ("bf16, two chunks", "rows of two scales"),
        "groupfloats(0, groups=4)": ("fp32", "fp16, odd rows", "fp8", "narrow rows"),
        "groupfloats(1, groups=8)": ("rows of two scales", "wide", "e5m2"),
        "groupfloats(3, groups=4)": ("fp16, odd rows", "bf16 extremes"),
        "groupfloats(4, groups=8)": ("fp16, odd rows", "fp32", "rows of one scale"),
        'groupfloats(0, 2, "columns")': ("bf16, two chunks", "fp32"),
        'groupfloats(2, along="columns")': (
            "bf16, two chunks", "fp16, odd rows", "narrow rows", "rows of one scale",
            "long rows", "a column", "a row", "fp8", "extremes",
        ),
        "floats": (*_floats(), *_doubles()),
        "floats(0, contexts=1)": (
            "bf16, two chunks", "fp16, odd rows", "a vector", "wide", *doubles,
        ),
        "floats(1, contexts=2)": ("long rows", "fp8"),
        "floats(2, contexts=16)": doubles,
        "floats(3, contexts=16)": ("fp16, odd rows", "bf16, two chunks", "bf16 extremes"),
        "floats(4, contexts=32)": (
            "fp16, odd rows", "fp32", "rows of two scales", "narrow rows", *doubles,
        ),
        "difference": (
            "bf16, two chunks", "fp16, odd rows", "fp32", "e5m2", "a vector", "a column",
            "short rows", "integers", "few",
        ),
        "difference(levels=false)": ("fp8", "half zeros", "wide"),
        "difference(decay=true)": ("fp32", "fp16, odd rows"),
        "fields": ("bf16, two chunks", "fp64", "fp8", "extremes", "long rows", "a column"),
        f"fields(2, {most})": ("bf16, two chunks", "fp32", "fp64", "e5m2", "long rows"),
        f"fields(3, {most})": ("fp16, odd rows", "narrow rows", "bf16 extremes"),
        f"fields(4, {most})": ("wide", "fp64 extremes"),
        "fields(1, exponent=palette, mantissa=raw)": ("e5m2",),
    }  # fmt: skip
    yield from cases_of(trees, sources)
