"""Torch files of every kind come back byte for byte, their tensors typed, named and in order."""

import argparse
import collections
import datetime
import io
import math
import pathlib
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dtype_names import NAMES

import tensorcomp
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.dtypes import torch_dtype, torch_dtype_name
from tensorcomp.planning.budgets import Budget

RoundTrip = Callable[[Path], Path]


class Scaler:
    """Stands for any class of a training script."""

    def __init__(self) -> None:
        self.state = {"scale": torch.ones(1), "growth": 2}


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def save(request, tmp_path) -> Callable[[Any], Path]:
    """Return a function that saves an object in one of torch's two formats."""

    def run(value: Any) -> Path:
        torch.save(value, tmp_path / "m", _use_new_zipfile_serialization=request.param)
        return tmp_path / "m"

    return run


@pytest.fixture
def arrays(round_trip: RoundTrip) -> Callable[[Path], dict[str, np.ndarray]]:
    """Return a function that requires equal bytes after a round trip, and gives the arrays."""

    def run(path: Path) -> dict[str, np.ndarray]:
        assert round_trip(path).read_bytes() == path.read_bytes()
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.kind == "torch"
            assert checkpoint.tensors[0].name in checkpoint.hidden
            return {
                info.name: by_elements(checkpoint.read(info.name), info.shape)
                for info in checkpoint.arrays
            }

    return run


