"""`gaps`: round trips of masks and index vectors, closeness to log2 C(n, k), damage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_cases import round_trip

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.entropy.gaps import Gaps
from tensorcomp.codecs.payload import join
from tensorcomp.errors import CodecError, NotRepresentable

NODE = parse_tree("gaps")
CODED = 1  # the mark of a payload that is no raw fallback


def log2_choose(n, k):
    """Return log2 of the number of k-subsets of n elements."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def random_mask(rng, n, k):
    mask = np.zeros(n, np.bool_)
    mask[rng.choice(n, k, replace=False)] = True
    return mask


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(0, 80), min_size=0, max_size=3).map(tuple),
    density=st.sampled_from([0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_restores_masks(shape, density, seed):
    round_trip(np.random.default_rng(seed).random(shape) < density, "gaps")


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from([f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)]),
    values=st.lists(st.integers(-(2**63), 2**64 - 1), max_size=60),
    near=st.booleans(),
)
def test_restores_index_vectors(dtype, values, near):
    limits = np.iinfo(dtype)
    if near:  # small gaps from the dtype's least number on
        values = np.cumsum([abs(value) % 7 + 1 for value in values]) + limits.min
    kept = {int(value) for value in values if limits.min <= value <= limits.max}
    round_trip(np.array(sorted(kept), dtype), "gaps")


@pytest.mark.parametrize("density", [0.001, 0.003, 0.01, 0.03, 0.1, 0.15, 0.2, 0.25, 0.3])
@pytest.mark.parametrize("count", [10_000, 50_000])
def test_is_close_to_the_number_of_subsets(density, count):
    n = round(count / density)
    mask = random_mask(np.random.default_rng(count), n, count)
    limit = log2_choose(n, count) / 8
    assert len(round_trip(mask, "gaps")) < 1.02 * limit
    assert len(round_trip(~mask, "gaps")) < 1.02 * limit
    assert len(round_trip(np.flatnonzero(mask), "gaps")) < 1.02 * limit
    assert len(round_trip(np.flatnonzero(mask).astype(np.int32), "gaps")) < 1.02 * limit


def test_adapts_to_clusters():
    rng = np.random.default_rng(2)
    mask = np.repeat(rng.random((400, 32)) < 0.05, 40, axis=1)
    assert len(round_trip(mask, "gaps")) < 0.3 * log2_choose(mask.size, int(mask.sum())) / 8


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5.0),
        np.array([1, 1, 2]),
        np.array([3, 2]),
        np.arange(6).reshape(2, 3),
        np.array(3),
        np.array([0, 1 << 50]),
        np.array([0, 2, 1], np.uint8).view(np.bool_),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_refuses_what_is_no_index_set(array):
    with pytest.raises(NotRepresentable, match="gaps"):
        Gaps().encode(array)
    round_trip(array, "gaps")


@settings(max_examples=300, deadline=None)
@given(
    masked=st.booleans(),
    cut=st.integers(0, 60),
    flips=st.lists(st.integers(0, 10**6), max_size=4),
    head=st.binary(max_size=24),
    seed=st.integers(0, 2**32 - 1),
)
def test_damage_is_an_error_or_other_indices(masked, cut, flips, head, seed):
    mask = np.random.default_rng(seed).random(3000) < 0.05
    array = mask if masked else np.flatnonzero(mask)
    damaged = np.frombuffer(join(encode(NODE, array)), np.uint8).copy()
    damaged[1 : 1 + len(head)] = np.frombuffer(head, np.uint8)
    for flip in flips:
        damaged[flip // 8 % damaged.size] ^= 1 << flip % 8
    damaged = damaged[: max(damaged.size - cut, 0)]
    try:
        decoded = decode(NODE, damaged, spec_of(array))
    except CodecError:
        return
    assert decoded.shape == array.shape


def test_cut_short_is_an_error():
    payload = round_trip(random_mask(np.random.default_rng(3), 10_000, 500), "gaps")
    assert payload[0] == CODED
    for stop in range(0, len(payload), 7):
        with pytest.raises(CodecError):
            decode(NODE, payload[:stop], spec_of(np.empty(10_000, np.bool_)))


def test_claims_beyond_the_array_are_errors():
    payload = np.frombuffer(
        join(Gaps().encode(random_mask(np.random.default_rng(4), 900, 90))), "u1"
    )
    for size in (89, 200):
        with pytest.raises(CodecError, match="gaps"):
            Gaps().decode(payload, np.empty(size, np.bool_))
    with pytest.raises(CodecError, match="expected a mask"):
        Gaps().decode(payload, np.empty(900, np.float32))
    payload = np.frombuffer(join(Gaps().encode(np.arange(0, 90_000, 9))), "u1")
    with pytest.raises(CodecError, match="beyond"):
        Gaps().decode(payload, np.empty(10_000, np.int16))
