"""`zeros`: the signs of zeros apart, so that masks that were multiplied cost a bit a zero."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import byte_count, join
from tensorcomp.codecs.sparse.zeros import SignedZeros
from tensorcomp.errors import CodecError

DTYPES = [np.dtype(kind) for kind in ("f8", "f4", "f2", "i2", "u1", ml_dtypes.bfloat16)]


@given(
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.sampled_from(DTYPES),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 999),
)
def test_signs_of_zeros_are_apart(shape, dtype, share, seed):
    random = np.random.default_rng(seed)
    word = np.dtype(f"u{dtype.itemsize}")
    words = random.integers(0, np.iinfo(word).max, shape, word, endpoint=True)
    top = word.type(1 << (8 * dtype.itemsize - 1))
    words = np.asarray(np.where(random.random(shape) < share, words & top, words), word)
    is_zero = (words & ~top) == 0
    array = words.view(dtype)
    parts = SignedZeros().encode(readable(array))
    assert parts["signs"].tolist() == (words[is_zero] == top).tolist()
    found = parts["values"].view(word)
    assert (found == np.where(is_zero, 0, words)).all()
    out = np.full(shape, 1, dtype)
    SignedZeros().decode(parts, out)
    assert out.tobytes() == array.tobytes()


def test_by_hand():
    array = np.array([0.0, -0.0, 2.0, -3.0, -0.0, np.nan])
    parts = SignedZeros().encode(readable(array))
    assert parts["signs"].tolist() == [False, True, True]
    assert not np.signbit(parts["values"][[0, 1, 4]]).any()
    assert parts["values"][[2, 3]].tolist() == [2, -3]


def test_a_multiplied_mask_costs_a_bit_a_zero():
    random = np.random.default_rng(0)
    weights = random.standard_normal((200, 300)).astype(np.float32)
    keep = random.random((200, 300)) < 0.1
    multiplied, chosen = weights * keep, np.where(keep, weights, np.float32(0))
    plain = parse_tree("sparse(mask=gaps, values=floats(contexts=1))")
    signed = parse_tree("zeros(values=sparse(mask=gaps, values=floats(contexts=1)))")
    bits = 8 * (byte_count(encode(signed, multiplied)) - byte_count(encode(plain, chosen)))
    assert bits / (~keep).sum() == pytest.approx(1, abs=0.02)
    assert byte_count(encode(plain, multiplied)) > 3 * byte_count(encode(signed, multiplied))


def test_damage():
    array = np.array([0.0, 1.0, -0.0], np.float32)
    parts = SignedZeros().encode(readable(array))
    for signs in ([False], [False, True, True], []):
        with pytest.raises(CodecError, match="expected 2 signs, one a zero, got"):
            SignedZeros().decode({**parts, "signs": np.array(signs, bool)}, np.empty_like(array))
    signs = np.array([0, 2], np.uint8).view(np.bool_)
    with pytest.raises(CodecError, match="neither 0 nor 1"):
        SignedZeros().decode({**parts, "signs": signs}, np.empty_like(array))
    # Signs that a hostile part gives to its zeros are not believed.
    hostile = {**parts, "values": array}
    out = np.empty_like(array)
    SignedZeros().decode(hostile, out)
    assert out.tobytes() == array.tobytes()
    tree = parse_tree("zeros")
    assert decode(tree, join(encode(tree, array)), spec_of(array)).tobytes() == array.tobytes()
