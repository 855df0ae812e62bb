import io
import json
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

import tensorcomp
from tensorcomp.checkpoints.open import detect_format, open_checkpoint
from tensorcomp.errors import CheckpointError

RoundTrip = Callable[[Path], Path]
WEIGHTS = np.random.default_rng(0).standard_normal((96, 64)).astype(np.float32)


def arrays_of(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    with open_checkpoint(path) as checkpoint:
        return {info.name: (info.dtype, info.shape) for info in checkpoint.arrays}


def notes_of(path: Path) -> tuple[str, ...]:
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.notes is not None
        return tuple(checkpoint.notes)


def keras_weights(file: h5py.File) -> None:
    """Write the data sets of a small model, as keras does."""
    for number, values in enumerate((WEIGHTS, np.arange(64, dtype=np.float32))):
        file.create_dataset(f"layers/dense/vars/{number}", data=values)
    file["layers"].attrs["name"] = "sequential"


def keras_archive(path: Path, compression: int = zipfile.ZIP_STORED) -> Path:
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        keras_weights(file)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.5.0"}))
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", weights.getvalue())
    return path


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_arrays(version, tmp_path, round_trip):
    path = tmp_path / "any name"
    values: dict[str, Any] = {
        "layers/dense/vars/0": WEIGHTS,
        "dense/kernel:0": WEIGHTS.T.copy(),
        "half": np.ones((2, 3), np.float16),
        "double": np.arange(3.0),
        "count": np.array(5, np.int64),
        "bytes": np.arange(9, dtype=np.uint8),
        "flags": np.array([True, False]),
        "complex": np.array([1 + 2j], np.complex64),
    }
    with h5py.File(path, "w", libver=version) as file:
        for name, array in values.items():
            file.create_dataset(name, data=array)
    assert detect_format(path) == "hdf5"
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.notes == ()
        found = {info.name for info in checkpoint.arrays}
        assert "layers.dense.vars.0" in found
        assert "dense.kernel" in found
        assert len(found) == len(values)
        for name, array in values.items():
            data = checkpoint.read(name.replace("/", ".").removesuffix(":0"))
            assert data.tobytes() == array.tobytes()
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_big_endian_arrays(tmp_path, round_trip):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("w", data=WEIGHTS.astype(">f4"))
        file.create_dataset("i", data=np.arange(5, dtype=">i8"))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.read("w").tobytes() == WEIGHTS.tobytes()
        assert checkpoint.read("i").tobytes() == np.arange(5).tobytes()
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_bfloat16_as_keras_writes_it(tmp_path, round_trip):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("w", data=WEIGHTS.astype(ml_dtypes.bfloat16))
        data.attrs["dtype"] = "bfloat16"
        file.create_dataset("pairs", data=np.zeros(3, "V2"))
    assert arrays_of(path) == {"w": ("BF16", (96, 64))}
    assert round_trip(path).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("size", [512, 4096])
@pytest.mark.parametrize("start", [b"\0", b"MATLAB 7.3 MAT-file"])
def test_a_block_of_the_user_before_it(size, start, tmp_path, round_trip):
    path = tmp_path / "model.mat"
    with h5py.File(path, "w", userblock_size=size) as file:
        file.create_dataset("w", data=WEIGHTS)
    with path.open("r+b") as file:
        file.write(start)
    assert detect_format(path) == "hdf5"
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.read("w").tobytes() == WEIGHTS.tobytes()
    assert round_trip(path).read_bytes() == path.read_bytes()


def other_sets(file: h5py.File) -> None:
    """Write data sets that are no arrays at places of the file."""
    file.create_dataset("chunked", data=WEIGHTS, chunks=(10, 64))
    file.create_dataset("gzip", data=WEIGHTS, chunks=(10, 64), compression="gzip")
    file.create_dataset("texts", data=["a", "b"])
    file.create_dataset("records", data=np.zeros(3, [("x", "f4"), ("y", "i2")]))
    file.create_dataset("elsewhere", (4,), "f4", external=[("x.raw", 0, 16)])
    virtual = h5py.VirtualLayout((2,), "f4")
    virtual[0] = h5py.VirtualSource("absent.h5", "w", (1,))
    file.create_virtual_dataset("virtual", virtual)
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((4,))
    compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, space, made)
    compact.write(space, space, np.ones(4, np.float32))
    bfloat = h5py.h5t.IEEE_F32LE.copy()  # of 2 bytes: NumPy would see four
    bfloat.set_fields(15, 7, 8, 0, 7)
    bfloat.set_size(2)
    bfloat.set_ebias(127)
    h5py.h5d.create(file.id, b"bfloat", bfloat, space).write(
        space, space, np.ones(4, np.float32), h5py.h5t.NATIVE_FLOAT
    )
    file.create_dataset("null", data=h5py.Empty("f4"))
    file.create_dataset("unwritten", (1000,), "f4")


