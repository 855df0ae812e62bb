"""`live`: dead rows and columns are cut away and come back, whatever else the array holds."""

import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, fit, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import byte_count, join
from tensorcomp.codecs.sparse.live import NonzeroSlices
from tensorcomp.errors import CodecError, NotRepresentable

DTYPES = [np.dtype(kind) for kind in ("f8", "f4", "f2", "i1", "u4", ml_dtypes.bfloat16)]
SHAPES = st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple)


def pruned(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    """Return any bits, some rows and columns all zero."""
    random = np.random.default_rng(seed)
    array = np.frombuffer(random.bytes(int(np.prod(shape)) * dtype.itemsize), dtype)
    array = array.reshape(shape).copy()
    for axis in (0, 1):
        dead = random.random(shape[axis]) < random.choice([0.0, 0.4, 1.0])
        array[(slice(None),) * axis + (dead,)] = 0
    return array


@given(SHAPES, st.sampled_from(DTYPES), st.integers(0, 1), st.integers(0, 999))
def test_slices_of_zero_bits_are_cut_away(shape, dtype, axis, seed):
    array = pruned(shape, dtype, seed)
    others = tuple(i for i in range(len(shape)) if i != axis)
    alive = (array.view(f"u{dtype.itemsize}") != 0).any(axis=others)
    codec = NonzeroSlices(axis)
    parts = codec.encode(readable(array))
    assert parts["mask"].tolist() == alive.tolist()
    assert parts["values"].tobytes() == np.compress(alive, array, axis=axis).tobytes()
    assert parts["values"].shape[axis] == alive.sum()
    out = np.full(shape, 1, dtype)
    codec.decode(parts, out)
    assert out.tobytes() == array.tobytes()


def test_by_hand():
    array = np.array([[0, 0, 0, 0], [0, 5, 0, -1], [0, 0, 0, 0], [0, 7, 0, 0]], np.float32)
    rows = NonzeroSlices().encode(readable(array))
    assert rows["mask"].tolist() == [False, True, False, True]
    columns = NonzeroSlices(1).encode(readable(rows["values"]))
    assert columns["mask"].tolist() == [False, True, False, True]
    assert columns["values"].tolist() == [[5, -1], [7, 0]]


def test_negative_zero_is_something():
    array = np.array([[0.0, -0.0], [0.0, 0.0]])
    assert NonzeroSlices().encode(readable(array))["mask"].tolist() == [True, False]
    assert NonzeroSlices(1).encode(readable(array))["mask"].tolist() == [False, True]


def test_what_is_left_has_rows_and_columns_still():
    random = np.random.default_rng(0)
    scale = np.exp(random.normal(0, 2, (300, 1)))  # only rows that are told apart profit from it
    array = (random.standard_normal((300, 200)) * scale).astype(np.float32)
    array[::2] = 0
    array[:, ::3] = 0
    left = np.ascontiguousarray(array[1::2][:, np.arange(200) % 3 != 0])
    tree = parse_tree("live(values=live(1, values=floats))")
    size = byte_count(encode(tree, array))
    alone = byte_count(encode(parse_tree("floats"), left))
    assert alone + 1000 < byte_count(encode(parse_tree("floats(contexts=1)"), left))
    assert alone < size < alone + 200


@pytest.mark.parametrize("shape", [(12, 6, 3, 3), (12, 54)])
def test_chunks_find_their_own_slices(shape):
    array = np.ones(shape, np.float32)
    array[:5, 2] = 0
    array[:, 4] = 0
    tree = parse_tree("live(1, values=floats)")
    shared = fit(tree, readable(array))
    for start in (0, 5):
        chunk = array[start : start + 5]
        payload = join(encode(tree, chunk, shared))
        assert decode(tree, payload, spec_of(chunk), shared).tobytes() == chunk.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (5,)])
def test_less_than_two_axes_are_refused(shape):
    array = np.zeros(shape, np.float32)
    for codec in (NonzeroSlices(), NonzeroSlices(1)):
        with pytest.raises(NotRepresentable, match="expected two axes or more"):
            codec.encode(readable(array))
        with pytest.raises(CodecError, match="expected two axes or more"):
            codec.decode({"mask": np.zeros(0, bool), "values": array}, array.copy())


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (3, 0, 2), (2, 3, 0)])
def test_without_elements(shape, axis):
    array = np.zeros(shape, np.float32)
    tree = parse_tree(f"live({axis})")
    assert decode(tree, join(encode(tree, array)), spec_of(array)).shape == shape
    assert NonzeroSlices(axis).parts(spec_of(array))["mask"].shape == (0,)


def test_damage():
    array = np.zeros((6, 8), np.float32)
    array[2] = 1
    for axis in (0, 1):
        parts = NonzeroSlices(axis).encode(readable(array))
        out = np.empty_like(array)
        mask = parts["mask"].view(np.uint8).copy()
        mask[2] = 2
        with pytest.raises(CodecError, match="neither 0 nor 1"):
            NonzeroSlices(axis).decode({**parts, "mask": mask.view(bool)}, out)
        mask[2] = 1 - parts["mask"][2]
        with pytest.raises(CodecError, match="kept values, got"):
            NonzeroSlices(axis).decode({**parts, "mask": mask.view(bool)}, out)


def test_no_more_slices_are_allocated_than_there_can_be():
    array = np.zeros((6, 8), np.float32)
    array[2] = 1
    tree = parse_tree("live(mask=raw, values=raw)")
    payload = join(encode(tree, array))
    # Mark, length of the mask's bytes, mark and six bytes; then the elements of the values.
    assert struct.unpack_from("<Q", payload, 16) == (8,)
    for claim in (1 << 60, 56, 4):
        hostile = payload[:16] + struct.pack("<Q", claim) + payload[24:]
        with pytest.raises(CodecError, match="values"):
            decode(tree, hostile, spec_of(array))
