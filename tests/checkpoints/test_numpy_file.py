"""NumPy's files come back byte for byte, their arrays in C order and little-endian."""

import io
import math
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import tensorcomp
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.errors import CheckpointError, PlanError
from tensorcomp.planning.budgets import Budget
from tensorcomp.pruning import Pruning

RoundTrip = Callable[[Path], Path]

RECORD = np.dtype([("x", "<f4"), ("y", ">i2", (2, 3)), ("née", "U3")])
ARRAYS: dict[str, np.ndarray] = {
    "float": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "big-endian": np.arange(6, dtype=">f4").reshape(2, 3),
    "big-endian fortran": np.asfortranarray(np.arange(6, dtype=">i8").reshape(2, 3)),
    "scalar": np.array(3, np.int16),
    "big-endian scalar": np.array(3, ">i2"),
    "empty": np.zeros((0, 5), np.float64),
    "empty fortran": np.zeros((3, 0, 2), ">f8", order="F"),
    "NaN payload": np.array([0x7FC00001, 0xFFC12345], np.uint32).view(np.float32),
    "boolean": np.array([[True], [False]]),
    "complex": np.array([1 + 2j], ">c8"),
}
OTHERS: dict[str, np.ndarray] = {
    "texts": np.array(["a", "üü", ""]),
    "bytes": np.array([b"ab", b"c"]),
    "dates": np.array(["2020-01-01", "NaT"], "M8[D]"),
    "records": np.zeros(5, RECORD),
    "long double": np.arange(3, dtype=np.longdouble),
    "fortran texts": np.asfortranarray(np.array([["a", "b"], ["c", "d"]])),
    "no bytes": np.zeros(4, "V0"),
    "bfloat16": np.ones(5, ml_dtypes.bfloat16),
    "objects": np.array([None, {}]),
}


def save_npy(path: Path, **arrays: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, arrays["a"])


@pytest.fixture
def found(tmp_path: Path, round_trip: RoundTrip) -> Callable[..., dict[str, Any]]:
    """Return a function that saves arrays, requires equal bytes, and gives what was read."""

    def run(save: Any, **arrays: np.ndarray) -> dict[str, Any]:
        path = tmp_path / "m.npz"
        save(path, **arrays)
        assert round_trip(path).read_bytes() == path.read_bytes()
        with open_checkpoint(path) as checkpoint:
            return {info.name: (info, checkpoint.read(info.name)) for info in checkpoint.arrays}

    return run


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays(kind, found):
    array = ARRAYS[kind]
    little = array.astype(array.dtype.newbyteorder("<"), order="C")
    for save, name in ((np.savez, "a"), (save_npy, "array")):
        info, data = found(save, a=array, other=np.ones(2))[name]
        assert info.shape == array.shape
        assert data.tobytes() == little.tobytes()


@pytest.mark.filterwarnings("ignore:Stored array in format")
@pytest.mark.parametrize("kind", OTHERS)
def test_arrays_that_only_numpy_knows(kind, found):
    assert list(found(np.savez, a=OTHERS[kind], b=np.ones(2))) == ["b"]
    assert found(save_npy, a=OTHERS[kind]) == {}


def test_deflated_archives_come_back(found):
    assert found(np.savez_compressed, a=np.arange(300.0)) == {}
    assert found(np.savez) == {}


