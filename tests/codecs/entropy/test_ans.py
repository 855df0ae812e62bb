"""`ans`: round trips, closeness to the entropy, damaged bytes, determinism."""

import contextlib
import itertools
import struct
import zlib
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.bits import Bits
from reference.rice import read_table
from tree_cases import round_trip

from tensorcomp.codecs import decode, encode, fit, format_tree, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.entropy.ans import NO_ESCAPE, Ans, log2_table
from tensorcomp.codecs.entropy.side_info import unpack_side_info
from tensorcomp.codecs.payload import join
from tensorcomp.errors import CodecError

CODED = 1  # the mark of a payload that is no raw fallback
DTYPES = [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.float64, ml_dtypes.bfloat16]


def skewed(rng, count, alphabet, decay):
    """Return integers below `alphabet` whose frequencies fall like decay**i."""
    weights = decay ** np.arange(alphabet)
    return rng.choice(alphabet, count, p=weights / weights.sum())


def scaled_matrix(rng, rows, columns):
    """Return the exponents of a matrix whose rows and columns have different scales."""
    weights = rng.standard_normal((rows, columns)) * 2 ** rng.normal(0, 1.5, (rows, 1))
    weights *= 2 ** rng.normal(0, 1.5, columns)
    return (np.float32(weights).view(np.uint32) >> 23).astype(np.uint8)


def entropy(array):
    """Return the bits that the elements cost at their own frequencies."""
    counts = np.unique(array, return_counts=True)[1]
    return -(counts * np.log2(counts / counts.sum())).sum()


@settings(max_examples=120, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 70), min_size=0, max_size=3).map(tuple),
    alphabet=st.sampled_from([1, 2, 3, 20, 256, 700]),
    decay=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    contexts=st.sampled_from([1, 2, 8, 32]),
    states=st.integers(9, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_round_trip(dtype, shape, alphabet, decay, contexts, states, seed):
    rng = np.random.default_rng(seed)
    values = skewed(rng, int(np.prod(shape)), alphabet, decay).reshape(shape)
    array = (values - alphabet // 3).astype(np.int64).astype(dtype)
    round_trip(array, f"ans(contexts={contexts}, states={states})")


@pytest.mark.parametrize("count", [*range(1, 40), 255, 256, 257])
def test_tails_of_all_lengths(count):
    array = skewed(np.random.default_rng(count), count, 5, 0.4).astype(np.uint8)
    pieces = Ans().encode(array)
    out = np.empty_like(array)
    Ans().decode(np.frombuffer(join(pieces), np.uint8), out)
    assert out.tobytes() == array.tobytes()


@pytest.mark.parametrize("states", [9, 10, 11, 12])
@pytest.mark.parametrize("decay", [0.01, 0.3, 0.7, 0.9])
def test_rate_is_close_to_the_entropy(states, decay):
    array = skewed(np.random.default_rng(5), 400_000, 40, decay).astype(np.uint8)
    payload = round_trip(array, f"ans(states={states})")
    assert payload[0] == CODED
    allowed = 1.005 if states > 10 else 1.02
    assert 8 * len(payload) < allowed * entropy(array) + 8 * 250


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if np.dtype(dtype).itemsize <= 2])
def test_constant_arrays_cost_nothing_an_element(dtype):
    for contexts in (1, 8):
        payload = round_trip(np.full((300, 1000), 3, dtype), f"ans(contexts={contexts})")
        assert len(payload) < 300


def test_contexts_pay_where_scales_differ():
    matrix = scaled_matrix(np.random.default_rng(8), 512, 512)
    sizes = []
    for contexts in (1, 4, 16):
        node = parse_tree(f"ans(contexts={contexts}, states=12)")
        sizes.append(len(round_trip(matrix, format_tree(node), shared=fit(node, matrix))))
    assert sizes[1] < 0.85 * sizes[0]
    assert sizes[2] < sizes[1]


