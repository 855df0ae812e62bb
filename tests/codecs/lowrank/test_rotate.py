"""`rotate`: the product of its reflections, what it gains, shared reflectors, damage."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, fit, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.entropy.side_info import pack_side_info
from tensorcomp.codecs.lowrank.rotate import Rotate, compact
from tensorcomp.codecs.payload import byte_count, join
from tensorcomp.errors import CodecError, NotRepresentable


def embedding(rows, columns, decay=0.9, seed=0):
    """Return rows whose directions have scales that fall like decay**k."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((columns, columns)))[0]
    scales = decay ** np.arange(columns) + 0.05
    rows_scaled = rng.standard_normal((rows, columns)) * scales @ basis.T
    return rows_scaled.astype(np.float32)


def product(reflectors):
    """Return H₁ H₂ … by its definition."""
    result = np.eye(reflectors.shape[1])
    for row in reflectors.astype(np.float64):
        if row.any():
            result = result @ (np.eye(row.size) - 2 * np.outer(row, row) / (row @ row))
    return result


def restored(codec, array, shared=b""):
    parts = codec.encode(array, shared)
    for part in parts.values():
        part.flags.writeable = False
    out = np.empty_like(array)
    codec.decode(parts, out, shared)
    return parts, out


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 12), size=st.integers(8, 30))
def test_triangle_is_that_of_the_product(seed, count, size):
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-127, 128, (count, size)).astype(np.int8)
    vectors[rng.random(count) < 0.2] = 0
    inner, units = compact(vectors)
    found = np.eye(size) - units.T @ inner @ units
    np.testing.assert_allclose(found, product(vectors), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(1, 8), (3, 40), (40, 9), (64, 64), (20, 3, 5)]),
    dtype=st.sampled_from([np.float64, np.float32, np.float16, ml_dtypes.bfloat16]),
    rank=st.integers(1, 20),
    exponent=st.integers(-20, 20),
)
def test_rows_keep_their_lengths_and_come_back(seed, shape, dtype, rank, exponent):
    rng = np.random.default_rng(seed)
    scale = 2.0 ** (exponent if dtype is not np.float16 else exponent / 4)
    array = (scale * rng.standard_normal(shape)).astype(dtype)
    parts, out = restored(Rotate(rank), array)
    wide = array.astype(np.float64).reshape(len(array), -1)
    rows = parts["rotated"].astype(np.float64).reshape(wide.shape)
    lengths = np.sqrt((wide**2).sum(axis=1))
    tolerance = 1e-13 if dtype is np.float64 else 3e-6
    np.testing.assert_allclose(np.sqrt((rows**2).sum(axis=1)), lengths, rtol=tolerance)
    coarse = float(ml_dtypes.finfo(dtype).eps)
    error = np.abs(out.astype(np.float64).reshape(wide.shape) - wide)
    assert (error <= (tolerance + coarse) * lengths[:, None]).all()
    reflectors = parts["reflectors"].reshape(-1, wide.shape[1])
    np.testing.assert_allclose(rows, wide @ product(reflectors), atol=1e-5 * lengths.max())


def test_directions_become_columns():
    array = embedding(2000, 32, decay=0.5)
    rows = Rotate(4).encode(array)["rotated"]
    energies = np.sort((rows.astype(np.float64) ** 2).sum(axis=0))[::-1]
    values = np.linalg.svd(array.astype(np.float64), compute_uv=False) ** 2
    # Rows are scaled to equal length before directions are learned: they are not quite the same.
    np.testing.assert_allclose(energies[:2], values[:2], rtol=0.05)
    assert energies[:4].sum() > 0.95 * values[:4].sum()


def test_embeddings_cost_less_at_the_same_error():
    array = embedding(4000, 96, decay=0.95)
    sizes, errors = [], []
    for text in ("trellis(0.1)", "rotate(48, rotated=trellis(0.1))"):
        node = parse_tree(text)
        payload = join(encode(node, array))
        sizes.append(8 * len(payload) / array.size)
        errors.append(np.linalg.norm(decode(node, payload, spec_of(array)) - array))
    assert errors[1] < 1.01 * errors[0]
    assert sizes[1] < sizes[0] - 0.3


def test_chunks_share_the_reflectors():
    array = embedding(4000, 64)
    node = parse_tree("rotate(16, rotated=trellis(0.1))")
    shared = fit(node, array[::4])
    whole = sum(byte_count(encode(node, part, shared)) for part in np.array_split(array, 8))
    own = sum(byte_count(encode(node, part)) for part in np.array_split(array, 8))
    assert whole + len(shared[0]) < own - 5 * 16 * 64 / 2
    parts, out = restored(Rotate(16), array[:100], shared[0])
    assert parts["reflectors"].size == 0
    assert np.abs(out - array[:100]).max() < 1e-5


def test_what_cannot_be_turned_is_refused():
    for wrong in (
        np.ones(100, np.float32),
        np.ones((100, 7), np.float32),
        np.full((9, 9), np.nan),
        np.ones((9, 9), np.int32),
    ):
        with pytest.raises(NotRepresentable):
            Rotate(4).encode(wrong)
    for _, out in (restored(Rotate(4), np.zeros((9, 9), np.float32)),):
        assert not out.any()


def test_damaged_reflectors_are_refused():
    out = np.empty((20, 10), np.float32)
    parts = {"rotated": np.zeros((20, 10), np.float32), "reflectors": np.zeros(15, np.int8)}
    with pytest.raises(CodecError, match="15 elements of reflectors of 10"):
        Rotate(4).decode(parts, out)
    with pytest.raises(CodecError, match="15 shared elements of reflectors of 10"):
        Rotate(4).decode(parts, out, pack_side_info([bytes(15)]))
    with pytest.raises(CodecError, match="side information"):
        Rotate(4).decode(parts, out, pack_side_info([bytes(110)]))
    parts["reflectors"] = np.zeros(110, np.int8)
    with pytest.raises(CodecError, match="110 elements of reflectors of 10"):
        Rotate(4).decode(parts, out)


@pytest.mark.parametrize("rank", [0, -1, 1025, 2.0, True, "4", None])
def test_ranks_that_are_none_are_refused(rank):
    with pytest.raises(ValueError, match="expected rank to be an integer from 1 to 1024, got"):
        Rotate(rank)
