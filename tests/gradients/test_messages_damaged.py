"""Damaged and hostile messages of gradients."""

import contextlib
import json
import math
import struct
import tracemalloc

import numpy as np
import pytest
import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from test_messages import F32, TEXTS, fed_back, gradients, residuals, same

from tensorcomp._zstd_frames import compress
from tensorcomp.errors import CodecError, GradientError
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.server.message import _TYPICAL, decompress
from tensorcomp.gradients.server.worker import WorkerCompression


def small_message():
    return fed_back().compress({"w": np.linspace(-1, 1, 100, dtype=F32)})


@given(st.data())
def test_a_damaged_message_is_found(data):
    message = bytearray(small_message())
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CodecError, GradientError)):
        decompress(bytes(message))


@given(st.integers(0, 10_000))
def test_a_message_that_was_cut_short_is_found(length):
    message = small_message()
    with pytest.raises(CodecError, match=r"no message of compressed gradients|checksum"):
        decompress(message[: length % len(message)])


def sealed(header, payloads=b""):
    """Return a message with right checksums, whatever its safetensors header says."""
    plain = header if isinstance(header, bytes) else file_header(header)
    packed = compress(plain, 3, like=_TYPICAL)
    content = struct.pack("<Q", len(packed)) + packed + payloads
    return content + struct.pack("<Q", xxhash.xxh3_64_intdigest(content))


def file_header(about, entries=None):
    """Return the header of a safetensors file with this metadata, by default of one empty `w`."""
    if entries is None:
        entries = {"w": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}
    metadata = {"tensorcomp.gradients": about if isinstance(about, str) else json.dumps(about)}
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    return len(text).to_bytes(8, "little") + text


def entry(begin, stop):
    return {"dtype": "U8", "shape": [stop - begin], "data_offsets": [begin, stop]}


def header(**changes):
    usual = {"version": 2, "step": 0, "worker": 0, "weight": 1.0, "texts": ["raw"]}
    return {**usual, "tensors": [["F32", [4], 0]], **changes}


def test_an_empty_payload_stands_for_zeros():
    assert decompress(sealed(header()))["w"].tolist() == [0.0] * 4


BAD_FIELDS = {
    "step": [-1, True, 1 << 63],
    "worker": [-2, "1"],
    "weight": [0, -1.0, math.nan, math.inf, 10**400, "1"],
    "texts": [[], [3], None],
    "tensors": [
        *(None, [], [["F32", [4]]], [["F32", [4], 0], ["F32", [4], 0]], [["F32", [4], 1]]),
        *([["F32", [4], -1]], [["F32", [-4], 0]], [["F32", [4.0], 0]], [["F32", 4, 0]]),
        *([["F32", [1] * 33, 0]], [["I32", [4], 0]], [[["F32"], [4], 0]]),
    ],
}


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"null",
        b"[]",
        {},
        *(header(**{field: bad}) for field, values in BAD_FIELDS.items() for bad in values),
        *("", "{", "[" * 100_000, "null", "[]"),
        file_header(header(), {"w": entry(0, 1)}),
        file_header(header(), {"w": {"dtype": "U8", "shape": [-1], "data_offsets": [0, -1]}}),
        file_header(header(), {"w": entry(4, 4)}),
        file_header(header()).replace(b'"w"', b'"w": {}, "w"'),
        b'{"__metadata__": {}}',
    ],
)
def test_a_false_header_is_refused(broken):
    with pytest.raises(CodecError, match="header is damaged") as caught:
        decompress(sealed(broken))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "limit"), [([1 << 20], 1 << 20), ([1 << 40] * 32, 1 << 30), ([1 << 62, 0], 1 << 30)]
)
def test_a_message_takes_no_more_memory_than_its_limit(shape, limit):
    data = sealed(header(tensors=[["F32", shape, 0]]))
    tracemalloc.start()
    try:
        with pytest.raises(GradientError, match="more than its limit: 'w' of shape"):
            decompress(data, limit=limit)
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
    finally:
        tracemalloc.stop()


