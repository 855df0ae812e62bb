import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorcomp
from tensorcomp.checkpoints.open import detect_format, open_checkpoint

RoundTrip = Callable[[Path], Path]
WEIGHTS = np.random.default_rng(0).standard_normal((96, 64)).astype(np.float32)
ARRAYS = {
    "encoder.weight": WEIGHTS,
    "half": np.ones((2, 3, 4), np.float16),
    "brain": np.ones(7, ml_dtypes.bfloat16),
    "eight bits": np.ones(7, ml_dtypes.float8_e4m3fn),
    "double": np.arange(3.0),
    "counts": np.arange(5),
    "bytes": np.arange(9, dtype=np.uint8),
    "flags": np.array([True, False]),
    "complex": np.array([1 + 2j], np.complex64),
    "scalar": np.array(1.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}


def model_of(tensors: list[TensorProto], nodes: list[onnx.NodeProto] | None = None) -> bytes:
    graph = helper.make_graph(nodes or [], "graph", [], [], tensors)
    return bytes(helper.make_model(graph, producer_name="test").SerializeToString())


def saved(path: Path, *tensors: TensorProto, nodes: list[onnx.NodeProto] | None = None) -> Path:
    path.write_bytes(model_of(list(tensors), nodes))
    return path


def external(name: str, values: np.ndarray, location: str, **place: int) -> TensorProto:
    """Return a tensor whose bytes are in another file."""
    tensor = numpy_helper.from_array(values, name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **place}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def arrays_of(path: Path) -> dict[str, bytes]:
    with open_checkpoint(path) as checkpoint:
        return {info.name: checkpoint.read(info.name).tobytes() for info in checkpoint.arrays}


def notes_of(path: Path) -> tuple[str, ...]:
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.notes is not None
        return tuple(checkpoint.notes)


def test_arrays(tmp_path, round_trip):
    tensors = [numpy_helper.from_array(array, name) for name, array in ARRAYS.items()]
    path = saved(tmp_path / "any name", *tensors)
    assert detect_format(path) == "onnx"
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.notes == ()
        shapes = {info.name: info.shape for info in checkpoint.arrays}
    assert shapes == {name: array.shape for name, array in ARRAYS.items()}
    assert arrays_of(path) == {name: array.tobytes() for name, array in ARRAYS.items()}
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_values_that_share_bytes(tmp_path, round_trip):
    values = np.array([1, 2, 3], np.int32)
    tensors = [
        helper.make_tensor(str(kind), kind, [3], b"\x21\x03", raw=True)
        for kind in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1)
    ]
    path = saved(tmp_path / "model.onnx", *tensors, numpy_helper.from_array(values, "i"))
    with open_checkpoint(path) as checkpoint:
        infos = [(info.dtype, info.shape) for info in checkpoint.arrays]
    assert infos == [("U8", (2,))] * 3 + [("I32", (3,))]
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_numbers_in_fields_of_their_own(tmp_path, round_trip):
    floats = helper.make_tensor("floats", TensorProto.FLOAT, [96, 64], WEIGHTS.reshape(-1))
    doubles = helper.make_tensor("doubles", TensorProto.DOUBLE, [2], [1.5, 2.5])
    counts = helper.make_tensor("counts", TensorProto.INT64, [2], [1, 300])  # of 1 or 2 bytes
    words = helper.make_tensor("words", TensorProto.STRING, [1], [b"abcd"])
    path = saved(tmp_path / "model.onnx", floats, doubles, counts, words)
    wanted = {"floats": WEIGHTS.tobytes(), "doubles": np.array([1.5, 2.5]).tobytes()}
    assert arrays_of(path) == wanted
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_tensors_of_nodes_and_of_graphs_in_them(tmp_path, round_trip):
    inner = helper.make_graph([], "inner", [], [], [numpy_helper.from_array(WEIGHTS, "inner.w")])
    constant = numpy_helper.from_array(WEIGHTS + 1)
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Constant", [], ["bias"], value=constant),
    ]
    path = saved(tmp_path / "model.onnx", numpy_helper.from_array(WEIGHTS + 2, "w"), nodes=nodes)
    assert arrays_of(path) == {
        "inner.w": WEIGHTS.tobytes(),
        "inner.w#2": WEIGHTS.tobytes(),
        "bias": (WEIGHTS + 1).tobytes(),
        "w": (WEIGHTS + 2).tobytes(),
    }
    assert round_trip(path).read_bytes() == path.read_bytes()


