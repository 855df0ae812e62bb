"""`channel`, `filter`, `block`, `nm`: exact counts by norm, chunks as the whole, damaged masks."""

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
from tensorcomp.codecs.sparse.block import Block
from tensorcomp.codecs.sparse.channel import Channel
from tensorcomp.codecs.sparse.filter import FilterRows
from tensorcomp.codecs.sparse.nm import NM
from tensorcomp.errors import CodecError, NotRepresentable

FLOATS = [
    np.dtype(kind) for kind in ("f8", "f4", "f2", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2fnuz)
]


def through(codec, array):
    """Return the mask of the kept elements; these come back as they are, the others as +0.0."""
    parts = codec.encode(readable(array))
    for name, spec in codec.parts(spec_of(array)).items():
        assert parts[name].dtype == spec.dtype
        assert all(a in (-1, b) for a, b in zip(spec.shape, parts[name].shape, strict=True))
    out = np.full(array.shape, 1, array.dtype)
    codec.decode(parts, out)
    words, found = (a.view(f"u{array.itemsize}") for a in (array, out))
    kept = found == words
    assert not found[~kept].any()
    return kept, parts


def weights(shape, dtype=np.float32, seed=0):
    """Return floats of which none is zero, many are equal."""
    random = np.random.default_rng(seed)
    return (random.integers(1, 5, shape) * random.choice([-1.0, 1.0], shape)).astype(dtype)


def lowest(norms, count):
    """Return the indices of the lowest norms, the first of equal ones."""
    return sorted(np.lexsort((np.arange(norms.size), norms.reshape(-1)))[:count].tolist())


SHAPES = st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple)
PARTS = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1).map(abs))


@given(SHAPES, st.sampled_from(FLOATS), PARTS, st.integers(0, 99))
def test_channels_of_the_lowest_norm_are_pruned(shape, dtype, sparsity, seed):
    array = weights(shape, dtype, seed)
    kept, parts = through(Channel(sparsity), array)
    squares = np.square(array.astype(np.float64)).sum(axis=(0, *range(2, len(shape))))
    pruned = lowest(squares, round(sparsity * shape[1]))
    assert np.flatnonzero(~parts["mask"]).tolist() == pruned
    assert parts["values"].shape == (shape[0], shape[1] - len(pruned), *shape[2:])
    assert parts["values"].tobytes() == array[:, parts["mask"]].tobytes()
    assert (
        kept
        == np.isin(np.arange(shape[1]), pruned, invert=True).reshape(1, -1, *[1] * (len(shape) - 2))
    ).all()


@given(SHAPES, st.sampled_from(FLOATS), PARTS, st.integers(0, 99))
def test_filters_of_the_lowest_norm_are_pruned(shape, dtype, sparsity, seed):
    array = weights(shape, dtype, seed)
    kept, parts = through(FilterRows(sparsity), array)
    squares = np.square(array.astype(np.float64)).reshape(shape[0], -1).sum(axis=1)
    pruned = lowest(squares, round(sparsity * shape[0]))
    assert np.flatnonzero(~parts["mask"]).tolist() == pruned
    assert parts["values"].tobytes() == array[parts["mask"]].tobytes()
    assert parts["values"].shape == (shape[0] - len(pruned), *shape[1:])
    assert (parts["mask"] == kept.reshape(shape[0], -1).T).all()


@given(
    SHAPES,
    st.sampled_from(FLOATS),
    st.integers(1, 5),
    st.integers(1, 12),
    PARTS,
    st.integers(0, 4),
    st.integers(0, 99),
)
def test_blocks_of_the_lowest_norm_are_pruned(shape, dtype, height, width, sparsity, offset, seed):
    array = weights(shape, dtype, seed)
    codec = Block(height, width, sparsity, offset=offset % height)
    kept, parts = through(codec, array)
    matrix = np.square(array.astype(np.float64)).reshape(shape[0], -1)
    rows = (np.arange(matrix.shape[0]) + codec.offset) // height
    columns = np.arange(matrix.shape[1]) // width
    squares = np.zeros((rows[-1] + 1, columns[-1] + 1))
    np.add.at(squares, (rows[:, None], columns), matrix)
    pruned = lowest(squares, round(sparsity * squares.size))
    assert np.flatnonzero(~parts["mask"]).tolist() == pruned
    mask = parts["mask"][rows[:, None], columns]
    assert (kept.reshape(mask.shape) == mask).all()
    assert parts["values"].tobytes() == array.reshape(mask.shape)[mask].tobytes()