def test_other_data_sets_stay_bytes(tmp_path, round_trip, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        other_sets(file)
        file.create_dataset("w", data=WEIGHTS)
    assert arrays_of(path) == {"w": ("F32", (96, 64))}
    (note,) = notes_of(path)
    for why in ("1 chunked,", "1 chunked and filtered", "1 compact", "3 of a type", "1 in other"):
        assert why in note
    assert "7 data sets" in note
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_links_are_followed_once_and_not_to_other_files(tmp_path, round_trip):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("a/w", data=WEIGHTS)
        file["again"] = file["a/w"]
        file["a/loop"] = file["a"]
        file["soft"] = h5py.SoftLink("/a/w")
        file["outside"] = h5py.ExternalLink("/etc/passwd", "/")
    assert arrays_of(path) == {"a.w": ("F32", (96, 64))}
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_a_group_that_holds_itself_and_denies_it(tmp_path):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("g")
        group["g"] = group
        header = h5py.h5o.get_info(group.id).addr
    data = bytearray(path.read_bytes())
    assert struct.unpack_from("<I", data, header + 4) == (2,)  # what counts the links to it
    struct.pack_into("<I", data, header + 4, 1)
    path.write_bytes(data)
    assert arrays_of(path) == {}


def test_damaged_files(tmp_path, damage):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        keras_weights(file)
    damage(path, flips=100, seed=0, cut_every=997)


def test_a_file_cut_short(tmp_path):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        keras_weights(file)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"damaged or cut short .*get it again") as caught:
        open_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_without_h5py(tmp_path, monkeypatch):
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        keras_weights(file)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(CheckpointError, match=r"h5py; run `pip install 'tensorcomp\[hdf5\]'`"):
        open_checkpoint(path)


def test_restoring_needs_no_h5py(tmp_path, monkeypatch):
    path = keras_archive(tmp_path / "model.keras")
    tensorcomp.compress(path, out=tmp_path / "c.tc.safetensors")
    monkeypatch.setitem(sys.modules, "h5py", None)
    tensorcomp.decompress(tmp_path / "c.tc.safetensors", out=tmp_path / "again.keras")
    assert (tmp_path / "again.keras").read_bytes() == path.read_bytes()


def test_keras(tmp_path, round_trip):
    path = keras_archive(tmp_path / "any name")
    assert detect_format(path) == "keras"
    assert arrays_of(path) == {
        "layers.dense.vars.0": ("F32", (96, 64)),
        "layers.dense.vars.1": ("F32", (64,)),
    }
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.read("layers.dense.vars.0").tobytes() == WEIGHTS.tobytes()
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_deflated_keras_stays_bytes(tmp_path, round_trip):
    path = keras_archive(tmp_path / "model.keras", zipfile.ZIP_DEFLATED)
    assert arrays_of(path) == {}
    assert "deflated" in notes_of(path)[0]
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_damaged_keras(tmp_path, damage):
    damage(keras_archive(tmp_path / "model.keras"), flips=100, seed=0, cut_every=997)


def test_checksums_of_lossy_keras(tmp_path):
    path = keras_archive(tmp_path / "model.keras")
    packed, lossy = tmp_path / "c.tc.safetensors", tmp_path / "lossy.keras"
    budget = tensorcomp.Budget(max_rel_l2=0.01)
    tensorcomp.compress(path, out=packed, budget=budget)
    tensorcomp.decompress(packed, out=lossy)
    with zipfile.ZipFile(lossy) as archive:
        assert archive.testzip() is None
        with h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
            found = file["layers/dense/vars/0"][()]
    error = np.linalg.norm(found - WEIGHTS) / np.linalg.norm(WEIGHTS)
    assert 0 < error <= 0.01


def test_lossy_big_endian_arrays(tmp_path):
    path, packed = tmp_path / "model.h5", tmp_path / "c.tc.safetensors"
    with h5py.File(path, "w") as file:
        file.create_dataset("w", data=WEIGHTS.astype(">f4"))
    tensorcomp.compress(path, out=packed, budget=tensorcomp.Budget(max_rel_l2=0.01))
    tensorcomp.decompress(packed, out=tmp_path / "lossy.h5")
    with h5py.File(tmp_path / "lossy.h5") as file:
        assert file["w"].dtype == ">f4"
        error = np.linalg.norm(file["w"][()] - WEIGHTS) / np.linalg.norm(WEIGHTS)
    assert 0 < error <= 0.01
