import json
import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from tensorcomp.checkpoints.base import SourceTemplate
from tensorcomp.checkpoints.open import open_checkpoint, restore
from tensorcomp.errors import CheckpointError, FormatError

RoundTrip = Callable[[Path], Path]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    rng = np.random.default_rng(7)
    tensors = {
        "embed.weight": rng.standard_normal((100, 33)).astype(np.float32),
        "norm": np.array([-0.0, np.nan, np.inf, 1e-40], np.float32),
        "steps": np.array(7, np.int64),
        "empty": np.zeros((0, 3), np.float16),
        "mask": np.array([True, False]),
        "naïve/name " + "x" * 100: np.arange(3, dtype=np.uint8),
    }
    safetensors.numpy.save_file(tensors, path, {"format": "pt", "note": "ü"})
    return path


def test_tensors_are_views_of_the_map(file):
    expected = safetensors.numpy.load_file(file)
    with open_checkpoint(file) as checkpoint:
        assert {info.name for info in checkpoint.tensors} == set(expected)
        for info in checkpoint.tensors:
            data = checkpoint.read(info.name)
            assert not data.flags.owndata
            assert data.tobytes() == expected[info.name].tobytes()
            assert info.shape == expected[info.name].shape
    assert data.tobytes()  # a view outlives its checkpoint


def test_library_files_are_restored_without_a_stored_header(file, round_trip):
    assert round_trip(file).read_bytes() == file.read_bytes()
    with open_checkpoint(file) as checkpoint:
        template = checkpoint.template()
    assert template == SourceTemplate("safetensors", {"metadata": {"format": "pt", "note": "ü"}})


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.complex64,
        torch.uint16,
        torch.uint64,
    ],
)
def test_torch_dtypes(dtype, tmp_path, round_trip):
    path = tmp_path / "m"
    safetensors.torch.save_file({"a": torch.ones(3, 5).to(dtype), "b": torch.ones(1)}, path)
    assert round_trip(path).read_bytes() == path.read_bytes()


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


ENTRY = json.dumps(entry("U8", [4], 0, 4))
ODD_HEADERS: dict[str, str] = {
    "null metadata": f'{{"__metadata__":null,"a":{ENTRY}}}',
    "metadata last": f'{{"a":{ENTRY},"__metadata__":{{"k":"v"}}}}',
    "spaces": json.dumps({"a": entry("U8", [4], 0, 4)}, indent=2),
    "long padding": json.dumps({"a": entry("U8", [4], 0, 4)}) + " " * 999,
    "keys against the offsets": json.dumps(
        {"b": entry("I8", [3], 1, 4), "a": entry("U8", [1], 0, 1)}
    ),
    "escaped names": f'{{"\\u00e9\\/":{ENTRY}}}',
    "unknown dtype": json.dumps({"a": entry("F3_FUTURE", [5], 0, 4)}),
    "no padding": json.dumps({"abc": entry("U8", [4], 0, 4)}, separators=(",", ":")),
}


@pytest.mark.parametrize("kind", ODD_HEADERS)
def test_odd_headers_are_restored_byte_for_byte(kind, tmp_path, round_trip):
    path = tmp_path / "odd"
    text = ODD_HEADERS[kind].encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"data")
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_an_odd_header_costs_little(tmp_path):
    path = tmp_path / "odd"
    names = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(500)]
    header = {name: entry("U8", [1], i, i + 1) for i, name in enumerate(names)}
    text = json.dumps(header, sort_keys=True).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(500))
    with open_checkpoint(path) as checkpoint:
        attachment = checkpoint.template().attachments["header"]
    assert len(attachment) < len(text) / 10


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_metadata_without_tensors(metadata, tmp_path, round_trip):
    path = tmp_path / "empty"
    text = json.dumps({} if metadata is None else {"__metadata__": metadata}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_read_where_a_map_is_refused(file, round_trip, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no such device")

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert round_trip(file).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("missing", [1, 5, 2000, 13_000])
def test_cut_files_say_how_much_is_whole(file, missing, tmp_path):
    whole = file.read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(whole[:-missing])
    with pytest.raises(CheckpointError, match=r"cut short: .* of 6 tensors are whole, not '"):
        open_checkpoint(cut)


def test_bytes_stay_bytes(tmp_path, round_trip):
    patterns = np.arange(2**16, dtype=np.uint16)  # every bf16, each kind of NaN included
    path = tmp_path / "m"
    safetensors.numpy.save_file({"a": patterns.view(ml_dtypes.bfloat16)}, path)
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_unknown_names_and_kinds(file, tmp_path, decoded):
    with open_checkpoint(file) as checkpoint:
        source = decoded(checkpoint)
        with pytest.raises(CheckpointError, match="has no tensor 'absent'"):
            checkpoint.read("absent")
    with pytest.raises(FormatError, match="kind 'gguf'"):
        restore(SourceTemplate("gguf"), source, tmp_path / "out")
    with pytest.raises(CheckpointError, match="cannot be written: there is no such"):
        restore(SourceTemplate("safetensors"), source, tmp_path / "absent" / "out")
    with pytest.raises(CheckpointError, match="cannot be written: Is a directory"):
        restore(SourceTemplate("safetensors"), source, tmp_path)


def test_damaged_templates_are_format_errors(file, tmp_path, decoded):
    with open_checkpoint(file) as checkpoint:
        source = decoded(checkpoint)
    out = tmp_path / "out"
    for template in (
        SourceTemplate("safetensors", {"metadata": [1]}),
        SourceTemplate("safetensors", {"metadata": {"k": 1}}),
        SourceTemplate("safetensors", {}, {"header": b"junk"}),
        SourceTemplate("safetensors", {}, {"header": b""}),
    ):
        with pytest.raises(FormatError):
            restore(template, source, out)
    source.data["norm"] = source.data["norm"][:-1]
    with pytest.raises(FormatError, match="'norm': decodes to 15"):
        restore(SourceTemplate("safetensors"), source, out)
    source.data["norm"] = np.zeros(100, np.uint8)
    with pytest.raises(FormatError, match="'norm': decodes to 100"):
        restore(SourceTemplate("safetensors"), source, out)