def test_contexts_are_dropped_where_they_do_not_pay():
    matrix = skewed(np.random.default_rng(9), 1 << 16, 30, 0.8).reshape(256, 256).astype(np.uint8)
    assert len(round_trip(matrix, "ans(contexts=16)")) == len(round_trip(matrix, "ans"))


def test_signed_codes_of_two_bytes_have_contexts():
    rng = np.random.default_rng(10)
    codes = rng.standard_normal((256, 512)) * 2 ** rng.uniform(0, 5, (256, 1))
    codes = np.rint(codes).astype(np.int16)
    assert len(round_trip(codes, "ans(contexts=8)")) < 0.95 * len(round_trip(codes, "ans"))


def test_heavy_tails_are_escaped():
    rng = np.random.default_rng(11)
    codes = np.rint(rng.standard_t(1.5, 300_000) * 3).clip(-32768, 32767).astype(np.int16)
    assert np.unique(codes).size > 400
    payload = round_trip(codes, "ans")
    assert 8 * len(payload) < 1.02 * entropy(codes)


@pytest.mark.parametrize("distinct", [255, 256, 257, 1024, 1025, 5000, 65536])
@pytest.mark.parametrize("contexts", [1, 32])
def test_alphabets_of_any_size(distinct, contexts):
    rng = np.random.default_rng(distinct)
    array = np.concatenate([np.arange(distinct), rng.integers(0, 8, 200_000)])
    array = rng.permutation(array)[: array.size // 100 * 100].reshape(-1, 100).astype(np.uint16)
    assert round_trip(array, f"ans(contexts={contexts})")[0] == CODED


def test_noise_falls_back_to_raw():
    noise = np.random.default_rng(12).integers(0, 65536, 50_000).astype(np.uint16)
    assert len(round_trip(noise, "ans")) == noise.nbytes + 1


def test_the_rarest_symbol_stands_for_itself_too():
    array = np.zeros(100_000, np.uint8)
    array[[5, 70_000]] = 255, 1
    array[10_000:60_000] = 7
    assert round_trip(array, "ans")[0] == CODED


def test_input_is_not_changed_and_bytes_do_not_depend_on_layout():
    matrix = scaled_matrix(np.random.default_rng(13), 200, 300)
    before = matrix.tobytes()
    payload = round_trip(matrix, "ans(contexts=8)")
    assert round_trip(matrix, "ans(contexts=8)") == payload
    assert matrix.tobytes() == before
    node = parse_tree("ans(contexts=8)")
    assert join(encode(node, np.asfortranarray(matrix))) == payload
    wide = np.zeros((200, 600), np.uint8)
    wide[:, ::2] = matrix
    assert join(encode(node, wide[:, ::2])) == payload


def test_bytes_are_those_of_the_first_version():
    array = (np.arange(4000) ** 3 % 4001 % 17).astype(np.uint8).reshape(40, 100) >> 1
    streams = join(Ans(1, 9).encode(array)[2:])
    assert (len(streams), zlib.crc32(streams)) == (1583, 4146536309)


def damaged(payload):
    """Yield payloads that are cut short, or have bits flipped."""
    for length in range(len(payload)):
        yield payload[:length]
    for i, bit in itertools.product(range(1, len(payload)), (0, 3, 7)):
        yield payload[:i] + bytes([payload[i] ^ (1 << bit)]) + payload[i + 1 :]
    rng = np.random.default_rng(14)
    for _ in range(200):
        noisy = np.frombuffer(payload, np.uint8).copy()
        noisy[rng.integers(1, len(payload), 5)] = rng.integers(0, 256, 5)
        yield noisy.tobytes()
    yield payload + b"\0"


@pytest.mark.parametrize("text", ["ans", "ans(contexts=8, states=9)"])
def test_damaged_bytes_are_refused_or_give_something(text):
    rng = np.random.default_rng(15)
    array = scaled_matrix(rng, 40, 60)
    array[rng.integers(0, 40, 9), rng.integers(0, 60, 9)] = rng.integers(0, 256, 9)
    node = parse_tree(text)
    shared = fit(node, array)
    payload = round_trip(array, text, shared=shared)
    assert payload[0] == CODED
    for bad in damaged(payload):
        if len(bad) != len(payload):
            with pytest.raises(CodecError):
                decode(node, bad, spec_of(array), shared)
        else:
            with contextlib.suppress(CodecError):
                decode(node, bad, spec_of(array), shared)


def test_damaged_streams_end_elsewhere():
    array = skewed(np.random.default_rng(16), 100_000, 40, 0.8).astype(np.uint8)
    node = parse_tree("ans")
    payload = bytearray(round_trip(array, "ans"))
    payload[len(payload) // 2] ^= 16
    with pytest.raises(CodecError, match="does not end where it should"):
        decode(node, bytes(payload), spec_of(array))


@pytest.mark.parametrize("states", [9, 11, 12])
def test_log2_table_is_exact_to_its_unit(states):
    table = log2_table(states)
    expected = np.log2(np.arange(1, (1 << states) + 1)) * 2**20
    assert np.abs(table[1:] - expected).max() <= 1.5
    assert (np.diff(table) >= 0).all()


@dataclass
class Stored:
    """What the side information of coded bytes tells of frequencies."""

    symbols: np.ndarray
    table: np.ndarray  # (contexts, symbols)
    escape: int
    escapes: int

    @classmethod
    def of(cls, array, text):
        _, side, *_ = parse_tree(text).codec.encode(array)
        head, present, packed, *_ = unpack_side_info(side, 6, 1 << 20)
        number, escape, escapes = struct.unpack_from("<3Q", head)
        symbols = np.flatnonzero(np.unpackbits(np.frombuffer(present, np.uint8), bitorder="little"))
        table = np.array(read_table(Bits(packed), number, symbols.size))
        return cls(symbols, table, escape, escapes)


def having(counts):
    """Return an array in which each of the first integers occurs so many times."""
    return np.repeat(np.arange(len(counts), dtype=np.uint16), counts)


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(
        st.sampled_from([0, 0, 1, 2, 5, 30, 1000, 10**4]), min_size=1, max_size=1024
    ).filter(any),
    states=st.integers(9, 12),
)
def test_frequencies_fill_the_table(counts, states):
    found = Stored.of(having(counts), f"ans(states={states})")
    assert (found.table > 0).all()
    assert found.table.sum() == 1 << states
    occurring = set(np.flatnonzero(counts))
    assert occurring >= set(found.symbols.tolist())
    left_out = occurring - set(found.symbols.tolist())
    if found.escape == NO_ESCAPE:
        assert not left_out
        assert found.escapes == 0
    else:
        assert found.escape in found.symbols
        assert found.escapes == sum(counts[a] for a in {*left_out, found.escape})


def test_frequencies_are_the_cheapest():
    counts = np.array([700, 20, 3])
    found = Stored.of(having(counts), "ans(states=9)")
    log2 = log2_table(9)
    bits = log2[512] - log2
    every = [counts @ bits[[a, b, 512 - a - b]] for a in range(1, 511) for b in range(1, 512 - a)]
    assert counts @ bits[found.table[0]] == min(every)


@pytest.mark.parametrize("alphabet", [20, 700])
def test_contexts_unlike_each_other_keep_their_tables(alphabet):
    rng = np.random.default_rng(alphabet)
    rows = rng.integers(0, alphabet // 10, (180, 400))
    rows += (np.array([0, 1, 2, 5, 6, 7])[np.arange(180) % 6] * alphabet // 8)[:, None]
    found = Stored.of(rows.astype(np.uint16), "ans(contexts=8)")
    assert found.table.shape[0] == 8
    assert set(found.table.sum(axis=1).tolist()) == {0, 2048}


def test_escapes_are_chosen_only_where_they_pay():
    counts = [50_000, 30_000, 20_000, 1, 1, 1]
    found = Stored.of(having(counts), "ans(states=9)")
    assert found.escapes == 3
    assert found.symbols.size == 4
    plenty = Stored.of(having(counts[:3]), "ans(states=9)")
    assert plenty.escape == NO_ESCAPE
