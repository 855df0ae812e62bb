import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf as gguf_package
import ml_dtypes
import numpy as np
import pytest

from tensorcomp.checkpoints.folder import scan_folder
from tensorcomp.checkpoints.open import detect_format, open_checkpoint
from tensorcomp.errors import CheckpointError

TYPES = {"F32": 0, "F16": 1, "Q4_1": 3, "I64": 27, "F64": 28, "BF16": 30}
SMALL = np.arange(12, dtype=np.float32).reshape(3, 4)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(
    tensors: Sequence[tuple[str, int, tuple[int, ...], bytes]],
    values: Sequence[tuple[str, int, bytes]] = (),
    *,
    version: int = 3,
    alignment: int = 32,
    order: str = "<",
) -> bytes:
    """Return a file of tensors: name, number of the type, shape in NumPy's order, bytes."""
    data, infos = b"", b""
    for name, kind, shape, content in tensors:
        data += bytes(-len(data) % alignment)
        axes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        infos += text(name) + axes + struct.pack("<IQ", kind, len(data))
        data += content
    head = b"GGUF" + struct.pack(f"{order}IQQ", version, len(tensors), len(values))
    head += b"".join(text(key) + struct.pack("<I", kind) + value for key, kind, value in values)
    head += infos
    return head + bytes(-len(head) % alignment) + data


def array(name: str, values: np.ndarray, dtype: str) -> tuple[str, int, tuple[int, ...], bytes]:
    return name, TYPES[dtype], values.shape, values.tobytes()


VALUES = [
    ("general.architecture", 8, text("llama")),
    ("tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("é" * 99) + text("")),
    ("scores", 9, struct.pack("<IQ3f", 6, 3, 1, 2, 3)),
    ("lists", 9, struct.pack("<IQIQ2bIQ", 9, 2, 1, 2, 5, 6, 12, 0)),
    ("flag", 7, b"\1"),
    ("long", 10, bytes(8)),
]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 64])
def test_arrays(version, alignment, tmp_path, round_trip):
    arrays: dict[str, np.ndarray] = {
        "blk.0.attn_q.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
        "half": np.ones((2, 3, 4), np.float16),
        "brain": np.ones(7, ml_dtypes.bfloat16),
        "double": np.array([1e300]),
        "count": np.array(5, np.int64),
    }
    dtypes = ["F32", "F16", "BF16", "F64", "I64"]
    tensors = [array(*one, dtype) for one, dtype in zip(arrays.items(), dtypes, strict=True)]
    values = VALUES
    if alignment != 32:
        values = [*VALUES, ("general.alignment", 4, struct.pack("<I", alignment))]
    path = tmp_path / "any name"
    path.write_bytes(gguf(tensors, values, version=version, alignment=alignment))
    assert detect_format(path) == "gguf"
    with open_checkpoint(path) as checkpoint:
        assert not checkpoint.notes
        found = {info.name: info for info in checkpoint.arrays}
        assert list(found) == list(arrays)
        for (name, values_), dtype in zip(arrays.items(), dtypes, strict=True):
            assert (found[name].dtype, found[name].shape) == (dtype, values_.shape)
            assert checkpoint.read(name).tobytes() == values_.tobytes()
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_quantized_tensors_are_of_their_own_type(tmp_path, round_trip):
    blocks = np.random.default_rng(0).integers(0, 256, (3, 2, 20), np.uint8)
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([("w", TYPES["Q4_1"], (3, 64), blocks.tobytes())]))
    with open_checkpoint(path) as checkpoint:
        (info,) = checkpoint.arrays
        assert (info.dtype, info.shape, info.nbytes) == ("Q4_1", (3, 64), 120)
        assert checkpoint.read("w").tobytes() == blocks.tobytes()
    assert round_trip(path).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", [4, 41, 77])
