"""Objects and damaged files of torch that are refused, and code that is never run."""

import argparse
import datetime
import pickle
import sys
import zipfile
from typing import Any

import numpy as np
import pytest
import torch
from test_torch_file import assert_equal

from tensorcomp.checkpoints.base import SourceTemplate
from tensorcomp.checkpoints.layouts.torch_tree_decoder import TreeDecoder
from tensorcomp.checkpoints.open import open_checkpoint, restore
from tensorcomp.errors import CheckpointError, FormatError


class Custom:
    """Stands for any class that weights_only loading does not allow."""


class Subclass(torch.Tensor):
    """Stands for any tensor subclass that a user allowed by hand."""


def cyclic() -> list[Any]:
    value: list[Any] = [1]
    value.append({"back": value})
    return value


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def deep_set(levels: int) -> set[Any]:
    value: tuple[Any, ...] = ()
    for _ in range(levels):
        value = (value,)
    return {value, 1}


REFUSED: dict[str, tuple[Any, str]] = {
    "numpy scalar": ({"loss": np.float64(1.5)}, "a NumPy object made by 'numpy.*scalar'"),
    "numpy array": ({"loss": np.ones(3)}, "a NumPy object made by"),
    "namespace": ({"args": argparse.Namespace(lr=1)}, "made by 'argparse.Namespace'.*code"),
    "own class": ({"a": Custom()}, r"made by '.*Custom'.*state_dict\(\)"),
    "function": ({"a": print}, "made by 'print'"),
    "date": ({"a": datetime.date(2020, 1, 1)}, "made by 'datetime.date'"),
    "module": (torch.nn.Linear(1, 1), "made by 'torch.nn.modules.linear.Linear'"),
    "sparse": ({"a": torch.eye(3).to_sparse()}, r"'a' is a tensor of layout torch.sparse_coo"),
    "meta": ({"x": [torch.ones(2, device="meta")]}, "'x.0' is a meta tensor"),
    "storage": (
        {"a": torch.ones(2).untyped_storage()},
        "'a' is a torch.*Storage|no attribute 'dtype'",
    ),
    "type": ({"a": torch.Tensor}, "'a' is a torch._C._TensorMeta|'a' is a builtins.type"),
    "cycle": (cyclic(), "'1.back' holds itself"),
    "deep": (deep(150), "nests more than 100 levels"),
    "deep set": (deep_set(300), "nests more than 100 levels"),
    "very deep": (deep(400), "nests more than 100 levels"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("zipped", [True, False])
def test_refused_objects_are_named(kind, zipped, tmp_path):
    value, message = REFUSED[kind]
    path = tmp_path / "m"
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*[qQ]uantiz.*|.*TypedStorage.*")
def test_quantized_tensors_are_refused(tmp_path):
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    torch.save({"a": quantized}, tmp_path / "m")
    with pytest.raises(CheckpointError, match="'a' is a quantized tensor"):
        open_checkpoint(tmp_path / "m")


def test_tensor_subclasses_are_refused(tmp_path):
    torch.save({"a": torch.ones(3).as_subclass(Subclass)}, tmp_path / "m")
    with (
        torch.serialization.safe_globals([Subclass]),
        pytest.raises(CheckpointError, match=r"'a' is a tensor of the subclass .*Subclass"),
    ):
        open_checkpoint(tmp_path / "m")


def test_repetition_does_not_explode(tmp_path, round_trip):
    value: Any = ["x" * 10_000]
    for _ in range(40):
        value = [value, value]
    path = tmp_path / "m"
    torch.save(value, path)
    restored = round_trip(path)
    assert restored.stat().st_size < 20_000


def test_byte_strings_cannot_be_longer_than_their_file(tmp_path):
    class Claim:
        def __reduce__(self) -> Any:
            return bytearray, (2**26,)

    torch.save({"a": Claim()}, tmp_path / "m")
    with pytest.raises(CheckpointError, match="'a' claims 67,108,864 bytes"):
        open_checkpoint(tmp_path / "m")


def test_code_is_never_run(tmp_path):
    class Attack:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "run"), "w")

    for zipped in (True, False):
        torch.save({"a": Attack()}, tmp_path / "m", _use_new_zipfile_serialization=zipped)
        with pytest.raises(CheckpointError, match=r"made by '(io|_io)?\.?open'"):
            open_checkpoint(tmp_path / "m")
    assert not (tmp_path / "run").exists()


