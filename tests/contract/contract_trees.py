"""For each of our codecs the trees that put it to the test; a new codec adds a line."""

from __future__ import annotations

import os

from tensorcomp.codecs.registry import own_codecs

TREES: dict[str, tuple[str, ...]] = {
    "ans": ("ans", "ans(contexts=16, states=12)", "ans(states=9)"),
    "bitpack": ("bitpack",),
    "constant": ("constant",),
    "fields": (
        "fields",
        "fields(1, exponent=huffman, mantissa=bitpack)",
        "fields(2, exponent=ans(contexts=16, states=12), mantissa=raw(bytes=zstd))",
        "fields(4, exponent=palette, mantissa=sparse)",
    ),
    "floats": ("floats", "floats(0, contexts=1)", "floats(4, contexts=32)"),
    "gaps": ("gaps", "sparse(mask=gaps)"),
    "grid": ("grid", "grid(8, scales=raw, codes=ans(contexts=4))"),
    "huffman": ("huffman", "huffman(contexts=8)", "huffman(contexts=32)"),
    "palette": ("palette", "palette(table=raw(bytes=zstd), codes=huffman(contexts=8))"),
    "raw": ("raw",),
    "runlength": ("runlength",),
    "sparse": ("sparse", "sparse(mask=ans, values=palette(codes=huffman))"),
    "zstd": ("raw(bytes=zstd)", "huffman(bytes=zstd(level=19))"),
}

# Where the bounds of kernels are checked, all are compiled anew and slow: one tree a codec then.
_MOST = 1 if os.environ.get("NUMBA_BOUNDSCHECK") else None
OWN_TREES = tuple(tree for name in own_codecs() for tree in TREES.get(name, ())[:_MOST])
