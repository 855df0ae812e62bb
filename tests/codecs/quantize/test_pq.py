"""`pq`: vectors learned by scikit-learn, which decoding never needs."""

import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantizer_cases import FLOATS, WIDE, restored, transformed

from tensorcomp.codecs import decode, encode, fit, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.quantize.pq import Pq, _nearest
from tensorcomp.codecs.tree import pack_shared, unpack_shared
from tensorcomp.errors import CodecError, NotRepresentable, PlanError


@pytest.fixture
def learner():
    """Skip where there is no scikit-learn."""
    return pytest.importorskip("sklearn.cluster")


def gaussian(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("k", "codes"), [(20, np.uint8), (300, np.uint16)])
def test_few_distinct_runs_are_exact_without_scikit_learn(dtype, k, codes, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    runs = gaussian(17, 3).astype(dtype)
    array = runs[np.random.default_rng(1).integers(0, 17, (50, 8))].reshape(50, 24)
    parts = transformed(Pq(k, 3), array)
    assert parts["codebook"].size <= 17 * 3
    assert parts["codes"].shape == (50, 8)
    assert parts["codes"].dtype == codes
    assert (restored(Pq(k, 3), array) == array).all()


def test_learning_says_what_to_install_and_decoding_does_not_need_it(learner, monkeypatch):
    array = gaussian(64, 32)
    tree = parse_tree("pq(8, 4)")
    payload = join(encode(tree, array))
    wanted = decode(tree, payload, spec_of(array))
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    assert decode(tree, payload, spec_of(array)).tobytes() == wanted.tobytes()
    with pytest.raises(PlanError, match=r"pip install 'tensorcomp\[cluster\]'"):
        encode(tree, array)
    with pytest.raises(PlanError, match=r"pip install 'tensorcomp\[cluster\]'"):
        fit(tree, array)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@given(st.integers(0, 99), st.integers(1, 300), st.integers(1, 9), st.sampled_from([-120, 0, 120]))
@settings(max_examples=20)
def test_the_nearest_vector_is_what_brute_force_finds(dtype, seed, k, width, power):
    random = np.random.default_rng(seed)
    codebook = np.ldexp(random.standard_normal((k, width)), power).astype(dtype)
    vectors = np.ldexp(random.standard_normal((50, width)), power).astype(dtype)
    vectors[:3] = codebook[0]
    codes = _nearest(vectors, codebook, np.dtype("<u2"))
    away = (np.ldexp(vectors[:, None] - codebook, -power).astype(np.float64) ** 2).sum(axis=-1)
    assert (away[np.arange(50), codes] <= away.min(axis=1) * (1 + 1e-4)).all()
    assert (codebook[codes[:3]] == codebook[0]).all()


def test_ties_go_to_the_first():
    codebook = np.array([[1.0, 0], [0, 1], [0, 1], [-1, 0]])
    vectors = np.array([[0.0, 0], [0, 2], [-9, 0]])
    assert _nearest(vectors, codebook, np.dtype("u1")).tolist() == [0, 1, 3]


def test_vectors_beat_scalars_at_equal_rate(learner):
    array = gaussian(256, 256)
    found = [
        -10 * np.log10(np.mean((restored(codec, array) - array) ** 2))
        for codec in (Pq(256, 4), Pq(16, 2))
    ]
    assert found[0] > 9.8  # a scalar codebook of 4 numbers has 9.30 dB
    assert found[1] > 9.45


def test_correlated_runs_gain_more(learner):
    array = np.repeat(gaussian(128, 64), 4, axis=1) + 0.05 * gaussian(128, 256, seed=1)
    off = np.mean((restored(Pq(256, 4), array) - array) ** 2)
    assert -10 * np.log10(off / np.mean(array**2)) > 22


def test_codebooks_do_not_depend_on_threads(learner):
    limits = pytest.importorskip("threadpoolctl").threadpool_limits
    array = gaussian(128, 128)
    with limits(1):
        wanted = transformed(Pq(64, 4), array)
    for threads in (1, 2, 4):
        with limits(threads):
            found = transformed(Pq(64, 4), array)
        assert found["codebook"].tobytes() == wanted["codebook"].tobytes()
        assert found["codes"].tobytes() == wanted["codes"].tobytes()


@pytest.mark.parametrize("shape", [(5,), (3, 6), (), (1,), (2, 3, 3)])
def test_a_width_that_does_not_divide_rows_is_refused(shape):
    with pytest.raises(NotRepresentable, match="does not divide"):
        Pq(4, 4).encode(np.ones(shape, np.float32))


@pytest.mark.parametrize("shape", [(0,), (0, 8), (8, 0), (4, 2, 3, 3), (36,)])
def test_shapes_are_kept(shape):
    array = np.ones(shape, ml_dtypes.bfloat16)
    assert restored(Pq(4, 9 if array.size else 4), array).tolist() == array.tolist()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_numbers_at_the_ends_of_the_range_stay_finite(learner, dtype):
    info = ml_dtypes.finfo(dtype)
    for unit in (float(info.max), float(info.smallest_subnormal)):
        array = (unit * np.clip(gaussian(40, 20, dtype=np.float64), -1, 1)).astype(dtype)
        found = restored(Pq(8, 2), array).astype(np.float64)
        assert np.isfinite(found).all()
        assert np.abs(found / unit - array.astype(np.float64) / unit).max() < 1.5


def test_chunks_share_a_codebook(learner):
    array = gaussian(60, 200)
    tree = parse_tree("pq(16, 2)")
    shared = fit(tree, array[::2])
    assert len(shared[0]) == 16 * 2 * 4
    again = unpack_shared(tree, pack_shared(shared))
    for chunk in (array[:30], array[30:31], array[31:]):
        assert tree.codec.encode(chunk, shared[0])["codebook"].size == 0
        found = decode(tree, join(encode(tree, chunk, shared)), spec_of(chunk), again)
        assert np.mean((found - chunk) ** 2) < 0.2


@pytest.mark.parametrize(
    ("codebook", "codes", "shared"),
    [
        ([1, 2, 3, 4], [[2]], b""),
        ([1, 2, 3], [[0]], b""),
        ([1] * 6, [[0]], b""),
        ([], [[0]], b""),
        ([1, np.nan], [[0]], b""),
        ([], [[1]], np.float32([1, 2]).tobytes()),
        ([], [[0]], np.float32([1, 2, 3]).tobytes()),
        ([], [[0]], np.float32([1] * 6).tobytes()),
        ([1, 2], [[0, 0]], b""),
    ],
)
def test_damaged_parts_are_refused(codebook, codes, shared):
    parts = {"codebook": np.array(codebook, np.float32), "codes": np.array(codes, np.uint8)}
    with pytest.raises(CodecError):
        Pq(2, 2).decode(parts, np.empty((1, 2), np.float32), shared)
