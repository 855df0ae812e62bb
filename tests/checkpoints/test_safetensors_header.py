import contextlib
import io
import json
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors import deserialize
from safetensors.numpy import save

from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.header import MAX_HEADER_BYTES, build_header, read_header
from tensorcomp.dtypes import dtype_bits
from tensorcomp.errors import CheckpointError

WHERE = "model.safetensors"


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: Any, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def parsed(file: bytes) -> Any:
    return read_header(io.BytesIO(file), len(file), WHERE)


ATTACKS: dict[str, tuple[bytes, str]] = {
    "too short": (b"\1\0\0", "too few"),
    "length 2^64-1": (b"\xff" * 8 + b"{}", "claims a header of 18,446,744,073,709,551,615 bytes"),
    "length beyond the file": (struct.pack("<Q", 99) + b"{}", "claims a header of 99 bytes"),
    "not an object": (file_of(b"[]"), "begins with"),
    "leading space": (file_of(b" {}"), "begins with"),
    "no header": (file_of(b""), "begins with"),
    "cut JSON": (file_of(b'{"a":'), "not valid JSON"),
    "text after the object": (file_of(b"{} x"), "not valid JSON"),
    "not UTF-8": (file_of(b'{"\xff":1}'), "not valid JSON"),
    "a number of 5000 digits": (file_of(b'{"a":' + b"9" * 5000 + b"}"), "not valid JSON"),
    "nesting bomb": (file_of(b'{"a":' + b"[" * 100_000), "nests too deeply"),
    "object nesting bomb": (file_of(b'{"a":' * 100_000), "nests too deeply"),
    "duplicate tensor": (
        file_of(b'{"a":' + json.dumps(entry("U8", [1], 0, 1)).encode() + b',"a":{}}', b"1"),
        "key 'a' twice",
    ),
    "duplicate metadata": (file_of(b'{"__metadata__":{"k":"1","k":"2"}}'), "key 'k' twice"),
    "metadata number": (file_of({"__metadata__": {"k": 1}}), "entry 'k' is not a string"),
    "metadata list": (file_of({"__metadata__": []}), "not a JSON object"),
    "metadata half a surrogate": (file_of({"__metadata__": {"k": "\ud800"}}), "not valid Unicode"),
    "name half a surrogate": (file_of({"\ud800": entry("U8", [0], 0, 0)}), "not valid Unicode"),
    "entry is text": (file_of({"a": "F32"}), "not a JSON object"),
    "no dtype": (file_of({"a": {"shape": [], "data_offsets": [0, 0]}}), "no dtype"),
    "dtype number": (file_of({"a": entry(1, [], 0, 0)}), "no dtype"),
    "no shape": (file_of({"a": {"dtype": "U8", "data_offsets": [0, 0]}}), "not a list of sizes"),
    "negative size": (file_of({"a": entry("U8", [-1], 0, 1)}, b"1"), "not a list of sizes"),
    "float size": (file_of({"a": entry("U8", [1.0], 0, 1)}, b"1"), "not a list of sizes"),
    "bool size": (file_of({"a": entry("U8", [True], 0, 1)}, b"1"), "not a list of sizes"),
    "size 2^63": (file_of({"a": entry("U8", [2**63], 0, 1)}, b"1"), "not a list of sizes"),
    "product 2^64": (file_of({"a": entry("U8", [2**32, 2**32], 0, 0)}), "overflows 64 bits"),
    "product with zero": (file_of({"a": entry("U8", [0, 2**62, 4], 0, 0)}), "overflows 64 bits"),
    "product without end": (file_of({"a": entry("U8", [2**62] * 10**5, 0, 0)}), "overflows 64"),
    "product 2^64 of no range": (file_of({"a": entry("U8", [2**32] * 2, 0, -1)}), "not a begin"),
    "three offsets": (
        file_of({"a": {"dtype": "U8", "shape": [], "data_offsets": [0, 1, 2]}}),
        "not a begin and an end",
    ),
    "negative offset": (file_of({"a": entry("U8", [1], -1, 0)}), "not a begin and an end"),
    "backwards": (file_of({"a": entry("X9", [1], 2, 1)}, b"11"), "before they begin"),
    "shape is not range": (
        file_of({"a": entry("F32", [2], 0, 4)}, b"1234"),
        "takes 8 bytes, but its data_offsets span 4",
    ),
    "half a byte": (file_of({"a": entry("F4", [3], 0, 2)}, b"12"), "takes 1.5 bytes"),
    "overlap": (
        file_of({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"123"),
        "'b': begins at 1, not 2, and overlaps 'a'",
    ),
    "hole": (
        file_of({"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 2, 3)}, b"123"),
        "'b': begins at 2, not 1, and leaves a hole after 'a'",
    ),
    "hole at the start": (file_of({"a": entry("U8", [1], 1, 2)}, b"12"), "hole after the header"),
    "trailing bytes": (file_of({"a": entry("U8", [1], 0, 1)}, b"123"), "2 bytes follow"),
    "trailing bytes, no tensor": (file_of({}, b"1"), "1 bytes follow"),
    "terabytes": (
        file_of({"a": entry("U8", [1], 0, 1), "b": entry("U8", [2**40], 1, 1 + 2**40)}, b"1"),
        "cut short: 1,099,511,627,777 bytes of tensors expected, 1 found; "
        "1 of 2 tensors are whole, not 'b'",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused_in_one_line(attack):
    file, message = ATTACKS[attack]
    with pytest.raises(CheckpointError, match=message) as caught:
        parsed(file)
    assert str(caught.value).startswith(f"{WHERE}: ")
    assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError):
        read_header(io.BytesIO(file), len(file), WHERE)


def test_header_over_the_format_limit_is_refused_unread():
    prefix = struct.pack("<Q", MAX_HEADER_BYTES + 1)
    with pytest.raises(CheckpointError, match="exceeds the format's"):
        read_header(io.BytesIO(prefix), 2**40, WHERE)


@pytest.mark.parametrize("claim", [2**64 - 1, 2**40, 99_000_000])
def test_claims_allocate_nothing(claim):
    file = struct.pack("<Q", claim) + b"{}"
    tracemalloc.start()
    with pytest.raises(CheckpointError):
        parsed(file)
    with pytest.raises(CheckpointError):
        parsed(file_of({"a": entry("U8", [claim], 0, claim % 2**63)}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_long_and_hostile_names_stay_on_one_short_line():
    name = "a\n\x1b[31m" + "x" * 10_000
    with pytest.raises(CheckpointError) as caught:
        parsed(file_of({name: entry("U8", [2], 0, 1)}, b"1"))
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_unknown_dtype_and_extra_keys_are_kept():
    header = {"a": entry("F3_FUTURE", [7], 0, 3) | {"scale": 2}}
    assert parsed(file_of(header, b"123")).tensors == (TensorInfo("a", "F3_FUTURE", (7,), 3),)


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F6_E3M2"])
def test_types_below_a_byte(dtype):
    size = 8 * (dtype_bits(dtype) or 0) // 8
    file = file_of({"a": entry(dtype, [2, 4], 0, size)}, bytes(size))
    assert parsed(file).tensors == (TensorInfo("a", dtype, (2, 4), size),)


def test_empty_tensors_share_an_offset():
    header = {
        "z": entry("U8", [1], 0, 1),
        "b": entry("F32", [0], 1, 1),
        "a": entry("F32", [0, 5], 1, 1),
        "y": entry("U8", [1], 1, 2),
        "first": entry("U8", [0], 0, 0),
    }
    names = [info.name for info in parsed(file_of(header, b"12")).tensors]
    assert names == ["first", "z", "b", "a", "y"]


@pytest.mark.parametrize(
    ("metadata", "expected"), [({}, {}), (None, None), ({"format": "pt"}, {"format": "pt"})]
)
def test_metadata_without_tensors(metadata, expected):
    assert parsed(file_of({"__metadata__": metadata})).metadata == expected
    assert parsed(file_of({})).metadata is None


def test_builder_refuses_what_it_cannot_write():
    info = TensorInfo("a", "U8", (1,), 1)
    with pytest.raises(CheckpointError, match="two entries 'a'"):
        build_header([info, info])
    with pytest.raises(CheckpointError, match="two entries '__metadata__'"):
        build_header([TensorInfo("__metadata__", "U8", (1,), 1)])
    with pytest.raises(CheckpointError, match="not valid Unicode"):
        build_header([TensorInfo("\ud800", "U8", (1,), 1)])


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(
    lambda name: name != "__metadata__"
)
SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
DTYPES = st.sampled_from(["U8", "F32", "BF16", "F64", "BOOL", "C64", "I64", "F8_E8M0"])


@given(
    st.dictionaries(NAMES, st.tuples(DTYPES, SHAPES), max_size=6),
    st.none() | st.dictionaries(NAMES, NAMES, max_size=3),
)
def test_built_headers_are_read_back_here_and_by_the_library(tensors, metadata):
    infos = tuple(
        TensorInfo(name, dtype, shape, int(np.prod(shape, dtype=int)) * dtype_bits(dtype) // 8)
        for name, (dtype, shape) in tensors.items()
    )
    raw = build_header(infos, metadata)
    file = raw + bytes(sum(info.nbytes for info in infos))
    header = parsed(file)
    assert header.tensors == tuple(sorted(infos, key=lambda info: header.offsets[info.name]))
    assert header.metadata == metadata
    assert header.raw == raw
    assert header.data_start % 8 == 0
    assert {name for name, _ in deserialize(file)} == set(tensors)


@given(
    st.dictionaries(
        NAMES, st.tuples(st.sampled_from(["<f4", "<i8", "|u1", "|b1", "<f2"]), SHAPES), max_size=6
    ),
    st.none() | st.dictionaries(NAMES, NAMES, max_size=1),
)
def test_the_library_writes_the_header_that_is_built(tensors, metadata):
    # Given neither, safetensors 0.8 writes `{},"__metadata__":{}}`, which is not JSON.
    assume(tensors or metadata != {})
    file = save({name: np.zeros(s, d) for name, (d, s) in tensors.items()}, metadata)
    header = parsed(file)
    assert build_header(header.tensors, header.metadata) == header.raw


@given(st.data())
def test_flipped_bits_are_errors_or_valid_headers(data):
    file = bytearray(save({"a.weight": np.ones((2, 3), np.float32), "b": np.ones(5, np.uint8)}))
    end = 8 + struct.unpack("<Q", file[:8])[0]
    for position in data.draw(st.lists(st.integers(0, end * 8 - 1), min_size=1, max_size=3)):
        file[position // 8] ^= 1 << position % 8
    try:
        header = parsed(bytes(file))
    except CheckpointError:
        return
    assert header.data_start + sum(info.nbytes for info in header.tensors) == len(file)


@given(st.binary(max_size=200))
def test_any_bytes_are_errors_or_valid_headers(junk):
    for file in (junk, file_of(junk), file_of(b"{" + junk)):
        with contextlib.suppress(CheckpointError):
            parsed(file)
