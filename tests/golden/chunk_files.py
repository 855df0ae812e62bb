"""The files of ``chunks/``: which trees wrote them, of which tensors."""

from functools import partial

import numpy as np
from chunk_coding import Source
from chunk_sources import (
    BF16,
    E5M2,
    FP8,
    codes,
    layer,
    mostly_small,
    narrow_rows,
    of_width,
    on_grid,
    with_zeros,
)
from golden_cases import Case

from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS

_FILES: dict[str, tuple[str, Source]] = {
    "groupfloats": ("groupfloats(2, groups=4)", partial(layer, 1100, 1000, FP8)),
    "groupfloats_columns": ('groupfloats(2, along="columns")', partial(layer, 200, 1025, BF16)),
    "groupfloats_narrow": ("groupfloats", partial(narrow_rows, 100, 1025)),
    "floats_long_rows": ("floats(2, contexts=8)", partial(layer, 260, 4097, E5M2)),
    "floats_double": ("floats", partial(layer, 60, 1025, "f8")),
    "fields_ans": (
        "fields(3, exponent=ans(contexts=16, states=12), mantissa=bitpack)",
        partial(layer, 150, 1025, "f2"),
    ),
    "huffman_contexts": ("huffman(contexts=8)", partial(codes, 1100, 1000, "i1", 3)),
    "ans_escapes": ("ans(contexts=16, states=12)", partial(mostly_small, 200_000, "u2")),
    "bitpack": ("bitpack", partial(of_width, 1_100_000, "i2", 3)),
    "grid": ("grid", partial(on_grid, 200, 768, "f4", 128)),
    "sparse_gaps": (
        "sparse(mask=gaps, values=groupfloats(2, groups=1))",
        lambda: with_zeros(layer(1100, 1000, BF16), 900),
    ),
    "uniform": ("uniform(0.0009765625)", partial(layer, 300, 1025)),
    "trellis": ("trellis(0.0078125)", partial(layer, 1100, 1000, BF16)),
    "affine": ("affine(4, 128)", partial(layer, 300, 1000, BF16)),
    "kmeans": ("kmeans(16)", partial(layer, 1100, 1000, BF16)),
    "topk": ("topk(0.02)", partial(layer, 1100, 1000, BF16)),
    "rotate": ("rotate(16, rotated=uniform(0.00390625))", partial(layer, 4500, 256, BF16)),
    "svd": ("svd(11, left=uniform(0.01), right=affine(8, -1))", partial(layer, 701, 500)),
    "pq": ("pq(64, 4)", partial(layer, 1100, 1000, BF16)),
}


def _named(source: Source) -> dict[str, np.ndarray]:
    return {"tensor": source()}


CHUNK_FILES = {
    name: Case(tree, partial(_named, source), chunk_elements=CHUNK_ELEMENTS)
    for name, (tree, source) in _FILES.items()
}