@given(
    st.lists(st.integers(1, 9), max_size=3).map(tuple),
    st.sampled_from(FLOATS),
    st.integers(1, 16),
    st.integers(1, 16),
    st.integers(0, 99),
)
def test_nm_keeps_the_largest_of_each_group(shape, dtype, keep, group, seed):
    keep = min(keep, group)
    array = weights(shape, dtype, seed)
    kept, parts = through(NM(keep, group), array)
    rows = array.reshape(shape[0] if len(shape) > 1 else 1, -1)
    wanted = np.zeros(rows.shape, np.bool_)
    for i, start in itertools.product(range(len(rows)), range(0, rows.shape[1], group)):
        magnitudes = np.abs(rows[i, start : start + group].astype(np.float64))
        best = np.lexsort((np.arange(magnitudes.size), -magnitudes))[:keep]
        wanted[i, start + best] = True
    assert (kept.reshape(wanted.shape) == wanted).all()
    assert parts["values"].tobytes() == rows[wanted].tobytes()
    assert parts["values"].shape[0] == len(rows)


def test_nm_by_hand():
    array = np.array([[1, -3, 2, 0, 5, 5], [0, 0, 0, 0, -1, 1]], np.float32)
    _, parts = through(NM(2, 4), array)
    assert parts["mask"].tolist() == [[0b0110, 0b11], [0b0011, 0b11]]
    assert parts["values"].tolist() == [[-3, 2, 5, 5], [0, 0, -1, 1]]
    assert NM(2, 9).parts(spec_of(array))["mask"].dtype == np.uint16


@given(
    shape=SHAPES,
    cuts=st.lists(st.integers(1, 8), max_size=3),
    codec=st.one_of(
        st.builds(Channel, PARTS),
        st.builds(FilterRows, PARTS),
        st.builds(Block, st.integers(1, 5), st.integers(1, 9), PARTS),
        st.just(NM(2, 4)),
    ),
    dtype=st.sampled_from(FLOATS),
    seed=st.integers(0, 99),
)
def test_chunks_keep_together_what_the_whole_keeps(shape, cuts, codec, dtype, seed):
    array = weights(shape, dtype, seed)
    edges = sorted({0, shape[0], *(cut for cut in cuts if cut < shape[0])})
    bounds = list(itertools.pairwise(edges))
    whole = np.empty_like(array)
    codec.decode(codec.encode(readable(array)), whole)
    pieces = []
    for chunk_codec, (start, stop) in zip(codec.per_chunk(array, bounds), bounds, strict=True):
        chunk = readable(array[start:stop])
        parts = chunk_codec.encode(chunk)
        for name, spec in codec.parts(spec_of(chunk)).items():  # what the decoder expects
            assert parts[name].dtype == spec.dtype
            assert all(a in (-1, b) for a, b in zip(spec.shape, parts[name].shape, strict=True))
        piece = np.empty_like(chunk)
        codec.decode(parts, piece)
        pieces.append(piece)
    assert np.concatenate(pieces).tobytes() == whole.tobytes()


def test_norms_do_not_depend_on_how_rows_are_cut():
    array = np.random.default_rng(1).standard_normal((64, 33, 3)).astype(np.float32)
    for codec in (Channel(0.5), FilterRows(0.5), Block(5, 7, 0.5)):
        one = codec.per_chunk(array, [(0, 64)])[0]
        cut = codec.per_chunk(array, [(0, 13), (13, 14), (14, 64)])
        if isinstance(codec, Channel):
            assert {c.keep for c in cut} == {one.keep}
        assert isinstance(hash(one), int)
        assert parse_tree(f'{codec.id}(keep="{one.keep}")')


@pytest.mark.parametrize("codec", [Channel(0.5), FilterRows(0.5), Block(2, 2)], ids=lambda c: c.id)
def test_arrays_of_less_than_two_axes_are_refused(codec):
    for shape in ((), (7,), (0,)):
        array = np.ones(shape, np.float32)
        with pytest.raises(NotRepresentable, match=codec.id):
            codec.encode(array)
        with pytest.raises(NotRepresentable, match=codec.id):
            codec.per_chunk(array, [(0, 1)])
        specs = codec.parts(spec_of(array))
        parts = {
            name: np.zeros([0 if n == -1 else n for n in spec.shape], spec.dtype)
            for name, spec in specs.items()
        }
        with pytest.raises(CodecError, match=codec.id):
            codec.decode(parts, np.empty(shape, np.float32))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (3, 0, 2), (0, 0)])
