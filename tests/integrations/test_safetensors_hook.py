"""The hook alone: what it replaces, what it leaves, and how it is undone."""

import importlib
import importlib.metadata
import json
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from safetensors.torch import load as early_load
from safetensors.torch import load_file as early_load_file

import tensorcomp
from tensorcomp import hub
from tensorcomp.integrations import safetensors_hook

PLAIN = safetensors.safe_open, safetensors.deserialize


def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {
        "w": random.standard_normal((70, 90)).astype(np.float32),
        "half": random.standard_normal((64, 130)).astype(ml_dtypes.bfloat16),
        "ids": np.arange(512)[None],
        "scalar": np.array(7.5, np.float16),
        "none": np.zeros((0, 3), np.float32),
        "mask": np.eye(9, dtype=np.bool_),
    }


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return an ordinary file, and a compressed one of a name that does not say so."""
    plain = tmp_path / "plain.safetensors"
    safetensors.torch.save_file(as_torch(), plain, {"format": "pt", "b": "c"})
    packed = tmp_path / "packed.safetensors"
    tensorcomp.compress(plain, packed)
    return plain, packed


def as_torch() -> dict[str, torch.Tensor]:
    return tensorcomp.load(tensorcomp.save(tensors()), "pt")


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].view(-1), tensor.view(-1))


def test_importing_changes_nothing_and_costs_little():
    script = """
import sys, safetensors
before = safetensors.safe_open, safetensors.deserialize
import tensorcomp.hub
assert (safetensors.safe_open, safetensors.deserialize) == before
assert not {"torch", "numpy", "transformers"} & sys.modules.keys()
tensorcomp.hub.enable()
assert safetensors.safe_open is not before[0]
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_names_of_before_and_after_read_compressed_files(files, monkeypatch):
    plain, packed = files
    holder = ModuleType("holder")
    holder.opened_by = PLAIN[0]  # another name than safetensors'
    monkeypatch.setitem(sys.modules, "holder", holder)
    with hub.enabled():
        from safetensors import safe_open as late_safe_open

        for safe_open in (holder.opened_by, late_safe_open):
            with safe_open(packed, framework="pt", device="cpu", backend="mmap") as file:
                assert_same(file.get_tensors(), as_torch())
        for load_file in (early_load_file, safetensors.torch.load_file):
            assert_same(load_file(packed), as_torch())
        for load in (early_load, safetensors.torch.load):
            assert_same(load(packed.read_bytes()), as_torch())
            assert_same(load(plain.read_bytes()), as_torch())
        numpy = safetensors.numpy.load(tensorcomp.save({"w": tensors()["w"]}))
        np.testing.assert_array_equal(numpy["w"], tensors()["w"])
    assert holder.opened_by is PLAIN[0]
    assert_same(late_safe_open(plain, "pt").get_tensors(), as_torch())
    blobs = late_safe_open(packed, "pt").get_tensors()  # kept from within, it is safetensors' again
    assert {tensor.dtype for tensor in blobs.values()} == {torch.uint8}


def test_everything_is_undone():
    def names() -> dict[tuple[str, str], int]:
        return {
            (module.__name__, name): id(value)
            for module in list(sys.modules.values())
            if isinstance(module, ModuleType) and module.__name__.startswith("safetensors")
            for name, value in vars(module).items()
        }

    before = names()
    hub.enable()
    changed = {key for key, value in names().items() if before[key] != value}
    assert {name for _, name in changed} == {"safe_open", "deserialize"}
    hub.enable()
    hub.disable()
    assert names() == before
    hub.disable()
    assert (safetensors.safe_open, safetensors.deserialize) == PLAIN


def test_ordinary_files_go_to_safetensors_unchanged(files, tmp_path):
    plain, _ = files
    before = {type(PLAIN[0](plain, "pt"))}
    (tmp_path / "text.safetensors").write_text("not a file of tensors")
    faults = []
    for path in (tmp_path / "text.safetensors", tmp_path / "absent.safetensors", 7, "a\0b"):
        with pytest.raises(Exception) as fault:
            PLAIN[0](path, "pt")
        faults.append((path, type(fault.value), str(fault.value)))
    hub.enable()
    assert {type(safetensors.safe_open(plain, "pt"))} == before
    for path, kind, text in faults:
        with pytest.raises(kind) as fault:
            safetensors.safe_open(path, "pt")
        assert str(fault.value) == text


