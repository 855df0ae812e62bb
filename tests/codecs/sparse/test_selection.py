"""`magnitude`, `topk`, `threshold`, `randomk`: exact counts, ties by index, chunks as the whole."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.sparse.magnitude import Magnitude
from tensorcomp.codecs.sparse.randomk import RandomK
from tensorcomp.codecs.sparse.threshold import Threshold
from tensorcomp.codecs.sparse.topk import TopK
from tensorcomp.errors import CodecError, NotRepresentable

FLOATS = [
    np.dtype(kind)
    for kind in (
        "f8",
        "f4",
        "f2",
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2fnuz,
    )
]
WORD = 1 << 64


def through(codec, array):
    """Return the mask of what is kept, having checked the parts and what they decode to."""
    parts = codec.encode(readable(array))
    for name, spec in codec.parts(spec_of(array)).items():
        assert parts[name].dtype == spec.dtype
    words = array.reshape(-1).view(f"u{array.itemsize}")
    if "mask" in parts:
        assert parts["mask"].shape == array.shape
        mask = parts["mask"].reshape(-1)
    else:
        mask = drawn(*(int(word) for word in parts["state"]), array.size, parts["values"].size)
    assert parts["values"].tobytes() == words[mask].tobytes()
    out = np.full(array.shape, 1, array.dtype)
    codec.decode(parts, out)
    found = out.reshape(-1).view(words.dtype)
    assert found[mask].tobytes() == words[mask].tobytes()
    assert not found[~mask].any()  # +0.0, whatever was there
    return mask


def drawn(seed, start, limit, size, count):
    """Return which indices draw a number of at most `limit`, one after the other."""

    def mixed(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
        return z ^ z >> 31

    state = mixed(seed)
    numbers = [mixed((state + (start + i + 1) * 0x9E3779B97F4A7C15) % WORD) for i in range(size)]
    mask = np.array([number <= limit for number in numbers], np.bool_) & (count > 0)
    assert mask.sum() == count
    return mask


def kept_by_sorting(array, keep, *, first):
    """Return the mask of the largest magnitudes by sorting all of them."""
    magnitudes = np.abs(array.reshape(-1).astype(np.float64))
    index = np.arange(array.size)
    order = np.lexsort((-index if first else index, magnitudes))
    mask = np.zeros(array.size, np.bool_)
    mask[order[array.size - keep :]] = True
    return mask


@st.composite
def float_arrays(draw):
    """Draw arrays of any float dtype: ties, zeros of both signs, denormals, all equal, normal."""
    dtype = draw(st.sampled_from(FLOATS))
    shape = tuple(draw(st.lists(st.integers(0, 12), max_size=3)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["few", "equal", "denormal", "normal", "bits"]))
    if kind == "few":
        array = random.choice([-2, -1, -0.0, 0.0, 1, 2], shape).astype(dtype)
    elif kind == "equal":
        array = (random.choice([-0.5, 0.5], shape)).astype(dtype)
    elif kind == "normal":
        array = random.standard_normal(shape).astype(dtype)
    else:
        words = random.integers(0, 2**64, shape, np.uint64)
        fraction = ml_dtypes.finfo(dtype).nmant
        sign = 1 << (8 * dtype.itemsize - 1)
        if kind == "denormal":
            words &= np.uint64((1 << fraction) - 1 | sign)
        array = np.asarray(words).astype(f"u{dtype.itemsize}").view(dtype)
        with np.errstate(invalid="ignore"):  # a signalling NaN may be drawn
            finite = np.isfinite(array.astype(np.float64))
        array = np.where(finite, array, dtype.type(0))
    return np.asarray(array).astype(dtype).reshape(shape)


@given(array=float_arrays(), sparsity=st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1)))
def test_magnitude_prunes_an_exact_part(array, sparsity):
    sparsity = abs(sparsity)
    mask = through(Magnitude(sparsity), array)
    keep = array.size - round(sparsity * array.size)
    assert mask.sum() == keep
    assert (mask == kept_by_sorting(array, keep, first=False)).all()
    counted = through(Magnitude(count=array.size - keep), array)
    assert (counted == mask).all()


@given(array=float_arrays(), keep=st.one_of(st.integers(0, 2000), st.floats(0, 0.999)))
def test_topk_keeps_an_exact_count(array, keep):
    keep = abs(keep)
    mask = through(TopK(keep), array)
    count = min(keep, array.size) if isinstance(keep, int) else round(keep * array.size)
    assert mask.sum() == count
    assert (mask == kept_by_sorting(array, count, first=True)).all()


@given(array=float_arrays(), keep=st.one_of(st.integers(0, 2000), st.floats(0, 0.999)))
def test_randomk_keeps_an_exact_count(array, keep):
    keep = abs(keep)
    mask = through(RandomK(keep, seed=WORD - 1, offset=WORD - 5), array)
    assert mask.sum() == (
        min(keep, array.size) if isinstance(keep, int) else round(keep * array.size)
    )


@given(array=float_arrays(), value=st.one_of(st.floats(0, 3), st.sampled_from([0, 1, 0.5, 1e300])))
def test_threshold_keeps_what_is_not_below(array, value):
    mask = through(Threshold(abs(value)), array)
    assert (mask == (np.abs(array.reshape(-1).astype(np.float64)) >= value)).all()


@given(
    array=float_arrays(),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    codec=st.one_of(
        st.floats(0, 1).map(lambda part: Magnitude(abs(part))),
        st.integers(0, 300).map(lambda count: Magnitude(count=count)),
        st.one_of(st.integers(0, 300), st.floats(0, 0.99)).map(lambda keep: TopK(abs(keep))),
        st.builds(RandomK, st.integers(0, 300), seed=st.integers(0, 99)),
        st.just(Threshold(0.7)),
    ),
)
def test_chunks_keep_together_what_the_whole_keeps(array, cuts, codec):
    if array.ndim == 0:
        array = array.reshape(1)
    edges = sorted({0, len(array), *(cut for cut in cuts if cut < len(array))})
    bounds = list(itertools.pairwise(edges)) or [(0, 0)]
    codecs = codec.per_chunk(array, bounds)
    assert len(codecs) == len(bounds)
    whole = np.empty_like(array)
    codec.decode(codec.encode(readable(array)), whole)
    pieces = []
    for chunk_codec, (start, stop) in zip(codecs, bounds, strict=True):
        chunk = readable(array[start:stop])
        piece = np.empty_like(chunk)
        codec.decode(chunk_codec.encode(chunk), piece)  # by the tensor's codec, not the chunk's
        pieces.append(piece)
    assert np.concatenate(pieces).tobytes() == whole.tobytes()


def test_ties_by_hand():
    array = np.array([1, -2, 2, 1, -1, 2, 0.5], np.float32)
    assert through(Magnitude(count=3), array).tolist() == [0, 1, 1, 0, 1, 1, 0]
    assert through(TopK(4), array).tolist() == [1, 1, 1, 0, 0, 1, 0]
    assert through(TopK(2), array).tolist() == [0, 1, 1, 0, 0, 0, 0]
    assert through(Threshold(1), array).tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert through(Magnitude(0.5), array[:5]).tolist() == [0, 1, 1, 0, 1]  # 2.5 goes to 2


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_many_equal_elements_in_long_arrays(dtype):
    random = np.random.default_rng(6)
    array = np.rint(random.standard_normal(70_000) * 2).astype(dtype)
    for sparsity in (0.001, 0.5, 0.9, 0.99999):
        mask = through(Magnitude(sparsity), array)
        keep = array.size - round(sparsity * array.size)
        assert (mask == kept_by_sorting(array, keep, first=False)).all()


def test_a_threshold_is_compared_exactly():
    for value in (0.1, 1 / 3, 1e-46, 1e39, float(np.float32(0.1))):
        near = np.float32(min(value, 3e38))
        near = np.array([np.nextafter(near, np.float32(0)), near, -near, 0.0], np.float32)
        mask = through(Threshold(value), near)
        assert mask.tolist() == [abs(float(x)) >= value for x in near]


def test_random_elements_are_spread_evenly_and_differ_by_seed():
    array = np.ones(200_000, np.float32)
    parts = [RandomK(0.1, seed=seed).encode(readable(array)) for seed in (0, 1)]
    outs = []
    for part in parts:
        out = np.empty_like(array)
        RandomK(0.5).decode(part, out)  # the state tells all
        outs.append(out > 0)
    for mask in outs:
        counts = mask.reshape(100, -1).sum(1)
        assert mask.sum() == 20_000
        assert abs(counts - 200).max() < 5 * math.sqrt(180)
        assert abs(int((mask[1:] & mask[:-1]).sum()) - 2000) < 250
    assert abs(int((outs[0] & outs[1]).sum()) - 2000) < 250


def test_random_draws_do_not_change():
    mask = through(RandomK(5, seed=42), np.ones(20, np.float16))
    assert np.flatnonzero(mask).tolist() == [3, 13, 14, 16, 18]


def test_random_mask_takes_no_room():
    array = np.random.default_rng(7).standard_normal((100, 100)).astype(np.float32)
    payload = join(encode(parse_tree("randomk(0.1, values=raw)"), array))
    assert len(payload) < 4 * 1000 + 64


CODECS = [Magnitude(0.5), TopK(3), RandomK(3), Threshold(0.5)]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.id)
@pytest.mark.parametrize("dtype", [np.dtype(d) for d in ("i4", "u1", "?", "c8", "c16")], ids=str)
def test_other_dtypes_are_refused(codec, dtype):
    with pytest.raises(NotRepresentable, match=f"{codec.id}: expected a float"):
        codec.encode(np.ones(8, dtype))
    parts = codec.encode(readable(np.ones(8, np.float32)))
    parts["values"] = parts["values"].astype(dtype)
    with pytest.raises(CodecError, match="expected a float"):
        codec.decode(parts, np.empty(8, dtype))


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.id)
def test_a_dtype_without_a_zero_is_refused(codec):
    with pytest.raises(NotRepresentable, match="with a zero"):
        codec.encode(np.ones(8, ml_dtypes.float8_e8m0fnu))


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.id)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", FLOATS[:4], ids=str)
def test_nan_and_infinity_are_refused(codec, bad, dtype):
    array = np.ones((6, 5), dtype)
    array[4, 2] = bad
    with pytest.raises(NotRepresentable, match=f"{codec.id}: .*NaN"):
        codec.encode(array)
    if not isinstance(codec, Threshold):
        with pytest.raises(NotRepresentable, match=f"{codec.id}: .*NaN"):
            codec.per_chunk(array, [(0, 3), (3, 6)])


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.id)
@pytest.mark.parametrize("change", [-1, 1])
def test_another_number_of_values_is_damage(codec, change):
    array = np.linspace(-1, 1, 40, dtype=np.float32)
    parts = codec.encode(readable(array))
    parts["values"] = np.resize(parts["values"], parts["values"].size + change)
    with pytest.raises(CodecError, match="kept values, got"):
        codec.decode(parts, np.empty_like(array))


def test_a_mask_of_other_bytes_is_damage():
    parts = TopK(3).encode(readable(np.linspace(-1, 1, 40, dtype=np.float32)))
    parts["mask"] = np.full(40, 2, np.uint8).view(np.bool_)
    with pytest.raises(CodecError, match="neither 0 nor 1"):
        TopK(3).decode(parts, np.empty(40, np.float32))


@pytest.mark.parametrize(
    "text",
    [
        "magnitude(0.9, values=kmeans(16, codes=huffman), mask=gaps)",
        "topk(0.1, values=uniform(0.01))",
        "magnitude(0.9, values=svd(2))",
    ],
)
def test_trees(text):
    array = np.random.default_rng(8).standard_normal((200, 300)).astype(np.float32)
    tree = parse_tree(text)
    payload = join(encode(tree, array))
    decoded = decode(tree, payload, spec_of(array))
    assert np.count_nonzero(decoded) == array.size // 10
    assert array.nbytes / len(payload) > 7
    kept = decoded != 0
    assert np.linalg.norm((decoded - array)[kept]) < 0.1 * np.linalg.norm(array[kept])