def test_unknown_types_stay_bytes_and_are_named(kind, tmp_path, round_trip):
    path = tmp_path / "model.gguf"
    strange = [(f"strange{i}", kind, (4, 32), b"abc" * 50) for i in range(3)]
    path.write_bytes(gguf([*strange, array("known", SMALL, "F32")]))
    with open_checkpoint(path) as checkpoint:
        assert [info.name for info in checkpoint.arrays] == ["known"]
        (note,) = checkpoint.notes or ()
        assert "3 tensors" in note
        assert "'strange0'" in note
        assert {4: "type 4", 41: "type Q1_0", 77: "type 77"}[kind] in note
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_rows_of_no_whole_blocks_stay_bytes(tmp_path, round_trip):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([("w", TYPES["Q4_1"], (64, 3), bytes(120))]))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.arrays == ()
        assert checkpoint.notes
    assert round_trip(path).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("version", "order", "message"), [(1, "<", "version 1"), (3, ">", "big-endian")]
)
def test_other_versions_and_byte_orders_are_bytes(version, order, message, tmp_path, round_trip):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([array("w", SMALL, "F32")], version=version, order=order))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.arrays == ()
        (note,) = checkpoint.notes or ()
        assert message in note
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_files_without_arrays_in_a_folder(tmp_path):
    tensors = [("w", TYPES["F32"], (64, 64), bytes(1 << 14))]
    (tmp_path / "old.gguf").write_bytes(gguf(tensors, version=1))
    (tmp_path / "vocabulary.gguf").write_bytes(gguf([], VALUES))
    (tmp_path / "model.gguf").write_bytes(gguf(tensors))
    found = scan_folder(tmp_path)
    assert [file.name for file in found.weights] == ["model.gguf", "old.gguf"]
    assert [file.name for file in found.others] == ["vocabulary.gguf"]
    assert not found.unread


WHOLE = gguf([array("a", SMALL, "F32"), array("b", SMALL, "F32")], VALUES)
HUGE = struct.pack("<Q", 1 << 60)
LISTS = struct.pack("<IQ", 9, 1) * 9
DAMAGED: dict[str, tuple[bytes, str]] = {
    "magic alone": (b"GGUF\3\0\0\0", "cut short or damaged"),
    "cut in the header": (WHOLE[:100], "cut short or damaged"),
    "cut in a tensor": (WHOLE[:-1], "tensor 'b': is to end at byte"),
    "a million tensors": (b"GGUF\3\0\0\0" + HUGE + bytes(80), "a count of"),
    "a million values": (b"GGUF\3\0\0\0" + bytes(8) + HUGE, "a count of"),
    "a long text": (gguf([], [("a", 8, HUGE + b"abc")]), "cut short or damaged"),
    "a long list": (gguf([], [("a", 9, struct.pack("<I", 6) + HUGE)]), "cut short or damaged"),
    "a long list of texts": (gguf([], [("a", 9, struct.pack("<I", 8) + HUGE)]), "cut short"),
    "lists without end": (gguf([], [("a", 9, LISTS)]), "a value of type 9"),
    "an unknown value": (gguf([], [("a", 13, bytes(99))]), "a value of type 13"),
    "an alignment of 0": (gguf([], [("general.alignment", 4, bytes(4))]), "an alignment of 0"),
    "an alignment of 3": (gguf([], [("general.alignment", 4, b"\3\0\0\0")]), "alignment of 3"),
    "nine axes": (gguf([("a", 0, (1,) * 9, bytes(4))]), "a count of 9"),
    "a long tensor": (gguf([("a", 0, (1 << 40, 1 << 40), bytes(4))]), "is to end at byte"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_files(kind, tmp_path):
    data, message = DAMAGED[kind]
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_any_damage(tmp_path, damage):
    path = tmp_path / "model.gguf"
    path.write_bytes(WHOLE)
    damage(path, flips=300, seed=1, cut_every=7)


def test_an_empty_tensor_of_endless_axes(tmp_path, round_trip):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([("a", 0, (0, (1 << 64) - 1), b"")]))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.arrays == ()
    assert round_trip(path).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_files_of_the_gguf_package(kind: str, tmp_path: Path, round_trip: Any) -> None:
    path = tmp_path / "model.gguf"
    dtype = gguf_package.GGMLQuantizationType[kind]
    weights = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    writer = gguf_package.GGUFWriter(path, "llama")
    writer.add_token_list(["<s>", "a", "bc"])
    writer.add_tensor("norm", np.ones(5, np.float32))
    data = gguf_package.quants.quantize(weights, dtype)
    writer.add_tensor("w", data, raw_dtype=None if kind == "F16" else dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_checkpoint(path) as checkpoint:
        assert not checkpoint.notes
        infos = {info.name: (info.dtype, info.shape) for info in checkpoint.arrays}
        assert infos == {"norm": ("F32", (5,)), "w": (kind, (6, 64))}
        assert checkpoint.read("w").tobytes() == data.tobytes()
    assert round_trip(path).read_bytes() == path.read_bytes()
