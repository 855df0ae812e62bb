"""Round trips of arrays through trees of codecs."""

import numpy as np

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join


def round_trip(array: np.ndarray, text: str, shared: list[bytes] | None = None) -> bytes:
    """Return what a tree makes of an array, having checked that every bit comes back."""
    tree = parse_tree(text)
    payload = join(encode(tree, array, shared))
    decoded = decode(tree, payload, spec_of(array), shared)
    assert decoded.dtype == array.dtype
    assert decoded.shape == array.shape
    assert decoded.tobytes() == array.tobytes()
    return payload


def size_of(text: str, array: np.ndarray, shared: list[bytes] | None = None) -> int:
    """Return the bytes that a tree makes of an array, which it must restore."""
    return len(round_trip(array, text, shared))
