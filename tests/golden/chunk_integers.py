"""Coders of integers, on tensors as large as chunks."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from chunk_coding import ChunkCase, Source, cases_of
from chunk_sources import codes, counts, mostly_small, of_width, with_zeros


def _integers() -> dict[str, Source]:
    return {
        "counts": partial(counts, 400_001, "u1"),
        "counts, int64": partial(counts, 50_003, "i8"),
        "int8": partial(codes, 500, 1023, "i1", 20),
        "int8, two chunks": partial(codes, 1100, 1000, "i1", 3),
        "uint8": partial(codes, 333, 1000, "u1", 25),
        "int16": partial(codes, 300, 1000, "i2", 30),
        "int16, large": partial(codes, 300, 1000, "i2", 700),
        "int16, larger": partial(codes, 300, 1000, "i2", 9000),
        "uint16": partial(codes, 300, 1000, "u2", 300),
        "int32": partial(codes, 100, 1000, "i4", 40_000),
        "long rows": partial(codes, 300, 4097, "i1", 5),
        "long rows, int16": partial(codes, 300, 4100, "i2", 60),
        "rare values": partial(mostly_small, 300_000, "u2"),
        "rare values, matrix": lambda: mostly_small(1 << 18, "u2").reshape(256, 1024),
        "booleans": lambda: of_width(300_000, "u1", 1).astype(np.bool_),
        "few, many symbols": lambda: of_width(3000, "u2", 12),
        "ternary": lambda: with_zeros(codes(300, 999, "i1", 1).clip(-1, 1), 600),
        "random": lambda: of_width(200_000, "u1", 8),
        "short rows": lambda: codes(30_000, 9, "i1", 12),
        "one value": lambda: np.full(100_001, 7, np.uint8),
    }


def integer_cases() -> Iterator[tuple[str, ChunkCase]]:
    """Yield the cases by name."""
    sources = _integers()
    unfit = ("rare values, matrix", "int16, larger")
    apart = ("int8", "int8, two chunks", "int16", "long rows", "ternary", "counts", "short rows")
    trees: dict[str, tuple[str, ...]] = {
        "huffman": tuple(name for name in sources if name not in unfit),
        "huffman(contexts=2)": ("int8", "long rows", "uint8"),
        "huffman(contexts=8)": ("int8", "int8, two chunks", "int16", "long rows, int16", "uint8"),
        "huffman(contexts=32)": ("int8", "long rows", "int16", "uint16"),
        "ans": tuple(sources),
        "ans(states=9)": ("counts", "int8", "rare values", "uint16"),
        "ans(states=10, contexts=32)": ("int8, two chunks", "int16"),
        "ans(states=12)": ("ternary", "int16, large", "booleans"),
        "ans(contexts=2, states=12)": ("int8", "long rows"),
        "ans(contexts=8)": ("int8", "long rows, int16", "uint8", "rare values, matrix"),
        "ans(contexts=16, states=12)": ("int8, two chunks", "int16", "ternary", "int16, large"),
        "ans(contexts=32, states=11)": ("int8", "uint16"),
        "ans(contexts=16, states=12, bypass=true)": (
            "int8", "int16", "int16, large", "int16, larger", "long rows, int16", "uint16",
        ),
        'ggml("Q4_1")': ("uint8", "int8", "int8, two chunks"),
        'ggml("Q6_K")': ("uint8", "short rows"),
        'ggml("NVFP4")': ("int8", "counts"),
    }  # fmt: skip
    for states in (4, 8, 16, 32):
        trees[f"ans(trellis={states})"] = ("int8", "rare values, matrix")
        trees[f"ans(contexts=16, states=12, trellis={states})"] = apart
    trees["ans(contexts=8, states=11, trellis=8, bypass=true)"] = ("int16, large", "int16")
    yield from cases_of(trees, sources)
    yield from _bitpack_cases()


def _bitpack_cases() -> Iterator[tuple[str, ChunkCase]]:
    for kind in "ui":
        for size in (1, 2, 4, 8):
            widths = range(1, 8 * size + (kind == "u"), 1 if size < 8 else 5)
            dtype = f"{kind}{size}"
            all_widths = tuple(
                lambda width=width, dtype=dtype: of_width(41_107, dtype, width).reshape(37, -1)
                for width in widths
            )
            yield f"bitpack: {dtype} of all widths", ChunkCase("bitpack", all_widths)
    rows = {
        "rows of unlike widths": lambda: (
            of_width(300_000, "u4", 24).reshape(300, 1000)
            >> (np.arange(300, dtype=np.uint32) % 23)[:, None]
        ),
        "rows of unlike spans": lambda: (
            of_width(300_300, "u2", 9).reshape(300, 1001)
            << (np.arange(300, dtype=np.uint16) % 8)[:, None]
        ),
        "shifted, two chunks": lambda: of_width(1_200_000, "u2", 5) << np.uint16(7),
        "zeros": lambda: np.zeros((300, 1000), np.uint32),
        "booleans": lambda: of_width(300_001, "u1", 1).astype(np.bool_),
    }
    for name, source in rows.items():
        yield f"bitpack: {name}", ChunkCase("bitpack", (source,))
