"""`floats`: what it saves, and the rare kinds of data that take another way through its kernels."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_cases import round_trip

from tensorcomp.codecs import decode, encode, fit, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.errors import CodecError

FLOATS = parse_tree("floats")


def weights(rows: int = 256, columns: int = 256, seed: int = 0) -> np.ndarray:
    """Return weights whose rows and columns differ in scale."""
    random = np.random.default_rng(seed)
    scales = np.exp2(random.integers(-3, 4, (rows, 1)) + random.integers(-2, 3, columns))
    return (random.standard_normal((rows, columns)) * scales / 32).astype(np.float32)


def size_of(text: str, array: np.ndarray) -> int:
    """Return the bytes that a tree makes of an array, which it must restore."""
    return len(round_trip(array, text, fit(parse_tree(text), array)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_it_takes_no_more_than_the_parts_coded_apart(dtype):
    array = weights().astype(dtype)
    apart = "fields(2, exponent=huffman(contexts=8), mantissa=bitpack)"
    assert size_of("floats", array) <= size_of(apart, array) < array.nbytes


def test_contexts_tell_rows_and_columns_apart():
    assert size_of("floats", weights()) < 0.98 * size_of("floats(contexts=1)", weights())


def test_rows_with_shorter_mantissas_are_told_apart():
    array = weights()
    array[::3] = array[::3].astype(ml_dtypes.bfloat16)
    assert size_of("floats", array) < 0.85 * size_of("floats", weights())


def test_long_rows_share_their_columns_levels():
    array = weights(16, 5000)
    assert FLOATS.codec.shares(spec_of(array))
    assert size_of("floats", array) < 0.98 * size_of("floats(contexts=1)", array)


@pytest.mark.parametrize(
    "array",
    [
        np.geomspace(1e-300, 1e300, 20_000),  # symbols above those of the narrow table
        np.where(np.arange(40_000) % 7 == 0, 0, weights(200, 200).reshape(-1)),
        np.array([np.inf, -np.inf, np.nan, -0.0, 5e-324] * 100),
        np.frombuffer(bytes(range(256)) * 80, np.float16),
        weights(3000, 17)[:, :16].T,
        weights(2000, 3),
    ],
    ids=["every exponent", "zeros", "odd values", "all halves", "transposed", "short rows"],
)
def test_unusual_floats_come_back(array):
    for text in ("floats", "floats(4, contexts=32)", "floats(0, contexts=1)"):
        assert size_of(text, array) <= array.nbytes + 1


def test_some_tens_of_floats_are_worth_coding():
    assert size_of("floats(contexts=1)", weights(1, 96)) < 4 * 96


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=9))
def test_damage_is_found_or_harmless(place, splice):
    array = weights(40, 200).astype(ml_dtypes.bfloat16)
    payload = bytearray(join(encode(parse_tree("floats(1, contexts=2)"), array)))
    place = 1 + place % min(len(payload) - 1, 700)  # mostly the side information
    payload[place : place + len(splice)] = splice
    try:
        restored = decode(FLOATS, bytes(payload), spec_of(array))
    except CodecError:
        return
    assert restored.shape == array.shape
