"""The lossless planner: try on a sample what the data allow, keep the smallest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node

EFFORTS = ("fast", "balanced", "max")

_SMALL = 4096  # elements; below it a tensor's own tables cost more than they save
_SAMPLE = 1 << 18
_SAMPLE_ROWS = 64


@dataclass(frozen=True)
class Plan:
    """What a tensor is coded by, and why.

    Parameters
    ----------
    tree : Node
    why : str
        A few words.
    fallback : Node, optional
        For chunks that `tree` cannot represent exactly; it can represent any.
    """

    tree: Node
    why: str
    fallback: Node | None = None


def sample_rows(array: np.ndarray) -> np.ndarray:
    """Return rows (of a matrix) or elements, evenly spaced over the tensor.

    At least 64 rows, so that columns can be told apart, and about 2**18 elements.
    """
    row = array.shape[1] if array.ndim > 1 else 1
    wanted = max(_SAMPLE // max(row, 1), _SAMPLE_ROWS)
    step = max(1, array.shape[0] // wanted)
    return array[::step]


def plan_lossless(array: np.ndarray, effort: str) -> Plan:
    """Return the tree for a tensor, the smallest on a sample of those that fit its data.

    Parameters
    ----------
    array : numpy.ndarray
        The whole tensor as codecs see it, (rows, row length) or (elements,).
    effort : str
        ``fast``, ``balanced`` or ``max``.
    """
    if array.size < _SMALL:
        return Plan(parse_tree("raw"), "small")
    exponent = {
        "fast": "huffman",
        "balanced": "huffman(contexts=8)",
        "max": "huffman(contexts=16)",
    }[effort]
    bits = {"fast": 1, "balanced": 1, "max": 2}[effort]
    tree = parse_tree(f"fields({bits}, exponent={exponent}, mantissa=bitpack)")
    return Plan(tree, "floats")
