"""Trees for tensors of ggml's quantized blocks, by the codec ``ggml``."""

from __future__ import annotations

import numpy as np

from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import byte_count, encode_part
from tensorcomp.codecs.quantize.ggml import Ggml
from tensorcomp.codecs.text import parse_tree
from tensorcomp.dtypes import block_size

_SAMPLE = 1 << 17  # bytes
# Scales of a model that was rounded to bfloat16 have low bits that are zero.
_HALVES = (
    *("groupfloats(3, groups=4)", "fields(3, exponent=ans(contexts=8), mantissa=ans)"),
    "ans(states=12)",
)
_CODES = {
    "fast": ("huffman(contexts=8)",),
    "balanced": ("ans(contexts=8)", "ans"),
    "max": ("ans(contexts=16, states=12)", "ans(states=12)"),
}


def whole_blocks(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return blocks (n, bytes) of a type, evenly spaced, out of flat bytes."""
    size = (block_size(dtype) or (0, 1))[1]
    blocks = array[: array.size // size * size].reshape(-1, size)
    return readable(blocks[:: max(1, array.size // _SAMPLE)])


def block_tree(blocks: np.ndarray, dtype: str, effort: str) -> str:
    """Return the tree whose parts take the fewest bytes of some blocks.

    Parameters
    ----------
    blocks : numpy.ndarray
        (n, bytes), uint8.
    dtype : str
        ggml's name of the type.
    effort : str
    """
    found = []
    for name, part in Ggml(dtype).encode(blocks).items():
        if part.size:
            trees = _HALVES if part.itemsize > 1 else _CODES[effort]
            best = min(trees, key=lambda text: byte_count(encode_part(parse_tree(text), part)))
            found.append(f"{name}={best}")
    return f'ggml("{dtype}", {", ".join(found)})'
