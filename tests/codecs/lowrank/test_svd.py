"""`svd`: the nearest matrix of a rank, its bounds, its unfoldings, and decoding to the bit."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import ArraySpec, spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.lowrank.svd import Svd, product
from tensorcomp.codecs.payload import approximate, join
from tensorcomp.errors import CodecError, NotRepresentable

FLOATS = [
    np.dtype(kind) for kind in ("f8", "f4", "f2", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)
]


def decaying(rows, columns, *, span=100.0, dtype=np.float32, seed=0):
    """Return a matrix whose singular values fall from 1 to 1 / span, and those values."""
    random = np.random.default_rng(seed)
    shorter = min(rows, columns)
    left = np.linalg.qr(random.standard_normal((rows, shorter)))[0]
    right = np.linalg.qr(random.standard_normal((columns, shorter)))[0]
    values = span ** -(np.arange(shorter) / max(shorter - 1, 1))
    return ((left * values) @ right.T).astype(dtype), values


def through(codec, array):
    """Return what decoding the parts of an array gives, and the parts."""
    parts = codec.encode(readable(array))
    for name, spec in codec.parts(spec_of(array)).items():
        assert parts[name].dtype == spec.dtype
        pairs = zip(spec.shape, parts[name].shape, strict=True)
        assert all(told in (-1, length) for told, length in pairs)
    out = np.empty(array.shape, array.dtype)
    codec.decode(parts, out)
    return out, parts


def rel_l2(array, decoded):
    wide = array.astype(np.float64)
    return np.linalg.norm(wide - decoded.astype(np.float64)) / np.linalg.norm(wide)


@pytest.mark.parametrize("shape", [(60, 90), (90, 60), (64, 64), (7, 200), (200, 7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 3])
def test_no_matrix_of_that_rank_is_nearer(shape, dtype, rank):
    array, values = decaying(*shape, dtype=dtype)
    decoded, parts = through(Svd(rank), array)
    assert parts["left"].shape == (shape[0], rank)
    assert parts["right"].shape == (rank, shape[1])
    best = np.sqrt(np.sum(values[rank:] ** 2) / np.sum(values**2))
    assert rel_l2(array, decoded) == pytest.approx(best, rel=1e-5)


def test_both_factors_have_the_square_roots_of_the_singular_values():
    array, values = decaying(80, 120)
    _, parts = through(Svd(10), array)
    roots = np.sqrt(values[:10])
    assert np.linalg.norm(parts["left"], axis=0) == pytest.approx(roots, rel=1e-4)
    assert np.linalg.norm(parts["right"], axis=1) == pytest.approx(roots, rel=1e-4)


@pytest.mark.parametrize(("rank", "wanted"), [(0.25, 16), (0.001, 1), (0.5, 32), (1, 1), (32, 32)])
def test_rank_is_a_count_or_a_part_of_the_shorter_side(rank, wanted):
    array, _ = decaying(64, 64)
    assert through(Svd(rank), array)[1]["left"].shape == (64, wanted)
    assert Svd(rank).parts(spec_of(array))["right"].shape == (wanted, 64)


def test_a_rank_beyond_the_shorter_side_is_the_shorter_side():
    assert Svd(100).parts(ArraySpec((4, 500), np.dtype("f4")))["left"].shape == (4, 4)


@pytest.mark.parametrize("shape", [(64, 100), (100, 64)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_energy_and_error_take_as_few_components_as_do(shape, dtype):
    array, values = decaying(*shape, dtype=dtype)
    kept = np.cumsum(values**2) / np.sum(values**2)
    for wanted in (0.3, 0.9, 0.99):
        decoded, parts = through(Svd(energy=wanted), array)
        rank = int(np.argmax(kept >= wanted)) + 1
        assert parts["left"].shape == (shape[0], rank)
        assert parts["right"].shape == (rank, shape[1])
        assert 1 - rel_l2(array, decoded) ** 2 >= wanted - 1e-6
    for allowed in (0.9, 0.3, 0.1):
        decoded, parts = through(Svd(error=allowed), array)
        rank = int(np.argmax(1 - kept <= allowed**2)) + 1
        assert parts["left"].shape == (shape[0], rank)
        assert rel_l2(array, decoded) <= allowed * (1 + 1e-6)


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    rank=st.integers(0, 6),
    dtype=st.sampled_from(FLOATS),
    allowed=st.floats(0.001, 0.9),
    scale=st.integers(-120, 120),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_error_keeps_its_bound_or_the_array_is_refused(
    rows, columns, rank, dtype, allowed, scale, seed
):
    random = np.random.default_rng(seed)
    wide = random.standard_normal((rows, rank)) @ random.standard_normal((rank, columns))
    scale = min(max(scale, -5), 4) if dtype.itemsize < 4 and dtype != ml_dtypes.bfloat16 else scale
    array = np.ldexp(wide, scale).astype(dtype)
    try:
        decoded, parts = through(Svd(error=allowed), array)
    except NotRepresentable:
        assert 2 * min(rows, columns) > rows * columns / (rows + columns)
        return
    assert sum(part.size for part in parts.values()) <= array.size
    norm = np.linalg.norm(array.astype(np.float64))
    if norm:
        rounding = 2.0 ** -ml_dtypes.finfo(dtype).nmant + 1e-6
        smallest = float(ml_dtypes.finfo(dtype).smallest_subnormal) * np.sqrt(array.size) / norm
        assert rel_l2(array, decoded) <= allowed + rounding + smallest
    else:
        assert not decoded.astype(np.float64).any()


def test_matrices_of_low_rank_come_back_with_as_few_components():
    random = np.random.default_rng(1)
    array = random.standard_normal((50, 3)) @ random.standard_normal((3, 70))
    for codec in (Svd(energy=1.0), Svd(error=1e-9)):
        decoded, parts = through(codec, array)
        assert parts["left"].shape == (50, 3)
        assert rel_l2(array, decoded) < 1e-13
    decoded, parts = through(Svd(8), array)  # whose last five components are not there
    assert not parts["left"][:, 3:].any()
    assert not parts["right"][3:].any()
    assert rel_l2(array, decoded) < 1e-13


@pytest.mark.parametrize("codec", [Svd(energy=0.5), Svd(error=0.1), Svd(2)])
@pytest.mark.parametrize("shape", [(9, 12), (1, 40), (40, 1), (1, 1), (30,), ()])
def test_zeros(codec, shape):
    array = np.zeros(shape, np.float32)
    if (codec.rank and len(shape) < 2) or (1 in shape and codec.rank):
        with pytest.raises(NotRepresentable, match="more elements"):
            codec.encode(array)
        return
    decoded, parts = through(codec, array)
    assert decoded.tobytes() == array.tobytes()
    assert not parts["left"].any()


@pytest.mark.parametrize("shape", [(1, 50), (50, 1), (50,), (3, 3), ()])
def test_factors_with_more_elements_than_the_matrix_are_refused(shape):
    array = np.random.default_rng(2).standard_normal(shape).astype(np.float32) + 1
    for codec in (Svd(2), Svd(0.9), Svd(energy=0.99), Svd(error=0.001)):
        with pytest.raises(NotRepresentable, match="more elements"):
            codec.encode(np.asarray(array))


@pytest.mark.parametrize("peak", [1e-44, 1e-38, 3e38])
def test_magnitudes_at_the_ends_of_the_range(peak):
    array = np.outer(np.linspace(0.1, 1, 40), np.linspace(-1, 1, 50)) * peak
    decoded, parts = through(Svd(1), array.astype(np.float32))
    assert np.isfinite(parts["left"]).all()
    assert np.abs(decoded - array).max() <= max(1e-6 * peak, 1.5e-45)


@pytest.mark.parametrize("peak", [5e-324, 1e-308, 1.7e308])
def test_doubles_at_the_ends_of_the_range(peak):
    array = np.outer(np.linspace(0.1, 1, 40), np.linspace(-1, 1, 50)) * peak
    decoded, _ = through(Svd(1), array)
    assert np.abs(decoded / 4 - array / 4).max() <= max(1e-13 * peak, 5e-324)


@pytest.mark.parametrize("dtype", [np.dtype(d) for d in ("i4", "u1", "?", "c8")], ids=str)
def test_refuses_other_dtypes(dtype):
    with pytest.raises(NotRepresentable, match="expected a float"):
        Svd(1).encode(np.ones((8, 8), dtype))
    if dtype.kind != "c":
        parts = {"left": np.ones((8, 1), "f4"), "right": np.ones((1, 8), "f4")}
        with pytest.raises(CodecError, match="expected a float"):
            Svd(1).decode(parts, np.empty((8, 8), dtype))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_refuses_nan_and_infinity(bad):
    array = np.ones((9, 9), np.float32)
    array[4, 4] = bad
    with pytest.raises(NotRepresentable, match="NaN or infinity"):
        Svd(1).encode(array)


def test_unfoldings_of_a_convolution():
    random = np.random.default_rng(3)
    # A sum of two products of a vertical and a horizontal convolution: rank 2 if unfolded so.
    vertical = random.standard_normal((6, 2, 5)).astype(np.float32)  # O, r, kh
    horizontal = random.standard_normal((2, 7, 3)).astype(np.float32)  # r, I, kw
    array = np.einsum("orh,riw->oihw", vertical, horizontal)
    decoded, parts = through(Svd(2, unfold="separable"), array)
    assert parts["left"].shape == (6 * 5, 2)
    assert parts["right"].shape == (2, 7 * 3)
    assert rel_l2(array, decoded) < 1e-6
    decoded, parts = through(Svd(2), array)
    assert parts["left"].shape == (6, 2)
    assert parts["right"].shape == (2, 7 * 5 * 3)
    assert rel_l2(array, decoded) > 0.1
    flat = array.reshape(6, -1)
    for unfold in ("rows", "separable"):
        assert through(Svd(2, unfold=unfold), flat)[0].tobytes() == decoded.tobytes()


@pytest.mark.parametrize("unfold", ["rows", "separable"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_residual_restores_the_array(unfold, dtype):
    array = np.random.default_rng(4).standard_normal((8, 6, 5, 5)).astype(dtype)
    codec = Svd(2, unfold=unfold, refine=True)
    decoded, parts = through(codec, array)
    assert parts["residual"].shape == array.shape
    tolerance = {8: 1e-14, 4: 1e-6}.get(dtype.itemsize, 0)
    assert rel_l2(array, decoded) <= tolerance


def test_a_quantized_residual_lowers_the_error_of_a_tree():
    array, _ = decaying(64, 64)
    plain = rel_l2(array, approximate(parse_tree("svd(8)"), array))
    tree = parse_tree("svd(8, refine=true, residual=uniform(0.002))")
    payload = join(encode(tree, array))
    refined = decode(tree, payload, spec_of(array))
    assert rel_l2(array, refined) < plain / 4
    assert len(payload) < array.nbytes
    assert refined.tobytes() == approximate(tree, array).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5, 7, 9), (2, 4, 1030), (3, 5, 2048), (1, 1, 1), (4, 0, 6)])
def test_the_product_is_summed_in_the_order_of_its_terms(shape, dtype):
    rows, rank, columns = shape
    random = np.random.default_rng(5)
    left = random.standard_normal((rows, rank)).astype(dtype)
    right = random.standard_normal((rank, columns)).astype(dtype)
    wanted = np.zeros((rows, columns), dtype)
    for k in range(rank):
        wanted += left[:, k, None] * right[k]  # rounded after each product, and after each sum
    assert product(left, right).tobytes() == wanted.tobytes()


def test_large_matrices_of_small_rank_are_sampled():
    array, values = decaying(600, 520, span=1e4)
    decoded, _ = through(Svd(12), array)
    best = np.sqrt(np.sum(values[12:] ** 2) / np.sum(values**2))
    assert rel_l2(array, decoded) == pytest.approx(best, rel=0.01)


def test_encoding_twice_gives_the_same_bytes():
    for shape, codec in (((600, 520), Svd(12)), ((150, 170), Svd(error=0.5))):
        array, _ = decaying(*shape)
        once, again = codec.encode(array), codec.encode(array.copy())
        for name in once:
            assert once[name].tobytes() == again[name].tobytes()


def test_another_method_is_tried_where_lapack_does_not_converge(monkeypatch):
    array, values = decaying(30, 40)

    def fail(*_, **__):
        raise np.linalg.LinAlgError("no convergence")

    monkeypatch.setattr(np.linalg, "eigh", fail)
    decoded, _ = through(Svd(3), array)
    best = np.sqrt(np.sum(values[3:] ** 2) / np.sum(values**2))
    assert rel_l2(array, decoded) == pytest.approx(best, rel=1e-4)
    monkeypatch.setattr(np.linalg, "svd", fail)
    with pytest.raises(NotRepresentable, match="converge"):
        Svd(3).encode(array)
    monkeypatch.setattr(np.linalg, "svd", lambda a, **_: (np.full((30, 30), np.nan), None, None))
    with pytest.raises(NotRepresentable, match="NaN"):
        Svd(3).encode(array)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [((8, 2), (3, 9), "one rank, got 2 and 3"), ((8, 5), (5, 9), "at most 72 elements, got 85")],
)
def test_damaged_factors(left, right, message):
    parts = {"left": np.ones(left, np.float32), "right": np.ones(right, np.float32)}
    with pytest.raises(CodecError, match=message):
        Svd(energy=0.5).decode(parts, np.empty((8, 9), np.float32))


def test_factors_that_hold_anything_decode_without_a_warning():
    values = np.array([np.nan, np.inf, -3e38, 3e38, 1e-45, 0, -0.0, 1], np.float32)
    parts = {
        "left": values.reshape(8, 1),
        "right": values[::-1].copy().reshape(1, 8),
        "residual": np.full((8, 8), -np.inf, np.float32),
    }
    for dtype in FLOATS:
        out = np.empty((8, 8), dtype)
        if dtype.itemsize <= 4:
            Svd(energy=0.5, refine=True).decode(parts, out)


def test_a_part_whose_elements_do_not_fill_its_shape_is_damaged():
    array, _ = decaying(20, 30)
    tree = parse_tree("svd(energy=0.5, left=raw, right=raw)")
    payload = bytearray(join(encode(tree, array)))
    assert payload[0] == 1
    elements = int.from_bytes(payload[1:9], "little")
    assert elements % 20 == 0
    payload[1] += 1
    with pytest.raises(CodecError, match=f"{elements + 1} elements do not fill the shape"):
        decode(tree, bytes(payload), spec_of(array))


def test_factors_by_codecs_with_contexts_of_rows_and_columns():
    array, _ = decaying(256, 300, span=1000)
    tree = parse_tree("svd(energy=0.999, left=uniform(0.002), right=uniform(0.002))")
    payload = join(encode(tree, array))
    decoded = decode(tree, payload, spec_of(array))
    lossless = join(encode(parse_tree("svd(energy=0.999)"), array))
    assert len(payload) < len(lossless) / 4
    assert rel_l2(array, decoded) < 0.05


@pytest.mark.parametrize("tree", ["svd(error=0.7, refine=true)", "svd(2, refine=true)"])
def test_weights_at_the_end_of_float64_are_refused_or_decoded_finite(tree):
    node, random = parse_tree(tree), np.random.default_rng(0)
    for scale in (1.0, 0.9, 0.3):
        array = np.clip(random.standard_t(5, (64, 8)), -1, 1) * np.finfo(np.float64).max * scale
        try:
            payload = join(encode(node, array))
        except NotRepresentable:
            continue
        with np.errstate(all="ignore"):
            assert np.isfinite(decode(node, payload, spec_of(array))).all()