def test_the_limit_is_for_all_tensors_together():
    tensors = [["F32", [100], 0], ["F64", [50], 0]]
    data = sealed(file_header(header(tensors=tensors), {"a": entry(0, 0), "b": entry(0, 0)}))
    assert set(decompress(data, limit=800)) == {"a", "b"}
    with pytest.raises(GradientError, match=r"'b' of shape \(50,\) takes 400 bytes, 399 are left"):
        decompress(data, limit=799)


def test_a_header_that_expands_too_far_is_refused():
    with pytest.raises(CodecError, match="it claims 67108865 bytes"):
        decompress(sealed(b" " * ((1 << 26) + 1)))
    with pytest.raises(CodecError, match="it claims"):
        decompress(sealed(b" " * (1 << 24)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "topk(",
        "topk(2.5)",
        "affine( 8 )",
        "raw" * 10_000,
        "affine(" * 5_000 + ")" * 5_000,
        "__import__(os)",
    ],
)
def test_a_text_that_is_no_compressors_is_refused(text):
    data = sealed(file_header(header(texts=[text]), {"w": entry(0, 3)}), b"abc")
    with pytest.raises(GradientError, match="cannot be read") as caught:
        decompress(data)
    assert len(str(caught.value)) < 1000


def test_payloads_that_do_not_end_where_the_message_does_are_refused():
    with pytest.raises(CodecError, match="3 bytes follow the last tensor"):
        decompress(sealed(header(), b"abc"))
    with pytest.raises(CodecError, match="cut short: 4 bytes of tensors expected, 3 found"):
        decompress(sealed(file_header(header(), {"w": entry(0, 4)}), b"abc"))


def test_a_newer_version_is_told():
    with pytest.raises(GradientError, match="expected a message of version 2, got '3'"):
        decompress(sealed(header(version=3)))


@given(st.binary(max_size=64), st.sampled_from(TEXTS[1:]), st.integers(0, 300))
def test_payloads_of_anything_do_no_harm(payload, text, elements):
    text = TreeCompressor.of(text).text()
    blob = payload + struct.pack("<Q", xxhash.xxh3_64_intdigest(payload))
    about = header(texts=[text], tensors=[["F32", [elements], 0]])
    data = sealed(file_header(about, {"w": entry(0, len(blob))}), blob)
    with contextlib.suppress(CodecError):
        assert decompress(data)["w"].shape == (elements,)


def test_damaged_states_are_refused_and_change_nothing():
    worker = fed_back()
    worker.compress(gradients())
    good = worker.state_dict()
    first = next(iter(good["tensors"]))
    one = good["tensors"][first]
    changed = [{key: value for key, value in one.items() if key != gone} for gone in one]
    changed += [
        {**one, key: bad}
        for key, bad in {"shape": [-1], "dtype": "I32", "step": "x", "state": 3}.items()
    ]
    changed.append({**one, "state": {"residual": one["state"]["residual"] * np.nan}})
    changed.append({**one, "shape": [1 << 50]})
    tensor = torch.ones(3, 3)
    changed += [{**one, key: tensor} for key in one if key != "phase"]
    steps = [{**good, "step": bad} for bad in ("x", -1, 10**5000, tensor)]
    damaged = [{**good, "tensors": {first: fields}} for fields in changed]
    for state in [None, {}, {**good, "tensors": 3}, *steps, *damaged]:
        with pytest.raises(GradientError) as caught:
            worker.load_state_dict(state)
        assert "\n" not in str(caught.value)
        assert not isinstance(caught.value.__cause__, MemoryError)
    assert same(residuals(worker), {n: t["state"]["residual"] for n, t in good["tensors"].items()})


@pytest.mark.parametrize("damaged", [math.inf, math.nan, -1.0])
def test_a_damaged_threshold_is_sampled_anew(damaged):
    worker = WorkerCompression("adaptive_threshold(0.1)")
    worker.compress(gradients())
    saved = worker.state_dict()
    answers = []
    for threshold in (damaged, 0.0):
        for one in saved["tensors"].values():
            one["state"]["inner.threshold"] = threshold
        worker.load_state_dict(saved)
        answers.append(worker.compress(gradients()))
    assert answers[0] == answers[1]
