import io
import math
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

from tensorcomp.checkpoints.base import SourceTemplate
from tensorcomp.checkpoints.open import open_checkpoint, restore
from tensorcomp.errors import CheckpointError, FormatError

RoundTrip = Callable[[Path], Path]


@pytest.fixture
def reload(tmp_path: Path, round_trip: RoundTrip) -> Callable[..., dict[str, np.ndarray]]:
    """Return a function that saves arrays, restores the archive, and loads that."""

    def run(save: Any = np.savez, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        path = tmp_path / "model.npz"
        save(path, **arrays)
        with np.load(round_trip(path), allow_pickle=False) as archive:
            return dict(archive)

    return run


def assert_same(a: np.ndarray, b: np.ndarray) -> None:
    """Compare dtype with byte order, shape, axis order and bits."""
    assert a.dtype == b.dtype
    assert a.dtype.str == b.dtype.str
    assert a.shape == b.shape
    assert a.flags.f_contiguous == b.flags.f_contiguous
    assert a.tobytes() == b.tobytes()


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
    "complex": np.array([1 + 2j], np.complex64),
    "texts": np.array(["a", "üü", ""]),
    "bytes": np.array([b"ab", b"c"]),
    "dates": np.array(["2020-01-01", "NaT"], "M8[D]"),
    "records": np.zeros(5, RECORD),
    "long double": np.arange(3, dtype=np.longdouble),
    "fortran texts": np.asfortranarray(np.array([["a", "b"], ["c", "d"]])),
    "no bytes": np.zeros(4, "V0"),
}


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays(kind, save, reload):
    array = ARRAYS[kind]
    restored = reload(save, a=array, other=np.ones(2))
    assert list(restored) == ["a", "other"]
    assert_same(restored["a"], array)


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
def test_any_array(reload: Any, array: np.ndarray, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    assert_same(reload(a=array)["a"], np.load(_saved(array)))


def _saved(array: np.ndarray) -> io.BytesIO:
    file = io.BytesIO()
    np.save(file, array)
    file.seek(0)
    return file


def test_read_gives_c_order_and_little_endian(tmp_path):
    array = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    np.savez(tmp_path / "m.npz", a=array)
    with open_checkpoint(tmp_path / "m.npz") as checkpoint:
        (info,) = checkpoint.tensors
        assert (info.name, info.dtype, info.shape, info.nbytes) == ("a", "I32", (2, 3), 24)
        np.testing.assert_array_equal(checkpoint.read("a").view("<i4"), np.arange(6))
        with pytest.raises(CheckpointError, match="has no array 'absent'"):
            checkpoint.read("absent")


def test_bfloat16_travels_as_bytes(tmp_path, round_trip):
    array = np.ones(5, ml_dtypes.bfloat16)
    np.savez(tmp_path / "m.npz", a=array)
    with np.load(round_trip(tmp_path / "m.npz")) as archive:
        assert archive["a"].tobytes() == array.tobytes()


def test_archives_without_arrays(reload):
    assert reload() == {}


def test_hostile_names_and_other_members_are_only_names(tmp_path, round_trip):
    members = {
        "../../evil.npy": _saved(np.ones(1)).getvalue(),
        "/etc/passwd.npy": _saved(np.ones(2)).getvalue(),
        "C:\\x.npy": _saved(np.ones(3)).getvalue(),
        "a": b"no array",
        "a.npy": _saved(np.ones(4)).getvalue(),
        "__metadata__.npy": _saved(np.ones(5)).getvalue(),
        "line\nbreak.npy": _saved(np.ones(6)).getvalue(),
        "note.txt": b"",
    }
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with open_checkpoint(path) as checkpoint:
        names = [info.name for info in checkpoint.tensors]
    assert names[:2] == ["../../evil", "/etc/passwd"]
    assert {"a", "a#2", "__metadata__#2"} < set(names)
    with zipfile.ZipFile(round_trip(path)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == members
        assert archive.testzip() is None
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.npz", "restored"]


def test_objects_are_refused(tmp_path):
    records = np.zeros(2, [("a", "f4"), ("b", "O")])
    for array in (np.array([None, 1]), records):
        np.savez(tmp_path / "m.npz", a=array)
        with pytest.raises(CheckpointError, match=r"'a\.npy': holds Python objects"):
            open_checkpoint(tmp_path / "m.npz")


def npy(text: bytes, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + data


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(2,)") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}".encode()


ATTACKS: dict[str, tuple[bytes, str]] = {
    "claims more": (npy(header(shape="(1000000000000,)"), b"12345678"), "claims 4,000,000,000,000"),
    "claims less": (npy(header(shape="(1,)"), b"12345678"), "claims 4 bytes of data, not its 8"),
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
def test_damaged_headers_are_refused(attack, tmp_path):
    data, message = ATTACKS[attack]
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", data)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: tensor 'a.npy': ")
    assert "\n" not in str(caught.value)


def test_member_sizes_beyond_what_deflate_can_pack(tmp_path):
    path = tmp_path / "m.npz"
    size = 2**31 - 1
    raw = npy(header("'|u1'", shape=f"({size - 128},)").ljust(118))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", raw)
    data = bytearray(path.read_bytes())
    directory = data.rindex(b"PK\1\2")
    data[directory + 24 : directory + 28] = struct.pack("<I", size)
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"claims {size:,} bytes, more than"):
        open_checkpoint(path)


def test_duplicate_members_are_refused(tmp_path):
    path = tmp_path / "m.npz"
    data = _saved(np.ones(3)).getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", data)
        archive.writestr("b.npy", data)
    path.write_bytes(path.read_bytes().replace(b"b.npy", b"a.npy"))
    with pytest.raises(CheckpointError, match=r"'a\.npy': stands twice"):
        open_checkpoint(path)


def test_encrypted_members_are_refused(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, a=np.ones(3))
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"cannot be unpacked: .*encrypted"):
        open_checkpoint(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_flipped_bits_and_cuts(save, tmp_path, damage):
    path = tmp_path / "m.npz"
    save(path, a=np.arange(30.0), b=np.asfortranarray(np.ones((2, 3), ">i2")))
    damage(path, flips=200, seed=5, cut_every=37)


def test_damaged_data_are_noticed(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, a=np.arange(1000.0))
    data = bytearray(path.read_bytes())
    data[3000] ^= 1
    path.write_bytes(data)
    with (
        open_checkpoint(path) as checkpoint,
        pytest.raises(CheckpointError, match=r"'a\.npy': cannot be unpacked: Bad CRC"),
    ):
        checkpoint.read("a")


def test_damaged_templates_are_format_errors(tmp_path, decoded):
    np.savez(tmp_path / "m.npz", a=np.arange(6.0).reshape(2, 3).T)
    with open_checkpoint(tmp_path / "m.npz") as checkpoint:
        source, good = decoded(checkpoint), checkpoint.template().structure["members"][0]
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
        [5],
        [good | {"header": 5}],
        [good | {"header": "ü€"}],
        [good | {"header": "junk"}],
        [good | {"header": good["header"].replace("(3, 2)", "(3, 3)")}],
        [good, good],
    ):
        with pytest.raises(FormatError):
            restore(SourceTemplate("npz", {"members": members}), source, tmp_path / "out")


def test_many_members_are_described_in_few_bytes(tmp_path, round_trip):
    path = tmp_path / "m.npz"
    arrays = {f"layers.{i}.weight": np.full((2, 2), i, ">f4") for i in range(300)}
    np.savez(path, **arrays)
    with open_checkpoint(path) as checkpoint:
        template = checkpoint.template()
    assert math.fsum(map(len, template.attachments.values())) < 3000
    with np.load(round_trip(path)) as archive:
        for name, array in arrays.items():
            assert_same(archive[name], array)