def test_arrays_without_elements(shape):
    array = np.empty(shape, np.float32)
    for codec in (Channel(0.5), FilterRows(0.5), Block(2, 2), NM()):
        through(codec, array)
        tree = parse_tree(codec.id)
        assert decode(tree, join(encode(tree, array)), spec_of(array)).shape == shape


CODECS = [Channel(0.5), FilterRows(0.5), Block(2, 2), NM()]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.id)
def test_other_dtypes_and_values_are_refused(codec):
    for dtype in ("i4", "u1", "?", "c8", ml_dtypes.float8_e8m0fnu):
        with pytest.raises(NotRepresentable, match="expected a float type"):
            codec.encode(np.ones((4, 4), dtype))
    bad = np.ones((4, 4), np.float32)
    bad[3, 3] = np.nan
    with pytest.raises(NotRepresentable, match="NaN"):
        codec.encode(bad)
    parts = codec.encode(readable(np.ones((4, 4), np.float32)))
    with pytest.raises(CodecError, match="expected a float type"):
        codec.decode(parts, np.empty((4, 4), np.int32))


@pytest.mark.parametrize("codec", CODECS[:3], ids=lambda codec: codec.id)
def test_squares_that_overflow_are_refused(codec):
    with pytest.raises(NotRepresentable, match="overflow"):
        codec.encode(np.full((4, 4), 1e200))
    through(codec, np.full((4, 4), 3e38, np.float32))


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.id)
def test_denormals(codec):
    array = np.arange(1, 17, dtype=np.uint32).reshape(4, 4).view(np.float32)
    kept, _ = through(codec, array)
    assert kept.sum() == 8


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.id)
def test_damaged_parts(codec):
    parts = codec.encode(readable(weights((8, 8))))
    out = np.empty((8, 8), np.float32)
    with pytest.raises(CodecError, match="kept values, got"):
        codec.decode({**parts, "values": parts["values"].reshape(-1)[1:]}, out)
    if codec.id == "nm":
        for pattern in (0b0001, 0b0111, 0b110000, 0):
            mask = parts["mask"].copy()
            mask[3, 1] = pattern
            with pytest.raises(CodecError, match="keep 2 of 4"):
                codec.decode({**parts, "mask": mask}, out)
        return
    mask = parts["mask"].copy()
    mask.view(np.uint8)[..., 0] = 2
    with pytest.raises(CodecError, match="neither 0 nor 1"):
        codec.decode({**parts, "mask": mask}, out)
    with pytest.raises(CodecError, match="kept values, got"):
        codec.decode({**parts, "mask": np.ones_like(mask)}, out)
    if codec.id == "block":
        with pytest.raises(CodecError, match="blocks down"):
            codec.decode({**parts, "mask": parts["mask"][1:]}, out)
        for origin in (1, 2, 2**32 - 1):
            with pytest.raises(CodecError, match="blocks down"):
                codec.decode({**parts, "origin": np.array(origin, np.uint32)}, out)


def test_a_given_mask_overrides_the_sparsity():
    array = weights((6, 10))
    kept, parts = through(Channel(0.1, keep="a040"), array)
    assert np.flatnonzero(parts["mask"]).tolist() == [0, 2, 9]
    assert kept.sum() == 18
    for codec in (Channel(keep="a0"), Channel(keep="a041"), FilterRows(keep="01"), Block(keep="")):
        if codec.keep:
            with pytest.raises(NotRepresentable, match="a mask of the shape"):
                codec.encode(array)


def test_masks_of_n_of_m_are_coded_near_their_entropy():
    array = np.random.default_rng(2).standard_normal((256, 1024)).astype(np.float32)
    payload = join(encode(parse_tree("nm(2, 4, values=raw)"), array))
    bits = 8 * (len(payload) - array.nbytes / 2) / (array.size / 4)
    assert bits < math.log2(6) + 0.02


@pytest.mark.parametrize("arguments", ["filter(", "channel(", "block(8, 8, ", "nm("])
def test_trees_with_a_quantizer(arguments):
    array = np.random.default_rng(3).standard_normal((128, 200)).astype(np.float32)
    tree = parse_tree(f"{arguments}values=uniform(0.05))")
    payload = join(encode(tree, array))
    decoded = decode(tree, payload, spec_of(array))
    assert np.abs((decoded - array)[decoded != 0]).max() < 0.051
    assert 8 * len(payload) / array.size < 4
