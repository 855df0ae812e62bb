"""`groupfloats`: what groups of rows or columns save, and data of rare ways through its kernels."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_cases import size_of

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.errors import CodecError, NotRepresentable

GROUP_FLOATS = parse_tree("groupfloats")
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def weights(rows: int = 256, columns: int = 512, seed: int = 0) -> np.ndarray:
    """Return weights whose rows differ in scale."""
    random = np.random.default_rng(seed)
    scales = np.exp2(random.uniform(-3, 3, (rows, 1)))
    return (random.standard_normal((rows, columns)) * scales / 32).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_of_rows_take_less_than_one_code(dtype):
    array = weights().astype(dtype)
    alone = size_of("groupfloats(groups=1)", array)
    assert size_of("groupfloats(groups=8)", array) < 0.98 * alone < 0.98 * array.nbytes


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_takes_about_what_contexts_of_rows_and_columns_do(dtype):
    array = weights().astype(dtype)
    assert size_of("groupfloats(2)", array) < 1.005 * size_of("floats(2)", array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(512, 256), (100, 1000), (3000, 40), (60, 2, 50, 7)])
def test_groups_of_columns_are_those_of_the_rows_turned(dtype, shape):
    rows, columns = shape[0], int(np.prod(shape[1:]))
    array = np.ascontiguousarray(weights(columns, rows).T).reshape(shape).astype(dtype)
    turned = size_of('groupfloats(along="columns")', array)
    assert turned < 0.98 * size_of("groupfloats", array)
    assert turned < 1.01 * size_of("groupfloats", array.reshape(rows, columns).T)


def test_equal_rows_are_one_group():
    array = np.random.default_rng(1).standard_normal((256, 512)).astype(np.float32)
    assert size_of("groupfloats(groups=8)", array) <= size_of("groupfloats(groups=1)", array)


def test_rows_with_shorter_mantissas_are_told_apart():
    array = weights()
    array[::3] = array[::3].astype(ml_dtypes.bfloat16)
    assert size_of("groupfloats", array) < 0.85 * size_of("groupfloats", weights())


def test_zeros_cost_no_mantissa_bit():
    array = weights()
    few = array.copy()
    few[:, ::50] = 0
    assert size_of("groupfloats(2)", few) < 0.998 * size_of("groupfloats(0)", few)


@pytest.mark.parametrize(
    "array",
    [
        np.geomspace(1e-38, 1e38, 20_000).astype(np.float32),
        np.geomspace(1e-45, 1e38, 20_000).astype(np.float32),
        np.where(np.arange(40_000) % 7 == 0, 0, weights(200, 200).reshape(-1)),
        np.array([np.inf, -np.inf, np.nan, -0.0, 1e-45] * 100, np.float32),
        np.frombuffer(bytes(range(256)) * 80, np.float16),
        np.frombuffer(bytes(range(256)) * 80, np.uint8).view(ml_dtypes.float8_e4m3fn),
        weights(3000, 17)[:, :16].T,
        weights(2000, 3),
        np.zeros((70, 300), np.float32),
        np.full((70, 300), -1.5, ml_dtypes.bfloat16),
        np.repeat(weights(64, 1), 3000, axis=1),
    ],
    ids=[
        "every exponent",
        "subnormal",
        "zeros",
        "odd values",
        "all halves",
        "all bytes",
        "transposed",
        "short rows",
        "nothing but zero",
        "one value",
        "constant rows",
    ],
)
def test_unusual_floats_come_back(array):
    for text in ("groupfloats", 'groupfloats(4, along="columns")', "groupfloats(0, groups=1)"):
        assert size_of(text, array) <= array.nbytes + 1


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 3000),
    st.integers(0, 4),
    st.sampled_from([1, 2, 8]),
    st.sampled_from(["rows", "columns"]),
    st.sampled_from(DTYPES),
    st.integers(0, 99),
)
def test_every_shape_comes_back(rows, columns, bits, groups, along, dtype, seed):
    array = weights(rows, columns, seed).astype(dtype)
    size_of(f'groupfloats({bits}, {groups}, "{along}")', array)


def test_some_tens_of_floats_are_worth_coding():
    assert size_of("groupfloats(groups=1)", weights(1, 96)) < 4 * 96


def test_wide_floats_are_refused():
    with pytest.raises(NotRepresentable, match="more than a byte"):
        GROUP_FLOATS.codec.encode(np.zeros(1000))


@pytest.mark.parametrize("groups", [0, 3, 16, True, 2.0])
def test_odd_numbers_of_groups_are_refused(groups):
    with pytest.raises(ValueError, match="expected groups to be one of 1, 2, 4, 8, got"):
        type(GROUP_FLOATS.codec)(groups=groups)


@pytest.mark.parametrize("along", [None, "row", 1])
def test_only_rows_and_columns_are_put_together(along):
    with pytest.raises(ValueError, match="expected along to be one of rows, columns, got"):
        type(GROUP_FLOATS.codec)(along=along)


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, 1 << 16),
    st.binary(min_size=1, max_size=9),
    st.sampled_from([60, 700]),
    st.sampled_from(["rows", "columns"]),
)
def test_damage_is_found_or_harmless(place, splice, columns, along):
    array = weights(90, columns).astype(ml_dtypes.bfloat16)
    tree = parse_tree(f'groupfloats(along="{along}")')
    payload = bytearray(join(encode(tree, array)))
    place = 1 + place % min(len(payload) - 1, 700)  # mostly the side information
    payload[place : place + len(splice)] = splice
    try:
        restored = decode(tree, bytes(payload), spec_of(array))
    except CodecError:
        return
    assert restored.shape == array.shape


@pytest.mark.parametrize("length", [0, 1, 7, 8, 20, 60, 300, -1])
def test_a_cut_payload_is_refused(length):
    array = weights(20, 100)
    payload = join(encode(GROUP_FLOATS, array))
    with pytest.raises(CodecError):
        decode(GROUP_FLOATS, payload[:length], spec_of(array))