def test_zip_packed_again_is_inflated(tmp_path, round_trip):
    value = {"a": torch.arange(5000)}
    torch.save(value, tmp_path / "m")
    with (
        zipfile.ZipFile(tmp_path / "m") as old,
        zipfile.ZipFile(tmp_path / "packed", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    try:
        torch.load(tmp_path / "packed", weights_only=True)
    except Exception:
        with pytest.raises(CheckpointError):
            open_checkpoint(tmp_path / "packed")
    else:
        assert_equal(torch.load(round_trip(tmp_path / "packed"), weights_only=True), value)


@pytest.mark.parametrize("zipped", [True, False])
def test_cut_files(zipped, tmp_path):
    path = tmp_path / "m"
    torch.save({"a": torch.randn(1000), "b": [1, 2]}, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    for size in [*range(1, 600, 23), len(whole) // 2, len(whole) - 100, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("zipped", [True, False])
def test_flipped_bits(zipped, tmp_path, damage):
    path = tmp_path / "m"
    value = {"a": torch.arange(20), "b": [1, 2.5, "text", torch.ones(2, 2).t()]}
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    damage(path, flips=150, seed=3)


def test_damaged_templates_are_format_errors(tmp_path, decoded):
    base = torch.arange(12.0)
    torch.save({"a": base, "b": base[2:5], "c": torch.ones(2, 3).t()}, tmp_path / "m")
    with open_checkpoint(tmp_path / "m") as checkpoint:
        source, good = decoded(checkpoint), checkpoint.template().structure
    pool = {"pool": 0, "offset": 0, "shape": [12], "stride": [1]}
    leaf = {"tree": {"tensor": 0}, "leaves": [pool], "pools": good["pools"]}
    restore(SourceTemplate("torch", leaf), source, tmp_path / "out")
    for damage in (
        {"tree": {"tensor": 1}},
        {"tree": {"tensor": "a"}},
        {"tree": {"unknown": 1}},
        *({"tree": {"complex": parts}} for parts in ([], [1], [1, 2, 3], "1", "12", ["1", "2"])),
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
        {"leaves": [pool | {"offset": 1}]},
        {"leaves": [pool | {"offset": -1}]},
        {"leaves": [pool | {"shape": [13]}]},
        {"leaves": [pool | {"shape": [2**62], "stride": [2**62]}]},
        {"leaves": [pool | {"pool": 9}]},
        {"leaves": [{"name": "absent"}]},
        {"leaves": [{"name": "c", "stride": [1, 1]}]},
        {"leaves": [{"name": "c", "shape": [7]}]},
        {"leaves": [{"name": "c", "dtype": "nothing"}]},
        {"pools": [{"dtype": "float32", "pieces": ["absent"]}]},
        {"pools": [{}]},
    ):
        with pytest.raises(FormatError):
            restore(SourceTemplate("torch", leaf | damage), source, tmp_path / "out")
    for template in (SourceTemplate("torch"), SourceTemplate("torch", {}, {"structure": b"junk"})):
        with pytest.raises(FormatError):
            restore(template, source, tmp_path / "out")


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


def test_unwritable_output(tmp_path, decoded):
    torch.save({"a": torch.ones(3)}, tmp_path / "m")
    with open_checkpoint(tmp_path / "m") as checkpoint:
        with pytest.raises(CheckpointError, match="has no tensor 'absent'"):
            checkpoint.read("absent")
        with pytest.raises(CheckpointError, match="cannot be written"):
            restore(checkpoint.template(), decoded(checkpoint), tmp_path / "absent" / "out")


def test_missing_torch_is_explained(tmp_path, monkeypatch):
    torch.save({"a": torch.ones(3)}, tmp_path / "m")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CheckpointError, match=r"pip install 'tensorcomp\[torch\]'"):
        open_checkpoint(tmp_path / "m")


def test_storage_claims_are_compared_with_the_file(tmp_path):
    path = tmp_path / "m"
    torch.save({"a": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    # Storage of 3 elements and a tensor of shape (3,), both made to claim more.
    damaged = path.read_bytes().replace(b"K\x03", b"J\xff\xff\xff\x7f")
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError):
        open_checkpoint(path)
    assert pickle.loads(damaged[:15])
