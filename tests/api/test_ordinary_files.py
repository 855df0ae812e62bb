"""Ordinary safetensors files and compressed ones go through the same functions."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from checkpoint_files import assert_equal, small_model, write_safetensors
from safetensors import SafetensorError

import tensorcomp
import tensorcomp.numpy
import tensorcomp.torch
from tensorcomp.checkpoints.safetensors import file as file_module
from tensorcomp.errors import CheckpointError, FormatError, InputTypeError, OptionError

METADATA = {"format": "pt", "é": "ü"}
KINDS = ("ordinary", "compressed")
BACKENDS = ("mmap", "pread")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("files") / "model.safetensors"
    odd = {"nothing": np.zeros((0, 3), np.float32), "unknown": ("Q9", (5,), b"abc")}
    write_safetensors(path, small_model() | odd, METADATA)
    return {"ordinary": path, "compressed": tensorcomp.compress(path).path}


def check(found: dict[str, Any]) -> None:
    wanted = small_model() | {"nothing": np.zeros((0, 3), np.float32)}
    assert sorted(found) == sorted([*wanted, "unknown"])
    for name, array in wanted.items():
        assert_equal(np.asarray(found[name]), array)
    for name in wanted:
        found[name].reshape(-1)[:1] = 1  # ours to change
    assert bytes(np.asarray(found["unknown"])) == b"abc"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("framework", ["np", "pt"])
def test_every_door_gives_the_tensors(kind, backend, framework, paths):
    path = paths[kind]
    before = path.read_bytes()
    check(tensorcomp.load_file(path, framework, backend=backend))
    check(tensorcomp.load(before, framework))
    with tensorcomp.safe_open(str(path), framework, backend=backend) as file:
        check(file.get_tensors())
        assert file.keys() == sorted(file.offset_keys())
        assert file.metadata() == METADATA
    with tensorcomp.safe_open(path, framework, backend=backend) as file:
        check({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    with tensorcomp.safe_open(path, framework, backend=backend) as file:
        check({name: file.get_slice(name)[...] for name in file.offset_keys()})
    module = tensorcomp.numpy if framework == "np" else tensorcomp.torch
    check(module.load_file(path, backend=backend, threads=2))
    check(module.load(before, threads=1))
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_read_is_not_mapped(kind, paths, monkeypatch):
    monkeypatch.setattr(file_module, "map_file", lambda file: pytest.fail("mapped"))
    with tensorcomp.safe_open(paths[kind], backend="pread") as file:
        check(file.get_tensors())


def test_torch_tensors_of_an_ordinary_file_are_not_copied(paths):
    with tensorcomp.safe_open(paths["ordinary"], "pt") as file:
        first, second = file.get_tensor("embed.weight"), file.get_slice("embed.weight")[2:4]
    assert second.data_ptr() == first[2:4].data_ptr()  # views of one mapping, as theirs
    first[:] = 1
    assert (second == 1).all()
    with tensorcomp.safe_open(paths["ordinary"], "pt") as file:
        assert not (file.get_tensor("embed.weight") == 1).all()


def test_a_header_of_odd_length_leads_to_aligned_tensors(tmp_path):
    header = b'{"a":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}}'
    header += b" " * (len(header) % 2 + 1)  # an odd length
    values = np.arange(3, dtype=np.float64)
    path = tmp_path / "x.safetensors"
    path.write_bytes((len(header)).to_bytes(8, "little") + header + values.tobytes())
    for framework in ("np", "pt"):
        for backend in BACKENDS:
            with tensorcomp.safe_open(path, framework, backend=backend) as file:
                for found in (
                    file.get_tensor("a"),
                    file.get_slice("a")[:3],
                    file.get_tensors()["a"],
                ):
                    assert np.array_equal(np.asarray(found), values)
                    assert np.asarray(found).ctypes.data % 8 == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_counts_for_both(kind, paths):
    for load in (tensorcomp.numpy.load_file, tensorcomp.torch.load_file):
        with pytest.raises(FormatError, match="the limit of 1,000; if you trust"):
            load(paths[kind], max_bytes=1000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_handle_refuses_use_but_its_slices_do_not(kind, paths):
    with tensorcomp.safe_open(paths[kind]) as file:
        part = file.get_slice("layer.0.mlp.weight")
    calls = (
        *(file.keys, file.offset_keys, file.metadata, file.get_tensors),
        *(lambda: file.get_tensor("step"), lambda: file.get_slice("step")),
    )
    for call in calls:
        with pytest.raises(SafetensorError, match="File is closed"):
            call()
    assert_equal(part[3:5], small_model()["layer.0.mlp.weight"][3:5])  # as theirs
    with pytest.raises(SafetensorError), file as again:
        again.keys()


def test_a_missing_file_is_one_for_every_function(tmp_path):
    absent = tmp_path / "absent.safetensors"
    calls = (
        *(tensorcomp.load_file, tensorcomp.numpy.load_file, tensorcomp.torch.load_file),
        *(tensorcomp.safe_open, tensorcomp.decompress, tensorcomp.verify, tensorcomp.inspect),
        *(tensorcomp.compress, tensorcomp.plan),
    )
    for call in calls:
        with pytest.raises(FileNotFoundError) as caught:
            call(absent)
        assert isinstance(caught.value, CheckpointError)
        assert str(absent) in str(caught.value)
    for opened in (safetensors.safe_open, tensorcomp.safe_open):
        with pytest.raises(FileNotFoundError, match=r"^No such file or directory: notafile$"):
            opened("notafile", framework="np")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"framework": "tf"}, OptionError),
        ({"device": "cuda"}, OptionError),
        ({"framework": "pt", "device": "nonesuch"}, OptionError),
        ({"backend": "gds"}, OptionError),
    ],
)
def test_impossible_arguments_are_refused(arguments, error, paths):
    for call in (tensorcomp.safe_open, tensorcomp.load_file):
        with pytest.raises(error) as caught:
            call(paths["ordinary"], **arguments)
        assert isinstance(caught.value, SafetensorError)


def test_errors_are_safetensors_too_and_can_be_sent_to_other_processes(paths, tmp_path):
    damaged = bytearray(paths["compressed"].read_bytes())
    damaged[-3] ^= 1
    other = tmp_path / "x.npz"
    np.savez(other, a=np.arange(3))
    calls = {
        "few bytes": lambda: tensorcomp.numpy.load(b"abc"),
        "damage": lambda: tensorcomp.torch.load(bytes(damaged)),
        "another format": lambda: tensorcomp.numpy.load_file(other),
        "no tensor": lambda: tensorcomp.safe_open(paths["ordinary"]).get_tensor("nonesuch"),
        "no bytes": lambda: tensorcomp.numpy.load("text"),
        "no array": lambda: tensorcomp.numpy.save({"a": [1, 2]}),
        "a dtype": lambda: tensorcomp.numpy.save({"a": np.array(["a"])}),
        "a name": lambda: tensorcomp.numpy.save({1: np.zeros(2)}),
        "metadata": lambda: tensorcomp.numpy.save({"a": np.zeros(2)}, {"a": 1}),
        "no folder": lambda: tensorcomp.numpy.save_file({}, tmp_path / "none" / "x"),
    }
    for name, call in calls.items():
        with pytest.raises(tensorcomp.TensorcompError) as caught:
            call()
        error = caught.value
        assert isinstance(error, SafetensorError), name
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
    for name in ("no bytes", "no array", "a dtype", "a name", "metadata"):
        with pytest.raises(InputTypeError) as caught:
            calls[name]()
        assert isinstance(caught.value, TypeError)


def test_what_goes_well_imports_no_safetensors(paths):
    code = "import sys, tensorcomp; tensorcomp.load_file(sys.argv[1])"
    code += "; print('safetensors' in sys.modules, 'torch' in sys.modules)"
    command = [sys.executable, "-c", code, paths["ordinary"]]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False False"