def by_elements(data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return data.reshape(*shape, data.size // max(math.prod(shape), 1))


def bits(tensor: torch.Tensor) -> np.ndarray:
    """Return the bytes of a tensor's elements in logical order."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return by_elements(flat, tuple(tensor.shape))


def test_training_checkpoint(save, arrays):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.LSTM(4, 5)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sum(parameter.square().sum() for parameter in model.parameters()).backward()
    optimizer.step()
    found = arrays(
        save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3})
    )
    expected = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        expected |= {f"optimizer.state.{number}.{key}": item for key, item in state.items()}
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], bits(tensor), err_msg=name)


FOREIGN: dict[str, Any] = {
    "namespace": argparse.Namespace(lr=1),
    "numpy scalar": np.float64(1.5),
    "numpy array": np.arange(7),
    "path": pathlib.PurePosixPath("a/b"),
    "counter": collections.Counter("abca"),
    "date": datetime.date(2020, 1, 1),
    "own class": Scaler(),
    "module": torch.nn.Sequential(torch.nn.Linear(3, 4)),
    "function": print,
    "type": torch.Tensor,
    "sets": [{1, "a"}, frozenset((2, (3,))), {(1, ("b",)): 2}],
    "numbers": [2**70, -1, 1e300, 1j, True, None, b"x" * 300, bytearray(b"y"), "ü", "\ud800"],
    "storage": torch.arange(2000).untyped_storage(),
    "meta": torch.ones(2, device="meta"),
    "generator": torch.get_rng_state(),
}


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("kind", FOREIGN)
def test_objects_of_any_class_beside_tensors(kind, save, arrays):
    weight = torch.randn(6, 5)
    found = arrays(save({"w": weight, "x": FOREIGN[kind], "v": weight * 2}))
    np.testing.assert_array_equal(found["w"], bits(weight))
    np.testing.assert_array_equal(found["v"], bits(weight * 2))


def test_names_are_paths_through_dicts_lists_and_objects(save, arrays):
    one = torch.ones(1)
    value = {
        "a.b": one + 1,
        "a": {"b": one + 2},
        "list": [one + 3, {5: one + 4}],
        ("x", 1): one + 5,
        "__metadata__": one + 6,
        "\ud800": one + 7,
        b"raw": one + 8,
        "": one + 9,
        "scaler": Scaler(),
        "net": torch.nn.Sequential(OrderedDict(fc=torch.nn.Linear(1, 1))),
    }
    expected = ["a.b", "a.b#2", "list.0", "list.1.5", "('x', 1)", "__metadata__#2", "\\ud800"]
    expected += ["6", "", "scaler.state.scale", "net.fc.weight", "net.fc.bias"]
    assert sorted(arrays(save(value))) == sorted(expected)
    assert list(arrays(save(one))) == ["tensor"]


@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name, save, arrays, tmp_path):
    dtype = torch_dtype(name)
    patterns = torch.arange(160, dtype=torch.uint8)
    tensor = (patterns % 2 if dtype == torch.bool else patterns).view(dtype)
    value = {"t": tensor.clone(), "scalar": tensor[0].clone(), "none": tensor[:0].clone()}
    found = arrays(save(value))
    with open_checkpoint(tmp_path / "m") as checkpoint:
        held = {info.name: (info.dtype, info.shape) for info in checkpoint.arrays}
    assert held["t"] == (torch_dtype_name(dtype), tuple(tensor.shape))
    assert held["scalar"] == (torch_dtype_name(dtype), ())
    np.testing.assert_array_equal(found["t"], bits(tensor))


@pytest.mark.filterwarnings("ignore:.*[qQ]uantiz.*|.*TypedStorage.*|ComplexHalf")
def test_dtypes_that_safetensors_lacks_come_back(save, arrays):
    quantized = torch.quantize_per_tensor(torch.ones(3, 4), 0.1, 0, torch.qint8)
    half = torch.arange(24, dtype=torch.uint8).view(torch.complex32)
    found = arrays(save([quantized, half, torch.eye(3).to_sparse()]))
    assert found["0"].shape[:2] == (3, 4)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 6).t(),
        torch.randn(2, 3, 4).permute(2, 0, 1),
        torch.randn(5, 1, 3).permute(2, 1, 0),
        torch.randn(3, 1),
    ],
)
def test_permuted_tensors_are_read_in_their_own_order(tensor, save, arrays):
    np.testing.assert_array_equal(arrays(save({"a": tensor}))["a"], bits(tensor))


def test_tied_tensors_are_stored_once(save, arrays, tmp_path):
    weight = torch.randn(5, 4)
    path = save({"embed": weight, "head": weight[:], "rows": weight[1:3], "other": weight + 1})
    assert sorted(arrays(path)) == ["embed", "other"]
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.aliases == {"head": "embed"}


def test_views_of_one_storage(save, arrays):
    base = torch.randn(1000)
    found = arrays(save({"a": base[:60], "b": base[40:], "t": base[:50].view(5, 10)}))
    np.testing.assert_array_equal(found["b"], bits(base[40:]))
    assert "a" not in found  # overlaps
    flat = torch.randn(3000)
    found = arrays(save({"b": flat[100:130].view(5, 6), "a": flat[10:22].view(3, 4)}))
    np.testing.assert_array_equal(found["b"], bits(flat[100:130].view(5, 6)))
    np.testing.assert_array_equal(found["a"], bits(flat[10:22].view(3, 4)))
    assert found["b.storage"].shape[0] == 3000 - 130  # a part that is long
    expanded, windows = torch.ones(1).expand(10**12), torch.arange(6.0).unfold(0, 3, 1)
    assert not arrays(save({"a": expanded, "b": windows}))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_script_programs(tmp_path, arrays):
    layer = torch.nn.Linear(30, 20)
    torch.jit.save(torch.jit.trace(layer, torch.ones(1, 30)), tmp_path / "m")
    found = arrays(tmp_path / "m")
    np.testing.assert_array_equal(found["weight"], bits(layer.weight))


def test_a_file_of_big_endian_machines(tmp_path, arrays):
    weight = torch.randn(4, 6)
    torch.save({"a": weight}, tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as old, zipfile.ZipFile(tmp_path / "n", "w") as new:
        for name in old.namelist():
            swapped = weight.numpy().astype(">f4").tobytes() if name.endswith("data/0") else b""
            order = b"big" if name.endswith("byteorder") else b""
            new.writestr(name, swapped or order or old.read(name))
    np.testing.assert_array_equal(arrays(tmp_path / "n")["a"], bits(weight))


def test_zip_packed_again_keeps_its_deflated_members(tmp_path, round_trip):
    torch.save({"a": torch.arange(5000)}, tmp_path / "m")
    with (
        zipfile.ZipFile(tmp_path / "m") as old,
        zipfile.ZipFile(tmp_path / "packed", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with open_checkpoint(tmp_path / "packed") as checkpoint:
        assert not checkpoint.arrays
    assert round_trip(tmp_path / "packed").read_bytes() == (tmp_path / "packed").read_bytes()


def test_matrices_are_coded_with_their_rows(tmp_path):
    rows = torch.randn(256, 1) * 10 ** torch.linspace(-4, 4, 256)[:, None]
    weight = (rows * torch.randn(256, 512)).bfloat16()
    torch.save({"w": weight}, tmp_path / "m.pt")
    done = tensorcomp.compress(tmp_path / "m.pt")
    as_one = tensorcomp.save({"w": weight})
    assert done.output_bytes < 1.02 * len(as_one)


def test_a_lossy_zip_file_has_right_checksums(tmp_path):
    value = {"w": torch.randn(128, 128), "b": torch.randn(128), "n": 3}
    torch.save(value, tmp_path / "m.pt")
    tensorcomp.compress(tmp_path / "m.pt", budget=Budget(min_snr=20))
    back = tensorcomp.decompress(tmp_path / "m.pt.tc.safetensors", tmp_path / "back.pt")
    with zipfile.ZipFile(back) as archive:
        assert archive.testzip() is None
    loaded = torch.load(back, weights_only=True)
    assert torch.equal(loaded["b"], value["b"])
    assert loaded["n"] == 3
    error = (loaded["w"] - value["w"]).norm() / value["w"].norm()
    assert 0 < error <= 0.1


def test_a_lossy_legacy_file_loads(tmp_path):
    value = {"w": torch.randn(128, 128), "n": 3}
    torch.save(value, tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    done = tensorcomp.compress(tmp_path / "m.pt", budget=Budget(min_snr=20))
    loaded = torch.load(tensorcomp.decompress(done.path, tmp_path / "back.pt"), weights_only=True)
    assert loaded["n"] == 3
    assert 0 < (loaded["w"] - value["w"]).norm() / value["w"].norm() <= 0.1


def test_nothing_of_torch_is_imported(tmp_path, monkeypatch):
    torch.save({"a": torch.ones(3)}, tmp_path / "m.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    done = tensorcomp.compress(tmp_path / "m.pt")
    back = tensorcomp.decompress(done.path, tmp_path / "back.pt")
    assert back.read_bytes() == (tmp_path / "m.pt").read_bytes()


def distributed(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """Write a part of a distributed checkpoint without its metadata."""
    path = folder / "__0_0.distcp"
    with path.open("wb") as file:
        for tensor in tensors.values():
            one = io.BytesIO()
            torch.save(tensor, one)
            file.write(one.getvalue())
    return path


def test_distributed_checkpoints_without_metadata(tmp_path, round_trip):
    tensors = {"a": torch.randn(50, 60), "b": torch.arange(9), "c": torch.frombuffer(
        bytearray(b"PK\x05\x06" * 300), dtype=torch.uint8)}  # fmt: skip
    path = distributed(tmp_path, tensors)
    assert round_trip(path).read_bytes() == path.read_bytes()
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.kind == "distcp"
        assert [info.name for info in checkpoint.arrays] == ["0", "1", "2"]
        np.testing.assert_array_equal(checkpoint.read("0").reshape(50, 60, -1), bits(tensors["a"]))


@pytest.mark.slow  # to import it
@pytest.mark.filterwarnings("ignore")
def test_distributed_checkpoints_name_their_tensors(tmp_path):
    from torch.distributed import checkpoint as dcp

    value = {"model": {"w": torch.randn(64, 64), "b": torch.ones(9)}, "step": 3}
    dcp.save(value, checkpoint_id=str(tmp_path / "saved"))
    done = tensorcomp.compress(tmp_path / "saved")
    assert {row.name for row in done.summary.tensors} == {"model.w", "model.b"}
    back = tensorcomp.decompress(done.path, tmp_path / "back")
    for file in (tmp_path / "saved").iterdir():
        assert (back / file.name).read_bytes() == file.read_bytes()
