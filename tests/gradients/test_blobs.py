"""Payloads are the file format's blobs, and mean what the codecs say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.sparse.selection import largest_positions, mark_largest
from tensorcomp.container.blob import Blob
from tensorcomp.errors import TensorcompError
from tensorcomp.gradients import GradientSpec, Payload, TreeCompressor
from tensorcomp.gradients.payload.blobs import grid_of
from tensorcomp.gradients.payload.decoded import DenseGradient, SparseGradient
from tensorcomp.gradients.payload.encode import tree_blob
from tensorcomp.gradients.payload.receive import receive_blob

TREES = [
    "topk(0.01, values=affine(8))",
    "topk(0.3)",
    "topk(0.9, values=affine(4, 32))",
    "topk(5, mask=runlength)",
    "topk(0.1, mask=bitpack(bytes=zstd), values=raw)",
    "threshold(1.5)",
    'threshold(1.5, mask=bitpack, values=cast("F16"))',
    "affine(8)",
    "affine(2, codes=huffman)",
    "sign",
    "raw",
]
SHAPES = [(), (1,), (0,), (7, 0), (40, 30), (3, 5, 2, 2), (4100,)]


def gradient(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(3, shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("text", TREES)
def test_payload_of_one_chunk_is_the_trees_bytes_and_their_checksum(text, shape):
    tree, array = parse_tree(text), gradient(shape)
    payload = tree_blob(tree, array, GradientSpec("w", shape))
    bytes_of_tree = join(encode(tree, array))
    assert payload.data[:-8] == bytes_of_tree
    Blob.open(np.frombuffer(payload.data, np.uint8), 1, "w").payload(0)
    expected = decode(tree, bytes_of_tree, spec_of(array))
    compressor = TreeCompressor(tree)
    np.testing.assert_array_equal(compressor.decode(payload), expected)
    sent = np.zeros(array.size, np.float32)
    assert payload.decoded is not None
    payload.decoded.add_to(sent, 1.0)
    np.testing.assert_array_equal(sent.reshape(shape), expected)


@pytest.mark.parametrize("text", ["topk(0.01, values=affine(8))", "threshold(4.0)", "affine(8)"])
def test_tensor_of_several_chunks(text):
    array = gradient((700, 2000))
    spec = GradientSpec("w", array.shape)
    tree = parse_tree(text)
    grid = grid_of(spec.shape, spec.dtype)
    assert grid.count == 2
    payload = tree_blob(tree, array, spec)
    blob = Blob.open(np.frombuffer(payload.data, np.uint8), 2, "w")
    roots = tree.codec.per_chunk(array, [grid.bounds(0), grid.bounds(1)])
    for index, root in enumerate(roots):
        start, stop = grid.bounds(index)
        node = type(tree)(root, tree.children)
        assert blob.payload(index).tobytes() == join(encode(node, array[start:stop]))
    received = receive_blob(tree, Payload(payload.data, spec))
    ours, theirs = np.zeros(array.size, np.float32), np.zeros(array.size, np.float32)
    received.add_to(ours, 1.0)
    payload.decoded.add_to(theirs, 1.0)
    np.testing.assert_array_equal(ours, theirs)
    assert isinstance(received, DenseGradient if text == "affine(8)" else SparseGradient)
    if text.startswith("topk"):
        assert received.count == round(0.01 * array.size)


@given(
    st.integers(1, 60_000),
    st.sampled_from(["normal", "ties", "zeros", "sorted", "rare"]),
    st.floats(0, 0.12),
    st.sampled_from([np.float32, np.float16, np.float64]),
    st.integers(0, 99),
)
def test_largest_positions_are_those_that_are_marked(size, kind, share, dtype, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size)
    values = {
        "normal": values,
        "ties": np.round(values),
        "zeros": np.zeros(size),
        "sorted": np.sort(values),
        "rare": np.where(rng.random(size) < 0.999, 0, values),
    }[kind].astype(dtype)
    words = values.view(f"u{values.itemsize}")
    keep = round(share * size)
    np.testing.assert_array_equal(
        largest_positions(words, keep), np.flatnonzero(mark_largest(words, keep, first=True))
    )


def test_the_mask_may_be_called_indices():
    assert parse_tree("topk(0.2, indices=bitpack)") == parse_tree("topk(0.2, mask=bitpack)")
    with pytest.raises(TensorcompError, match="'mask' twice"):
        parse_tree("topk(0.2, indices=bitpack, mask=gaps)")


def test_what_a_tree_cannot_represent_is_sent_as_it_is():
    array = np.full((700, 2000), 1e6, np.float32)  # beyond the largest half
    payload = tree_blob('cast("F16")', array, GradientSpec("w", array.shape))
    np.testing.assert_array_equal(TreeCompressor.of('cast("F16")').decode(payload), array)
