"""For each of our codecs the trees that put it to the test; a new codec adds a line."""

import os
from importlib.util import find_spec

from tensorcomp.codecs.registry import own_codecs

TREES: dict[str, tuple[str, ...]] = {
    "affine": (
        "affine",
        "affine(8, -1, codes=ans(contexts=8))",
        "affine(2, 0, false, scales=raw, codes=bitpack(bytes=zstd))",
    ),
    "ans": (
        "ans",
        "ans(contexts=16, states=12)",
        "ans(states=9)",
        "ans(contexts=8, trellis=8)",
        "ans(contexts=4, bypass=true)",
    ),
    "bitpack": ("bitpack",),
    "block": (
        "block(2, 3)",
        "block(16, 1, 0.9, mask=ans)",
        "block(3, 8, 0.25, values=uniform(0.01))",
    ),
    "cast": ('cast("BF16")', 'cast("F16", values=raw)', 'cast("F8_E4M3")', 'cast("F8_E5M2")'),
    "channel": ("channel", "channel(0.1, mask=raw)", "channel(0.9, values=uniform(0.01))"),
    "constant": ("constant",),
    "difference": (
        "difference",
        "difference(levels=false)",
        "difference(rank=2)",
        "difference(decay=true)",
    ),
    "fields": (
        "fields",
        "fields(1, exponent=huffman, mantissa=bitpack)",
        "fields(2, exponent=ans(contexts=16, states=12), mantissa=raw(bytes=zstd))",
        "fields(4, exponent=palette, mantissa=sparse)",
    ),
    "filter": ("filter", "filter(0.1, mask=raw)", "filter(0.9, values=uniform(0.01))"),
    "floats": ("floats", "floats(0, contexts=1)", "floats(4, contexts=32)"),
    "gaps": ("gaps", "sparse(mask=gaps)"),
    "ggml": tuple(f'ggml("{name}")' for name in ("Q5_1", "Q3_K", "Q4_K", "MXFP4")),
    "grid": ("grid", "grid(8, scales=raw, codes=ans(contexts=4))"),
    "huffman": ("huffman", "huffman(contexts=8)", "huffman(contexts=32)"),
    "kmeans": ("kmeans", "kmeans(3, codes=huffman)", "kmeans(300, codebook=fields)"),
    "live": (
        "live(values=live(1, mask=raw, values=fields))",
        "live(1)",
        "live(values=uniform(0.01))",
    ),
    "magnitude": ("magnitude", "magnitude(0.9, mask=bitpack, values=palette)", "magnitude(1)"),
    "nf4": ("nf4", 'nf4(-1, scales=cast("BF16"), codes=ans)'),
    "nm": ("nm", "nm(1, 16)", "nm(4, 8, mask=bitpack, values=uniform(0.01))"),
    "outliers": (
        "outliers(0.05)",
        "outliers(1e-3, exact=raw, values=uniform(0.01))",
        "outliers(1e30, positions=raw, values=trellis(0.01))",
    ),
    "packed": ("packed", "packed(1, 16)", "packed(5, 8, mask=bitpack, values=raw)"),
    "palette": ("palette", "palette(table=raw(bytes=zstd), codes=huffman(contexts=8))"),
    "pq": ("pq(4, 2)", "pq(20, 3, codes=huffman)") if find_spec("sklearn") else (),
    "randomk": ("randomk", "randomk(100, seed=7)", "randomk(0.5, values=uniform(0.01))"),
    "rank1": ("rank1", "rank1(rows=ans, columns=bitpack)"),
    "raw": ("raw",),
    "scales": ("scales(values=trellis(0.05))", "scales(axis=0, values=uniform(0.05))", "scales"),
    "rotate": ("rotate(2)", "rotate(1, rotated=uniform(0.01))"),
    "groupfloats": ("groupfloats", "groupfloats(0, groups=1)", 'groupfloats(4, 2, "columns")'),
    "runlength": ("runlength",),
    "sign": ("sign", "sign(32, signs=ans)"),
    "sparse": ("sparse", "sparse(mask=ans, values=palette(codes=huffman))"),
    "svd": (
        "svd(2)",
        'svd(0.4, unfold="separable", left=raw, right=raw)',
        "svd(energy=0.6)",
        "svd(error=0.7, refine=true, left=uniform(0.01))",
    ),
    "ternary": ("ternary", "ternary(1.5, 0, codes=bitpack)"),
    "threshold": ("threshold(0.05)", "threshold(1e-30, mask=runlength, values=raw)"),
    "topk": ("topk", "topk(0.4, mask=ans)", "topk(50, values=uniform(0.01))"),
    "trellis": (
        "trellis(0.01)",
        "trellis(0.004, states=4, codes=ans(contexts=1, states=9, trellis=4))",
        "trellis(0.05, states=16, codes=ans(contexts=4, trellis=16))",
        "trellis(1e-3, states=32, codes=ans(states=12, trellis=32))",
    ),
    "uniform": (
        "uniform(0.01)",
        "uniform(0.05, bounded=true)",
        "uniform(1e-3, codes=huffman(contexts=8))",
    ),
    "update": ("update", "update(values=uniform(0.01))", "update(values=trellis(0.05))"),
    "zeros": ("zeros", "zeros(signs=gaps, values=bitpack)"),
    "zstd": ("raw(bytes=zstd)", "huffman(bytes=zstd(level=19))"),
}

# Checked kernels (tests/kernels) are slow: one tree a codec then.
_MOST = 1 if os.environ.get("TENSORCOMP_ONE_TREE_A_CODEC") else None
OWN_TREES = tuple(tree for name in own_codecs() for tree in TREES.get(name, ())[:_MOST])