def with_external_data(folder: Path, *, one_file: bool = True) -> Path:
    tensors = [numpy_helper.from_array(array, name) for name, array in ARRAYS.items()]
    tensors.append(numpy_helper.from_array(WEIGHTS + 1, "decoder.weight"))
    model = onnx.load_from_string(model_of(tensors))
    onnx.save(
        model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data",
        all_tensors_to_one_file=one_file, size_threshold=1024,
    )  # fmt: skip
    return folder / "model.onnx"


def test_external_data(tmp_path, round_trip):
    path = with_external_data(tmp_path)
    data = tmp_path / "model.onnx.data"
    assert detect_format(data) == "onnx-data"
    assert arrays_of(data) == {
        "encoder.weight": WEIGHTS.tobytes(),
        "decoder.weight": (WEIGHTS + 1).tobytes(),
    }
    assert notes_of(path) == notes_of(data) == ()
    assert "half" in arrays_of(path)
    for file in (path, data):
        assert round_trip(file).read_bytes() == file.read_bytes()


def test_a_file_for_each_tensor(tmp_path):
    with_external_data(tmp_path, one_file=False)
    assert arrays_of(tmp_path / "encoder.weight") == {"encoder.weight": WEIGHTS.tobytes()}


def test_data_in_a_folder_below(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    place = {"offset": 16, "length": WEIGHTS.nbytes}
    saved(tmp_path / "model.onnx", external("w", WEIGHTS, "./data/weights", **place))
    (tmp_path / "data" / "weights").write_bytes(bytes(16) + WEIGHTS.tobytes())
    monkeypatch.chdir(tmp_path / "data")
    assert arrays_of(Path("weights")) == {"w": WEIGHTS.tobytes()}


def test_data_that_looks_like_another_format(tmp_path, round_trip):
    values = np.frombuffer(b"abcdefgh{" + bytes(15), np.float32)
    saved(tmp_path / "model.onnx", external("w", values, "w"))
    (tmp_path / "w").write_bytes(values.tobytes())
    assert arrays_of(tmp_path / "w") == {"w": values.tobytes()}


@pytest.mark.parametrize("folder", [True, False])
def test_compressing_external_data(folder, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    path = with_external_data(model)
    files = [path, model / "model.onnx.data"]
    before = [file.read_bytes() for file in files]
    if folder:
        tensorcomp.compress(model, out=tmp_path / "model.tc")
        assert {file.name for file in (tmp_path / "model.tc").iterdir()} == {
            "model.onnx.tc.safetensors",
            "model.onnx.data.tc.safetensors",
        }
        tensorcomp.decompress(tmp_path / "model.tc", out=tmp_path / "again")
    else:
        (tmp_path / "again").mkdir()
        for file in files:
            packed = tmp_path / f"{file.name}.tc.safetensors"
            tensorcomp.compress(file, out=packed)
            tensorcomp.decompress(packed, out=tmp_path / "again" / file.name)
    assert [(tmp_path / "again" / file.name).read_bytes() for file in files] == before


def test_replacing_a_model_and_its_data(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    path = with_external_data(model)
    files = [path, model / "model.onnx.data"]
    before = [file.read_bytes() for file in files]
    tensorcomp.compress(model, replace=True)
    with tensorcomp.safe_open(model / "model.onnx.data.tc.safetensors", framework="np") as opened:
        assert {"encoder.weight", "decoder.weight"} <= set(opened.keys())
    tensorcomp.decompress(model, replace=True)
    assert [file.read_bytes() for file in files] == before


OUTSIDE = ["../weights", "/weights", "a/../../weights", "C:\\weights", "..\\weights"]


@pytest.mark.parametrize("location", OUTSIDE)
def test_data_outside_the_folder(location, tmp_path, round_trip):
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "model.onnx"
    tensors = [external(name, WEIGHTS, location) for name in "ab"]
    saved(path, *tensors, numpy_helper.from_array(WEIGHTS, "c"))
    (note,) = notes_of(path)
    assert repr(location) in note
    assert "outside its folder" in note
    assert list(arrays_of(path)) == ["c"]
    (tmp_path / "weights").write_bytes(WEIGHTS.tobytes())
    assert detect_format(tmp_path / "weights") == "bytes"
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_data_that_ends_early(tmp_path, round_trip):
    saved(
        tmp_path / "model.onnx",
        external("a", WEIGHTS, "data", offset=0),
        external("b", WEIGHTS, "data", offset=WEIGHTS.nbytes),
    )
    data = tmp_path / "data"
    data.write_bytes(WEIGHTS.tobytes() + bytes(range(99)))
    assert arrays_of(data) == {"a": WEIGHTS.tobytes()}
    assert notes_of(data) == ("ends before 'b' of model.onnx; it may be cut short",)
    assert round_trip(data).read_bytes() == data.read_bytes()


@pytest.mark.parametrize(
    "place",
    [{"offset": -4}, {"offset": "x"}, {"length": 5}, {"length": "1e3"}, {"offset": 1 << 70}],
)
def test_places_without_sense(place, tmp_path, round_trip):
    saved(tmp_path / "model.onnx", external("a", WEIGHTS, "data", **place))
    data = tmp_path / "data"
    data.write_bytes(b"\0" + WEIGHTS.tobytes())
    assert arrays_of(data) == {}
    for file in (data, tmp_path / "model.onnx"):
        assert round_trip(file).read_bytes() == file.read_bytes()


def test_models_that_cannot_be_read_beside_data(tmp_path):
    (tmp_path / "absent.onnx").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "noise.onnx").write_bytes(b"\x08" * 99)
    (tmp_path / "data").write_bytes(bytes(range(200, 256)))
    assert detect_format(tmp_path / "data") == "bytes"


def nested(depth: int) -> bytes:
    """Return a model of graphs in attributes of nodes of graphs."""

    def field(number: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while size > 127:
            length, size = length + bytes([128 | size & 127]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    graph = field(2, b"innermost")
    for _ in range(depth):
        graph = field(1, field(5, field(6, graph)))
    return b"\x08\x08" + field(7, graph)


BROKEN = {
    "graphs without end": nested(200),
    "a field of no kind": b"\x08\x08\x3a\x02\x0f\x01",
    "a field cut short": b"\x08\x08\x3a\x02\x0a\x05",
    "a long number": b"\x08\x08\x3a\x0c\x10" + b"\xff" * 11,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_graphs_stay_bytes(kind, tmp_path, round_trip):
    path = tmp_path / "model.onnx"
    path.write_bytes(BROKEN[kind])
    assert detect_format(path) == "onnx"
    assert arrays_of(path) == {}
    assert "damaged" in notes_of(path)[0]
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_graphs_within_the_limit(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(nested(10))
    assert notes_of(path) == ()


OTHERS = {
    "cut short": model_of([numpy_helper.from_array(WEIGHTS, "w")])[:-1],
    "no graph": b"\x08\x08\x12\x04test",
    "unknown field": b"\x08\x08\x3a\x00\x4a\x00",
    "another kind of field": b"\x08\x08\x38\x00",
    "zeros": b"\x08" + bytes(99),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_model_is_bytes(kind, tmp_path, round_trip):
    path = tmp_path / "model"
    path.write_bytes(OTHERS[kind])
    assert detect_format(path) == "bytes"
    assert round_trip(path).read_bytes() == path.read_bytes()


def test_any_damage_is_restored(tmp_path, round_trip):
    path = tmp_path / "model.onnx"
    whole = model_of([numpy_helper.from_array(WEIGHTS[:4, :4], "w")])
    random = np.random.default_rng(0)
    for position in random.integers(0, len(whole), 200):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        assert round_trip(path).read_bytes() == damaged


def test_other_formats_import_none_of_it(tmp_path):
    path = tmp_path / "model.safetensors"
    tensorcomp.save_file({"w": WEIGHTS}, tmp_path / "w.tc.safetensors")
    tensorcomp.decompress(tmp_path / "w.tc.safetensors", out=path)
    code = (
        "import sys, tensorcomp\n"
        f"tensorcomp.compress({str(path)!r})\n"
        "layouts = 'tensorcomp.checkpoints.layouts.'\n"
        "assert not {'h5py', 'onnx', *(layouts + name + '_file' for name in "
        "('gguf', 'hdf5', 'onnx'))} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