def test_the_class_is_that_of_both(files):
    hub.enable()
    for path in files:
        with safetensors.safe_open(filename=path, framework="pt") as file:
            assert isinstance(file, safetensors.safe_open)
            assert file.metadata() == {"format": "pt", "b": "c"}
            assert sorted(file.keys()) == sorted(tensors())
    assert isinstance(safetensors.safe_open, type)
    assert not isinstance(files, safetensors.safe_open)


def test_the_raw_metadata_say_what_the_file_is(files):
    with PLAIN[0](files[1], "pt") as raw:
        assert raw.metadata()["format"] == "tensorcomp"
        assert raw.metadata().keys() == {"format", "tensorcomp"}


def test_a_file_that_merely_speaks_of_tensorcomp_is_ordinary(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file({"tensorcomp": np.ones(3)}, path, {"tensorcomp": "is good"})
    hub.enable()
    assert isinstance(safetensors.safe_open(path, "np"), PLAIN[0])
    assert safetensors.numpy.load(path.read_bytes()).keys() == {"tensorcomp"}


def test_damage_is_an_error_that_hosts_expect(files):
    data = bytearray(files[1].read_bytes())
    data[-40] ^= 1
    files[1].write_bytes(data)
    hub.enable()
    for read in (early_load_file, lambda path: early_load(path.read_bytes())):
        with pytest.raises(safetensors.SafetensorError, match="damaged"):
            read(files[1])


def test_blocks_nest_and_leave_what_was_enabled():
    with hub.enabled():
        with hub.enabled():
            pass
        assert safetensors.safe_open is not PLAIN[0]
        hub.disable()  # what others want, ends with them
        assert safetensors.safe_open is not PLAIN[0]
    assert safetensors.safe_open is PLAIN[0]
    hub.enable()
    with pytest.raises(KeyError), hub.enabled():
        raise KeyError
    assert safetensors.safe_open is not PLAIN[0]


def test_threads_that_load_at_once(files):
    barrier, found = threading.Barrier(4), []

    def load() -> None:
        barrier.wait()
        for _ in range(20):
            with hub.enabled():
                found.append(early_load_file(files[1]).keys() == tensors().keys())

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80
    assert safetensors.safe_open is PLAIN[0]


def test_a_second_call_looks_at_no_module(monkeypatch):
    hub.enable()
    monkeypatch.setattr(safetensors_hook, "_rename", pytest.fail)
    hub.enable()
    monkeypatch.undo()


def test_the_plug_in_of_vllm_names_a_function():
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8"))
    (value,) = project["project"]["entry-points"]["vllm.general_plugins"].values()
    point = importlib.metadata.EntryPoint("tensorcomp", value, "vllm.general_plugins")
    assert point.load() is hub.enable


def test_saving_what_is_no_model(tmp_path):
    with pytest.raises(tensorcomp.errors.InputTypeError, match="expected a model with save_pre"):
        hub.save_pretrained({"w": 1}, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_saving_by_the_models_own_function(tmp_path):
    class Model:
        def save_pretrained(self, folder: str, text: str) -> None:
            safetensors.torch.save_file(as_torch(), Path(folder, "model.safetensors"))
            Path(folder, "config.json").write_text(json.dumps(text))

    target = tmp_path / "out"
    hub.save_pretrained(Model(), target, save_options={"text": "é"}, effort="fast")
    assert {file.name for file in target.iterdir()} == {"model.tc.safetensors", "config.json"}
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert_same(tensorcomp.load_file(target / "model.tc.safetensors", "pt"), as_torch())
    with pytest.raises(tensorcomp.errors.CheckpointError, match="exists already"):
        hub.save_pretrained(Model(), target, save_options={"text": ""})
    hub.save_pretrained(Model(), target, save_options={"text": ""}, force=True)
    kept = tmp_path / "kept"
    hub.save_pretrained(Model(), kept, save_options={"text": ""}, keep_names=True)
    assert {file.name for file in kept.iterdir()} == {"model.safetensors", "config.json"}
    with pytest.raises(tensorcomp.errors.CheckpointError, match="cannot be written"):
        hub.save_pretrained(Model(), tmp_path / "absent" / "out", save_options={"text": ""})
