"""`packed`: what n : m pruning leaves, bit for bit, in the form that `nm` has."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import byte_count, join
from tensorcomp.codecs.sparse.nm import NM
from tensorcomp.codecs.sparse.packed import NMPacked
from tensorcomp.errors import CodecError, NotRepresentable

DTYPES = [np.dtype(kind) for kind in ("f8", "f4", "f2", "i1", "i8", ml_dtypes.bfloat16)]


def grouped(rows: int, columns: int, keep: int, group: int, dtype: np.dtype, seed: int):
    """Return any bits, at most `keep` of each group not zero."""
    random = np.random.default_rng(seed)
    array = np.frombuffer(random.bytes(rows * columns * dtype.itemsize), dtype).copy()
    array = array.reshape(rows, columns)
    for row in array:
        for start in range(0, columns, group):
            size = min(group, columns - start)
            dead = random.permutation(size)[min(keep, random.integers(keep + 1)) :]
            row[start + dead] = 0
    return array


@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.integers(1, 16),
    st.integers(1, 16),
    st.sampled_from(DTYPES),
    st.integers(0, 999),
)
def test_every_bit_comes_back(rows, columns, keep, group, dtype, seed):
    keep = min(keep, group)
    array = grouped(rows, columns, keep, group, dtype, seed)
    codec = NMPacked(keep, group)
    parts = codec.encode(readable(array))
    whole, rest = divmod(columns, group)
    assert parts["values"].shape == (rows, whole * keep + min(keep, rest))
    out = np.full(array.shape, 1, dtype)
    codec.decode(parts, out)
    assert out.tobytes() == array.tobytes()


def test_by_hand():
    array = np.array([[0, 3, 0, -0.0, 0, 0, 0, 4], [5, 6, 0, 0, 0, 0, 0, 0]], np.float32)
    parts = NMPacked().encode(readable(array))
    # Zeros at the start of a group fill it up.
    assert parts["mask"].tolist() == [[0b1010, 0b1001], [0b0011, 0b0011]]
    assert parts["values"].tolist() == [[3, 0, 0, 4], [5, 6, 0, 0]]
    assert np.signbit(parts["values"]).tolist() == [[False, True, False, False], [False] * 4]


def test_what_has_more_is_refused():
    array = np.array([[1, 0, 2, -0.0]])
    with pytest.raises(NotRepresentable, match="more than 2 of 4"):
        NMPacked().encode(readable(array))
    assert NMPacked(3, 4).encode(readable(array))["values"].shape == (1, 3)


def test_full_groups_are_as_those_of_nm():
    weights = np.random.default_rng(0).standard_normal((30, 64)).astype(np.float32)
    lossy = parse_tree("nm(2, 4)")
    array = decode(lossy, join(encode(lossy, weights)), spec_of(weights))
    packed, kept = NMPacked(2, 4).encode(readable(array)), NM(2, 4).encode(readable(weights))
    assert packed["mask"].tobytes() == kept["mask"].tobytes()
    assert packed["values"].tobytes() == kept["values"].tobytes()


@pytest.mark.parametrize(("keep", "group"), [(2, 4), (1, 4), (4, 8)])
def test_patterns_cost_what_they_tell(keep, group):
    weights = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    lossy = parse_tree(f"nm({keep}, {group})")
    array = decode(lossy, join(encode(lossy, weights)), spec_of(weights))
    size = byte_count(encode(parse_tree(f"packed({keep}, {group}, values=raw)"), array))
    patterns = 8 * (size - 4 * array.size * keep / group) / array.size
    assert patterns == pytest.approx(math.log2(math.comb(group, keep)) / group, rel=0.01)


def test_damage():
    array = grouped(4, 16, 2, 4, np.dtype("f4"), 0)
    parts = NMPacked().encode(readable(array))
    for value in (0, 0b0111, 0b10001, 0xFF):
        mask = parts["mask"].copy()
        mask[1, 2] = value
        with pytest.raises(CodecError, match="packed: a group does not keep 2 of 4"):
            NMPacked().decode({**parts, "mask": mask}, np.empty_like(array))
    with pytest.raises(CodecError, match="values"):
        NMPacked().decode({**parts, "values": parts["values"][:-1]}, np.empty_like(array))
