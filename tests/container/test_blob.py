import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.container.blob import Blob, ChunkCoder, blob_index, index_bytes
from tensorcomp.container.chunk_grid import MAX_CHUNK_ELEMENTS, chunk_grid
from tensorcomp.dtypes import dtype_bits
from tensorcomp.errors import CodecError, FormatError, NotRepresentable

SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple)
DTYPES = st.sampled_from(["F32", "BF16", "BOOL", "C64", "C128", "I64", "F8_E8M0", "F4", "F32X"])


@given(dtype=DTYPES, shape=SHAPES, elements=st.integers(1, 50))
def test_chunks_cover_a_tensor_once_and_in_order(dtype, shape, elements):
    nbytes = math.prod(shape) * (dtype_bits(dtype) or 8) // 8
    grid = chunk_grid(dtype, shape, nbytes, elements)
    assert grid.nbytes == nbytes
    assert grid.count >= 1
    bounds = [grid.bounds(index) for index in range(grid.count)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == grid.shape[0]
    assert all(first[1] == second[0] for first, second in pairwise(bounds))
    assert all(stop > start for start, stop in bounds) or nbytes == 0
    for index, (start, stop) in enumerate(bounds):
        spec = grid.spec(index)
        assert spec.size <= elements
        assert spec.shape == (stop - start, *grid.shape[1:])
        assert spec.dtype.kind not in "bc"


def test_chunks_end_with_rows_where_a_row_fits():
    grid = chunk_grid("F32", (10, 3, 4), 480, 30)
    assert grid.shape == (10, 3, 4)
    assert [grid.bounds(index) for index in range(grid.count)] == [
        (0, 2),
        (2, 4),
        (4, 6),
        (6, 8),
        (8, 10),
    ]
    assert chunk_grid("F32", (2, 31), 248, 30).shape == (62,)


def test_a_huge_tensor_is_cut_without_being_there():
    grid = chunk_grid("U8", (1 << 33, 7), 7 << 33)
    start, stop = grid.bounds(grid.count - 1)
    assert stop == 1 << 33
    assert 0 < (stop - start) * 7 <= MAX_CHUNK_ELEMENTS


def blob_of(shared: bytes, *payloads: bytes) -> np.ndarray:
    import xxhash

    entries = [(len(payload), xxhash.xxh3_64_intdigest(payload)) for payload in payloads]
    data = shared + b"".join(payloads) + blob_index(shared, entries)
    return np.frombuffer(data, np.uint8)


def test_a_blob_gives_back_its_parts():
    data = blob_of(b"shared", b"first", b"", b"third")
    assert data.size == 16 + index_bytes(3)
    blob = Blob.open(data, 3, "x")
    assert blob.shared() == b"shared"
    assert [blob.payload(chunk).tobytes() for chunk in range(3)] == [b"first", b"", b"third"]


def test_a_damaged_chunk_is_named_and_the_others_are_whole():
    data = blob_of(b"shared", b"first", b"second").copy()
    data[8] ^= 1
    blob = Blob.open(data, 2, "layer")
    assert blob.shared() == b"shared"
    assert blob.payload(1).tobytes() == b"second"
    with pytest.raises(FormatError, match=r"tensor 'layer'.*chunk 0.*damaged"):
        blob.payload(0)
    data[0] ^= 1
    with pytest.raises(FormatError, match="what its chunks share"):
        blob.shared()


def test_a_single_chunk_shares_nothing_and_is_indexed_by_its_checksum():
    data = blob_of(b"", b"only")
    assert data.size == 4 + index_bytes(1) == 12
    assert Blob.open(data, 1, "x").payload(0).tobytes() == b"only"
    assert Blob.open(data, 1, "x").shared() == b""
    with pytest.raises(ValueError, match="shares nothing"):
        blob_of(b"shared", b"only")


@given(st.binary(max_size=200), st.integers(1, 9), st.sampled_from([1, 2]))
def test_no_bytes_make_a_blob_that_reads_outside_itself(data, chunks, version):
    try:
        blob = Blob.open(np.frombuffer(data, np.uint8), chunks, "x", version)
    except FormatError:
        return
    starts, stops = zip(*((start, stop) for start, stop, _ in blob.parts), strict=True)
    assert starts == (0, *stops[:-1])
    assert all(start <= stop for start, stop in zip(starts, stops, strict=True))
    assert stops[-1] == len(data) - index_bytes(chunks, version)


GRID = np.rint(np.arange(-3000, 3000) / 30).astype(np.float32).reshape(60, 100) / 8
NO_GRID = np.random.default_rng(1).standard_normal((60, 100)).astype(np.float32)
TREES = (parse_tree("grid"), parse_tree("fields"))


def test_chunks_that_the_first_tree_cannot_take_get_the_second():
    coder = ChunkCoder.learn(TREES, GRID)
    again = ChunkCoder.unpack(TREES, coder.pack())
    for array, mark in ((GRID, 1), (NO_GRID, 2), (GRID[:7], 1), (NO_GRID[:0], 0)):
        payload = np.frombuffer(join(coder.encode(array)), np.uint8)
        assert len(payload) <= array.nbytes + 2
        assert payload[0] == mark or array.size == 0
        decoded = again.decode(payload, spec_of(array), None)
        assert decoded.tobytes() == array.tobytes()


@pytest.mark.parametrize("array", [GRID, NO_GRID], ids=["first tree", "second tree"])
def test_chunks_are_decoded_into_any_array(array):
    coder = ChunkCoder.learn(TREES, GRID)
    payload = np.frombuffer(join(coder.encode(array)), np.uint8)
    wide = np.zeros((60, 200), np.float32)
    for out in (np.empty((60, 100), "<f4"), np.empty((60, 100), ">f4"), wide[:, ::2]):
        coder.decode_into(payload, out)
        assert np.array_equal(out, array)
    assert not wide[:, 1::2].any()


def test_a_sample_that_the_first_tree_cannot_take_drops_it():
    wide = np.random.default_rng(2).standard_normal((2, 5000)).astype(np.float32)
    assert ChunkCoder.learn(TREES, wide).trees == TREES[1:]
    assert ChunkCoder.learn(TREES, np.rint(wide)).trees == TREES


def test_a_single_tree_that_fails_on_a_chunk_leaves_it_raw():
    coder = ChunkCoder.learn(TREES[:1], GRID)
    payload = np.frombuffer(join(coder.encode(NO_GRID)), np.uint8)
    assert len(payload) == NO_GRID.nbytes + 1
    assert coder.decode(payload, spec_of(NO_GRID), None).tobytes() == NO_GRID.tobytes()
    try:
        ChunkCoder.learn(TREES[:1], NO_GRID)
    except NotRepresentable:
        return


@given(st.binary(max_size=60))
def test_shared_bytes_of_two_trees_are_checked(data):
    try:
        ChunkCoder.unpack(TREES, data)
    except CodecError:
        return
