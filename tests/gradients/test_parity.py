"""Payloads are the blobs that a compressed file holds for such a tensor and tree."""

import json
import struct

import numpy as np
import pytest

import tensorcomp
from tensorcomp.codecs.text import format_tree, parse_tree
from tensorcomp.container.blob import Blob
from tensorcomp.container.reader import CompressedFile
from tensorcomp.gradients.base import GradientSpec, Payload
from tensorcomp.gradients.draws import shared_key
from tensorcomp.gradients.payload.blobs import grid_of
from tensorcomp.gradients.text import parse_compressor

TREES = [
    "raw",
    "floats",
    "runlength",
    "affine(8)",
    "affine(4, group=32)",
    "affine(2)",
    "affine(4, 128, false)",
    'cast("F16", values=raw)',
    'cast("BF16")',
    "sign",
    "sign(64)",
    "ternary",
    "nf4",
    "uniform(0.01, codes=huffman)",
    "topk(0.01, values=affine(8), mask=gaps)",
    "topk(0.3)",
    "threshold(0.004)",
    "magnitude(0.9, mask=bitpack)",
    "nm(2, 4)",
]


def gradient_of(shape, seed=0):
    random = np.random.default_rng(seed)
    return np.asarray(random.standard_t(3, shape) * 1e-3, np.float32)


def stored(array, tree):
    """Return the bytes that a compressed file holds for a tensor, and what it decodes to.

    None in place of the bytes where the file has another tree, because this one made the tensor no
    smaller.
    """
    data = tensorcomp.save({"g": array}, codecs=[f"g={tree}"], threads=1)
    decoded = tensorcomp.load(data)["g"]
    with CompressedFile(data) as file:
        record = file.record("g")
        used = file.manifest.trees[record.tree].tree
    if used != format_tree(parse_tree(tree)):
        return None, decoded
    length = struct.unpack_from("<Q", data)[0]
    start, stop = json.loads(data[8 : 8 + length])["g"]["data_offsets"]
    return data[8 + length :][start:stop], decoded


def sent(array, text):
    """Return the bytes of a payload and what they decode to, which the sender knows as well."""
    compressor = parse_compressor(text, feedback=False)
    spec = GradientSpec("g", array.shape, array.dtype)
    payload, _ = compressor.step(array, compressor.init(spec))
    again = compressor.decode(Payload(payload.data, spec))
    known = np.zeros(array.size, array.dtype)
    payload.decoded.add_to(known, 1.0)
    np.testing.assert_array_equal(again.reshape(-1), known)
    assert again.shape == array.shape
    assert again.dtype == array.dtype
    return payload.data, again


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("shape", [(33, 50), (5000,), (4, 30, 3, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_payload_of_one_chunk_is_the_files_blob(tree, shape, dtype):
    array = gradient_of(shape).astype(dtype)
    payload, decoded = sent(array, tree)
    blob, loaded = stored(array, tree)
    assert payload == blob
    np.testing.assert_array_equal(decoded, loaded)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (7,), (3, 5)], ids=str)
def test_payload_of_next_to_nothing_is_the_files_blob(tree, shape):
    array = gradient_of(shape)
    payload, decoded = sent(array, tree)
    blob, loaded = stored(array, tree)
    if blob is None:  # the tree would make it no smaller: a gradient is sent as it is
        np.testing.assert_array_equal(loaded, array)
        np.testing.assert_array_equal(decoded, array)
        return
    assert payload == blob
    np.testing.assert_array_equal(decoded, loaded)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("shape", [(1100, 1000), ((1 << 20) + 5,)], ids=str)
def test_payload_of_many_chunks_has_the_files_chunks(tree, shape):
    array = gradient_of(shape)
    payload, decoded = sent(array, tree)
    blob, loaded = stored(array, tree)
    count = grid_of(shape, array.dtype).count
    assert count == 2
    ours, theirs = (
        Blob.open(np.frombuffer(data, np.uint8), count, "g") for data in (payload, blob)
    )
    for index in range(count):
        np.testing.assert_array_equal(ours.payload(index), theirs.payload(index))
    np.testing.assert_array_equal(decoded, loaded)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (40,), (33, 50), (1100, 1000)], ids=str)
@pytest.mark.parametrize("keep", [0.01, 0.3, 5])
def test_random_elements_are_those_of_the_codec(shape, keep):
    array = gradient_of(shape)
    spec = GradientSpec("g", shape)
    compressor = parse_compressor(f"randomk({keep}, scale=false)", feedback=False)
    payload, _ = compressor.step(array, compressor.init(spec))
    count = payload.decoded.count
    assert count == min(max(round(keep * array.size) if keep < 1 else keep, 1), array.size)
    seed = int(shared_key(spec, 0, 0))
    masked = compressor.decode(payload)
    if array.size > 1000:
        blob, loaded = stored(masked, f"randomk({count}, seed={seed}, values=raw)")
        np.testing.assert_array_equal(loaded, masked)
        chunks = grid_of(shape, array.dtype).count
        ours, theirs = (
            Blob.open(np.frombuffer(data, np.uint8), chunks, "g") for data in (payload.data, blob)
        )
        for index in range(chunks):
            np.testing.assert_array_equal(ours.payload(index), theirs.payload(index))
    received = compressor.receive(Payload(payload.data, spec))
    known, found = np.zeros((2, array.size), np.float32)
    payload.decoded.add_to(known, 1.0)
    received.add_to(found, 1.0)
    np.testing.assert_array_equal(known, found)
