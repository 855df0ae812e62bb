"""Templates of files of format 7 and before are checked before they are obeyed."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tensorcomp.checkpoints.base import SourceTemplate
from tensorcomp.checkpoints.earlier.torch_tree_decoder import TreeDecoder
from tensorcomp.checkpoints.open import restore
from tensorcomp.checkpoints.packing import unpack_structure
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import CheckpointError, FormatError

torch = pytest.importorskip("torch")
GOLDEN = Path(__file__).parents[1] / "golden" / "v7"


def golden(name: str) -> CompressedFile:
    return CompressedFile(GOLDEN / f"{name}.balanced.tc.safetensors")


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_damaged_templates_of_torch_files(tmp_path):
    with golden("train.pt") as source:
        good = unpack_structure(source.template())
        pool = good["leaves"][0]
        size = pool["shape"][0] * pool["shape"][1]
        flat = {"pool": 0, "offset": 0, "shape": [size], "stride": [1]}
        leaf = {"tree": {"tensor": 0}, "leaves": [flat], "pools": good["pools"]}
        restore(SourceTemplate("torch", leaf), source, tmp_path / "out")
        assert torch.load(tmp_path / "out").shape == (size,)
        for damage in (
            {"tree": {"tensor": 1}},
            {"tree": {"tensor": "a"}},
            {"tree": {"unknown": 1}},
            *({"tree": {"complex": parts}} for parts in ([], [1], [1, 2, 3], "1", "12", ["1"])),
            {"tree": {}},
            {"tree": {"ref": 5}},
            {"tree": {"dict": [[[], 1]]}},
            {"tree": {"dict": 5}},
            {"tree": {"dtype": "load"}},
            {"tree": {"float": "zz"}},
            {"tree": {"bytes": "%"}},
            {"tree": {"device": "nowhere"}},
            {"tree": deep(2000)},
            {"leaves": 5},
            {"leaves": [flat | {"offset": 1}]},
            {"leaves": [flat | {"offset": -1}]},
            {"leaves": [flat | {"shape": [size + 1]}]},
            {"leaves": [flat | {"shape": [2**62], "stride": [2**62]}]},
            {"leaves": [flat | {"pool": 9}]},
            {"leaves": [{"name": "absent"}]},
            {"leaves": [{"name": "bf16", "stride": [1, 1]}]},
            {"leaves": [{"name": "bf16", "shape": [7]}]},
            {"leaves": [{"name": "bf16", "dtype": "nothing"}]},
            {"pools": [{"dtype": "float32", "pieces": ["absent"]}]},
            {"pools": [{}]},
        ):
            with pytest.raises(FormatError):
                restore(SourceTemplate("torch", leaf | damage), source, tmp_path / "out")
        for template in (SourceTemplate("torch"), SourceTemplate("torch", {}, {"structure": b"x"})):
            with pytest.raises(FormatError):
                restore(template, source, tmp_path / "out")
        with pytest.raises(CheckpointError, match="cannot be written"):
            restore(source.template(), source, tmp_path / "absent" / "out")


def test_unknown_tags_never_import(monkeypatch):
    def refuse(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr(torch, "__getattr__", refuse)
    decoder = TreeDecoder(lambda leaf: None)
    assert decoder.decode({"dtype": "float32"}) is torch.float32
    for node in ({"x": 3}, {"x": "_inductor"}):
        with pytest.raises(FormatError, match="unknown tag 'x'"):
            decoder.decode(node)
    for content in ("_inductor", "strided", 3, []):
        with pytest.raises(FormatError, match="template of the torch file is damaged"):
            decoder.decode({"dtype": content})


def test_missing_torch_is_explained(tmp_path, monkeypatch):
    with golden("train.pt") as source:
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(CheckpointError, match=r"pip install 'tensorcomp\[torch\]'"):
            restore(source.template(), source, tmp_path / "out")


def test_damaged_templates_of_archives(tmp_path):
    with golden("arrays.npz") as source:
        good = next(
            node
            for node in unpack_structure(source.template())["members"]
            if node["name"] == "mlp.weight"
        )
        shape = source.record("mlp.weight").shape
        for members in (
            None,
            5,
            [5],
            [{}],
            [good | {"name": "absent"}],
            [good | {"name": []}],
            [good | {"member": 5}],
            [good | {"member": "\ud800"}],
            [good | {"method": 99}],
            [good | {"method": "x"}],
            [good | {"method": 8.0}],
            [good | {"method": None}],
            [good | {"method": [8]}],
            [good | {"member": "x" * 65536}],
            [good | {"header": 5}],
            [good | {"header": "ü€"}],
            [good | {"header": "junk"}],
            [good | {"header": good["header"].replace(str(shape), str((*shape, 2)))}],
            [good, good],
        ):
            with pytest.raises(FormatError):
                restore(SourceTemplate("npz", {"members": members}), source, tmp_path / "out")
