"""`kmeans`: the best codebook, the nearest number of it, one for all chunks."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantizer_cases import FLOATS, WIDE, float_arrays, half_unit, restored, transformed

from tensorcomp.codecs import decode, encode, fit, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.quantize.codebooks import code_dtype, learn_codebook, nearest
from tensorcomp.codecs.quantize.kmeans import Kmeans
from tensorcomp.codecs.tree import pack_shared, unpack_shared
from tensorcomp.errors import CodecError


def readonly(array):
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


def mean_square(values, codebook):
    """Return the mean squared distance to the nearest number, by brute force on sorted values."""
    codes = nearest(values, codebook, np.dtype("<u2"))
    return float(np.mean((values.astype(np.float64) - codebook[codes]) ** 2))


def best_mean_square(values, k):
    """Return the least that any codebook of k numbers has, by dynamic programming on all values."""
    values = np.sort(values.astype(np.float64))
    sums = np.concatenate([np.zeros((2, 1)), np.cumsum([values, values**2], axis=1)], axis=1)
    first, last = np.triu_indices(values.size + 1, 1)
    costs = np.full((values.size + 1,) * 2, np.inf)
    total, squares = sums[:, last] - sums[:, first]
    costs[first, last] = squares - total**2 / (last - first)
    best = np.full(values.size + 1, np.inf)
    best[0] = 0
    for _ in range(k):
        best = np.minimum((best[:, None] + costs).min(axis=0), best)
    return best[-1] / values.size


@pytest.mark.parametrize("k", [2, 3, 8, 16, 64])
@pytest.mark.parametrize("law", ["normal", "laplace", "student", "uniform", "clusters", "skewed"])
def test_no_codebook_is_better(law, k):
    random = np.random.default_rng(k)
    values = {
        "normal": lambda: random.standard_normal(400),
        "laplace": lambda: random.laplace(size=400),
        "student": lambda: random.standard_t(2, 400),
        "uniform": lambda: random.random(400),
        "clusters": lambda: 9 * random.random(40)[random.integers(40, size=400)] + random.random(),
        "skewed": lambda: random.exponential(size=400) ** 3,
    }[law]()
    values = readonly((values + 0.001 * random.standard_normal(400)).astype(np.float32))
    found = mean_square(values, learn_codebook(values, k))
    assert found <= best_mean_square(values, k) * 1.001


# Max 1960, "Quantizing for minimum distortion", table I, for a Gaussian of variance 1.
@pytest.mark.parametrize(
    ("k", "wanted"),
    [(2, 0.3634), (4, 0.1175), (8, 0.03454), (16, 0.009497), (32, 0.002499), (36, 0.001985)],
)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_gaussian_codebooks_have_the_error_of_the_tables(k, wanted, dtype):
    values = readonly(np.random.default_rng(5).standard_normal(300_000).astype(dtype))
    codebook = learn_codebook(values, k)
    assert codebook.size == k
    assert mean_square(values, codebook) == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("k", [64, 256, 1024, 5000])
def test_fine_codebooks_come_near_the_law_of_panter_and_dite(k):
    values = readonly(np.random.default_rng(6).standard_normal(200_000).astype(np.float32))
    assert mean_square(values, learn_codebook(values, k)) * k**2 < 2.73


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [3, 500, 5000, 40_000])
def test_few_distinct_values_are_exact(size, dtype):
    random = np.random.default_rng(size)
    values = np.append(random.standard_normal(13), [0, -0.0, 60]).astype(dtype)
    array = values[random.integers(0, values.size, size)]
    parts = transformed(Kmeans(16), array)
    distinct = np.unique(array.astype(np.float64))
    assert parts["codebook"].astype(np.float64).tolist() == distinct.tolist()
    assert not np.signbit(parts["codebook"][parts["codebook"] == 0]).any()
    assert (restored(Kmeans(16), array) == array).all()


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_neighbouring_floats_are_told_apart(dtype):
    start = np.array(0.1, dtype)
    array = np.append(np.repeat([start, np.nextafter(start, dtype.type(1))], 30_000), -start)
    assert (restored(Kmeans(3), array) == array).all()
    assert transformed(Kmeans(2), array)["codebook"].size == 2


def test_sixteen_bits_of_distinct_values_are_exact():
    array = np.random.default_rng(7).permutation(np.arange(1 << 16, dtype=np.float32)) - 31_000
    parts = transformed(Kmeans(1 << 16), array)
    assert parts["codes"].dtype == np.uint16
    assert parts["codebook"].size == 1 << 16
    assert (restored(Kmeans(1 << 16), array) == array).all()


@given(float_arrays(), st.sampled_from([2, 3, 16, 200, 300]))
def test_every_element_gets_its_nearest_number(array, k):
    codec = Kmeans(k)
    parts = transformed(codec, array)
    codebook = parts["codebook"].astype(np.float64)
    assert 0 < codebook.size <= k or array.size == 0
    assert (np.diff(codebook) > 0).all()
    found = restored(codec, array).astype(np.float64)
    if array.size:
        wide = array.astype(np.float64)
        with np.errstate(over="ignore"):
            least = np.abs(wide[..., None] / 2 - codebook / 2).min(axis=-1)
            slack = half_unit(found, array.dtype) + np.abs(found) * 2.0**-23
            assert (np.abs(wide / 2 - found / 2) <= least * (1 + 1e-6) + slack).all()


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("size", [2000, 20_000])
@pytest.mark.parametrize("spread", [1.0, 1e-5, 1e30])
@pytest.mark.parametrize("k", [1, 2, 16, 255, 3000])
def test_nearest_is_what_brute_force_finds(dtype, size, spread, k):
    random = np.random.default_rng(k)
    codebook = np.unique((1 + spread * random.standard_normal(k)).astype(dtype))
    values = (1 + spread * random.standard_normal(size)).astype(dtype)
    values[:3] = codebook[0], codebook[-1], -0.0
    codes = nearest(readonly(values), codebook, code_dtype(k))
    looked_at = np.arange(0, size, max(size // 2000, 1))
    away = np.abs(values[looked_at, None].astype(np.longdouble) - codebook)
    chosen = away[np.arange(looked_at.size), codes[looked_at]]
    assert (chosen <= away.min(axis=1) + 2 * np.finfo(dtype).eps * np.abs(1 + spread)).all()


@pytest.mark.parametrize("size", [1000, 100_000])
@pytest.mark.parametrize("outlier", [1e4, -1e12, -1e30, 3e38])
def test_an_outlier_takes_one_number_and_no_more(size, outlier):
    values = np.random.default_rng(8).standard_normal(size).astype(np.float32)
    codebook = learn_codebook(readonly(np.append(values, np.float32(outlier))), 16)
    assert np.float32(outlier) in codebook
    assert mean_square(values, codebook) < 0.0125


@pytest.mark.parametrize("size", [900, 9000, 90_000])
def test_the_codebook_depends_on_the_values_and_not_on_their_order(size):
    random = np.random.default_rng(9)
    values = random.standard_normal(size).astype(np.float32)
    for k in (4, 100, 1500):
        wanted = learn_codebook(readonly(values), k)
        found = learn_codebook(readonly(random.permutation(values)), k)
        assert found.tobytes() == wanted.tobytes()
        assert learn_codebook(readonly(-values), k)[::-1] == pytest.approx(-wanted, abs=0.2)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_numbers_at_the_ends_of_the_range_do_not_overflow(dtype):
    limit = np.finfo(dtype).max
    random = np.random.default_rng(10)
    for unit in (limit, np.finfo(dtype).smallest_subnormal * 1000):
        array = (unit * random.uniform(-1, 1, 50_000)).astype(dtype)
        found = restored(Kmeans(16), array)
        assert np.isfinite(found).all()
        assert np.abs(found / unit - array / unit).max() < 0.07
    many = np.repeat(np.array([limit, -limit, 0, 1], dtype), 1024)
    assert np.isfinite(restored(Kmeans(3), many)).all()


def test_chunks_share_a_codebook():
    random = np.random.default_rng(11)
    array = random.standard_normal((60, 500)).astype(ml_dtypes.bfloat16)
    tree = parse_tree("kmeans(16, codes=huffman)")
    shared = fit(tree, array[::3])
    assert len(shared[0]) == 16 * 4
    again = unpack_shared(tree, pack_shared(shared))
    values = set()
    for chunk in (array[:20], array[20:21], array[21:]):
        assert tree.codec.encode(np.ascontiguousarray(chunk), shared[0])["codebook"].size == 0
        found = decode(tree, join(encode(tree, chunk, shared)), spec_of(chunk), again)
        assert np.abs(found.astype(np.float32) - chunk.astype(np.float32)).max() < 3
        values |= set(found.astype(np.float32).reshape(-1).tolist())
    assert len(values) <= 16


def test_a_sample_without_elements_leaves_chunks_to_themselves():
    array = np.linspace(-1, 1, 100, dtype=np.float32)
    assert Kmeans(4).fit(array[:0]) == b""
    assert len(np.unique(restored(Kmeans(4), array))) == 4


@pytest.mark.parametrize(
    ("codebook", "codes", "shared"),
    [
        ([1, 2], [0, 2], b""),
        ([], [0, 0], b""),
        ([1, np.nan], [0, 0], b""),
        ([1, np.inf], [0, 1], b""),
        ([], [0, 1], np.float32([1]).tobytes()),
        ([], [0, 0], np.float32([1, 2, 3]).tobytes()),
        ([], [0, 0], np.float32([1]).tobytes()[:3]),
        ([], [0, 0], np.float32([-np.inf]).tobytes()),
    ],
)
def test_damaged_parts_are_refused(codebook, codes, shared):
    parts = {"codebook": np.array(codebook, np.float32), "codes": np.array(codes, np.uint8)}
    with pytest.raises(CodecError):
        Kmeans(2).decode(parts, np.empty(2, np.float32), shared)