@pytest.mark.filterwarnings("ignore:Stored array in format")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    npst.arrays(
        npst.scalar_dtypes() | npst.array_dtypes(), npst.array_shapes(min_dims=0, min_side=0)
    ),
    st.booleans(),
)
def test_any_array(found: Any, array: np.ndarray, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    little = array.astype(array.dtype.newbyteorder("<"), order="C")
    for _, data in found(np.savez, a=array).values():
        assert data.tobytes() == little.tobytes()


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_hostile_names_and_other_members_are_only_names(tmp_path, round_trip):
    members = {
        "../../evil.npy": saved(np.ones(1)),
        "/etc/passwd.npy": saved(np.ones(2)),
        "C:\\x.npy": saved(np.ones(3)),
        "a": b"no array",
        "a.npy": saved(np.ones(4)),
        "__metadata__.npy": saved(np.ones(5)),
        "line\nbreak.npy": saved(np.ones(6)),
        "note.txt": b"",
    }
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with open_checkpoint(path) as checkpoint:
        names = [info.name for info in checkpoint.arrays]
    assert names[:2] == ["../../evil", "/etc/passwd"]
    assert names[3:] == ["a", "__metadata__#2", "line\nbreak"]
    assert round_trip(path).read_bytes() == path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.npz", "restored"]


def npy(text: bytes, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + data


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(2,)") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}".encode()


ATTACKS: dict[str, tuple[bytes, str]] = {
    "claims more": (npy(header(shape="(1000000000000,)"), b"12345678"), "claims 4,000,000,000,000"),
    "overflow": (npy(header(shape=f"({2**40}, {2**40})")), "expected the shape of an array"),
    "negative": (npy(header(shape="(-1,)")), "expected the shape of an array"),
    "boolean size": (npy(header(shape="(True,)")), "expected the shape of an array"),
    "list shape": (npy(header(shape="[2]")), "expected the shape of an array"),
    "no shape": (npy(b"{'descr': '<f4', 'fortran_order': False}"), "header is damaged"),
    "no dict": (npy(b"5"), "header is damaged"),
    "no Python": (npy(b"{'descr': "), "header is damaged"),
    "code": (npy(header(descr="__import__('os').system('true')")), "header is damaged"),
    "bad dtype": (npy(header(descr="'<q9'")), "header is damaged"),
    "deep": (npy(b"(" * 5000), "header is damaged"),
    "deep operators": (npy(b"-" * 9000 + b"1"), "header is damaged"),
    "not Latin": (npy(b"\xff\xfe", version=b"\3\0"), "header is damaged"),
    "long header": (npy(b" " * 10_001), "claims a header of 10,001 bytes"),
    "huge header": (b"\x93NUMPY\2\0\xff\xff\xff\xff", "claims a header of 4,294,967,295 bytes"),
    "cut header": (npy(header())[:-5], "cut short"),
    "cut length": (b"\x93NUMPY\2\0\1", "claims a header"),
    "version 9": (b"\x93NUMPY\x09\0\1\0", "no .npy array"),
    "no magic": (b"hello, world", "no .npy array"),
    "nothing": (b"", "no .npy array"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_members_with_damaged_headers_are_bytes(attack, tmp_path, round_trip):
    data, message = ATTACKS[attack]
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", data)
        archive.writestr("b.npy", saved(np.ones(3)))
    with open_checkpoint(path) as checkpoint:
        (note,) = checkpoint.notes or ()
        assert re.match(f"'a.npy' .*{message}.*; compressed as bytes", note)
        assert [info.name for info in checkpoint.arrays] == ["b"]
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_a_file_that_ends_before_its_array_is_refused(tmp_path):
    path = tmp_path / "m.npy"
    path.write_bytes(saved(np.ones(30))[:-8])
    with pytest.raises(CheckpointError, match="claims 240 bytes of data, not its 232") as caught:
        open_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: ")


PYTHON_2 = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }"
WIDE = np.zeros(3, [(f"column_{number}", "f4") for number in range(600)])
UNUSUAL = {
    "several arrays": (saved(np.ones(3)) + saved(np.ones(4)), ["array"]),
    "of Python 2": (npy(PYTHON_2, bytes(8)), []),
    "of many columns": (saved(WIDE), []),
}


@pytest.mark.filterwarnings("ignore:Stored array in format")
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_files_come_back(kind, tmp_path, round_trip):
    data, names = UNUSUAL[kind]
    path = tmp_path / "m.npy"
    path.write_bytes(data)
    with open_checkpoint(path) as checkpoint:
        assert [info.name for info in checkpoint.arrays] == names
        assert names or checkpoint.notes
    assert round_trip(path).read_bytes() == data


LOSSY = {"budget": Budget(min_snr=20)}, {"prune": Pruning("magnitude", 0.5)}


@pytest.mark.parametrize("asked", LOSSY, ids=["lossy", "pruned"])
def test_checksums_of_equal_arrays_and_of_archives_in_archives(asked, tmp_path):
    weight = np.random.default_rng(0).standard_normal((96, 128)).astype(np.float32)
    inner = io.BytesIO()
    np.savez(inner, a=weight[:8])
    blob = np.frombuffer(inner.getvalue(), np.uint8)
    np.savez(tmp_path / "m.npz", a=weight, b=weight, blob=blob, c=weight + 1)
    done = tensorcomp.compress(tmp_path / "m.npz", **asked)
    back = tensorcomp.decompress(done.path, tmp_path / "back.npz")
    with np.load(back) as found:
        assert not np.array_equal(found["a"], weight)
        np.testing.assert_array_equal(found["a"], found["b"])
        np.testing.assert_array_equal(found["blob"], blob)
        assert not np.array_equal(found["c"], weight + 1)


def test_packed_members_are_told_of(tmp_path, caplog):
    weight = np.random.default_rng(0).standard_normal((96, 128))
    np.savez_compressed(tmp_path / "m.npz", a=weight)
    tensorcomp.compress(tmp_path / "m.npz")
    (message,) = caplog.messages
    assert re.search(r"1 member of .* packed by zip: kept as it is", message)
    with pytest.raises(PlanError, match="not possible for a checkpoint without weights"):
        tensorcomp.compress(tmp_path / "m.npz", budget=Budget(bits_per_weight=4), force=True)


def test_members_that_stand_twice_or_are_encrypted(tmp_path, round_trip):
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", saved(np.ones(3)))
        archive.writestr("b.npy", saved(np.ones(4)))
        archive.writestr("c.npy", saved(np.ones(5)))
    data = bytearray(path.read_bytes().replace(b"b.npy", b"a.npy"))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    with open_checkpoint(path) as checkpoint:
        assert [info.shape for info in checkpoint.arrays] == [(4,), (5,)]
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_members_without_a_name_and_folders(tmp_path, round_trip):
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"1")
        archive.writestr("folder/", b"")
        archive.writestr("a.npy", saved(np.ones(3)))
    path.write_bytes(path.read_bytes().replace(b"\x01\0\0\0x1", b"\0\0\x01\0x1"))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\1\2")
    data[entry + 28], data[entry + 30] = 0, 1  # the name is a field now
    path.write_bytes(data)
    with open_checkpoint(path) as checkpoint:
        assert [info.name for info in checkpoint.arrays] == ["a"]
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_members_beyond_the_file_are_refused(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, a=np.ones(3))
    sound = path.read_bytes()
    entry = sound.index(b"PK\1\2")
    for place in (entry + 20, entry + 24, entry + 42):  # sizes, and where it begins
        data = bytearray(sound)
        data[place : place + 4] = struct.pack("<I", 2**31 - 1)
        path.write_bytes(data)
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_flipped_bits_and_cuts(save, tmp_path, damage):
    path = tmp_path / "m.npz"
    save(path, a=np.arange(30.0), b=np.asfortranarray(np.ones((2, 3), ">i2")))
    damage(path, flips=200, seed=5, cut_every=37)


def test_many_members_are_described_in_few_bytes(tmp_path, round_trip):
    path = tmp_path / "m.npz"
    np.savez(path, **{f"layers.{i}.weight": np.full((2, 2), i, ">f4") for i in range(300)})
    with open_checkpoint(path) as checkpoint:
        template = checkpoint.template()
    assert math.fsum(map(len, template.attachments.values())) < 3000
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_a_lossy_archive_can_be_read(tmp_path):
    weight = np.random.default_rng(0).standard_normal((96, 128))
    arrays = {"w": np.asfortranarray(weight), "s": weight.astype(">f4"), "n": np.arange(9)}
    np.savez(tmp_path / "m.npz", **arrays)
    done = tensorcomp.compress(tmp_path / "m.npz", budget=Budget(min_snr=20))
    assert not [one for one in tensorcomp.verify(done.path, tmp_path / "m.npz") if one.error]
    loaded = tensorcomp.load_file(done.path)
    with np.load(tensorcomp.decompress(done.path, tmp_path / "back.npz")) as back:
        assert back["n"].tolist() == list(range(9))
        for name in ("w", "s"):
            assert back[name].dtype == arrays[name].dtype
            np.testing.assert_array_equal(back[name], loaded[name])
            error = np.linalg.norm(back[name] - arrays[name]) / np.linalg.norm(arrays[name])
            assert 0 < error <= 0.1
