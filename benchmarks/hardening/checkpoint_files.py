"""Sound checkpoint files of every format, and what damage does to them."""

import contextlib
import functools
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import IO, Any

import gguf
import h5py
import numpy as np
import onnx
import safetensors
import torch

import tensorcomp
from benchmarks.hardening import ROOT
from benchmarks.hardening.mutations import damaged_bytes, damaged_json
from benchmarks.hardening.sound import Layer, Sound, Way, digest, scratch, written
from tensorcomp.checkpoints.open import _OPENERS, detect_format, open_checkpoint, restore

BYTES = Layer("bytes", lambda data, random: damaged_bytes(data, data[::-1], random), 2)
OPEN_BYTES = Layer("bytes", BYTES.damage, 2, guarded=False)
VALUES = np.random.default_rng(2).standard_t(3, (40, 30)).astype(np.float32)
TENSORS = {"a.weight": VALUES, "b.bias": VALUES[0], "mask": VALUES > 0, "n": np.arange(9)}
_MODEL, _DATA = "external.onnx", "external.onnx.data"


def checkpoints() -> Iterator[Sound]:
    """Yield a file of every format that can be opened, and of none."""
    files = {path.name: path.read_bytes() for path in (ROOT / "tests/golden/sources").iterdir()}
    files |= {"usual.safetensors": safetensors_file(TENSORS, {"format": "pt"})}
    files |= {name: _made(make) for name, make in _FILES.items()}
    files["parts.distcp"] = files["zip.pt"] * 2
    files["noise.bin"] = Random(3).randbytes(3000)
    files[_DATA] = _external_data()[1]
    kinds = set()
    for name, data in files.items():
        kind = detect_format(_put(name, data))
        kinds.add(kind)
        layers = [OPEN_BYTES]
        if data[:2] == b"PK":
            layers += [
                Layer("member, sealed", damaged_member, 4, guarded=False),
                Layer("directory", _damaged_directory, 2, guarded=False),
            ]
        elif kind == "safetensors":
            layers.append(Layer("header", damaged_header, 4, guarded=False))
        ways = (
            Way("restored", functools.partial(_restored, name), 4),
            Way("compressed", functools.partial(_compressed, name), 0.2),
        )
        yield Sound(f"{kind} checkpoint", name, data, tuple(layers), ways)
    missing = _OPENERS.keys() - kinds
    assert not missing, f"no sound file of {sorted(missing)} to damage"


def _torch(file: IO[bytes], *, zipped: bool) -> None:
    tensors = {name: torch.from_numpy(array.copy()) for name, array in TENSORS.items()}
    others = SimpleNamespace(turned=tensors["a.weight"].t())
    value = {"model": tensors, "step": 3, "args": others}
    torch.save(value, file, _use_new_zipfile_serialization=zipped)


def _hdf5(file: IO[bytes]) -> None:
    with h5py.File(file, "w") as made:
        for name, array in TENSORS.items():
            made[name.replace(".", "/")] = array
        made.create_dataset("packed", data=VALUES, compression="gzip")


def _keras(file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", _made(_hdf5))


def _gguf(file: IO[bytes]) -> None:
    path = scratch() / "made.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["<s>", "a", "bc"])
    writer.add_tensor("norm", VALUES[0])
    rows = np.resize(VALUES, (6, 64))
    for kind in (gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0):
        writer.add_tensor(kind.name, gguf.quants.quantize(rows, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file.write(path.read_bytes())


def _onnx() -> onnx.ModelProto:
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in TENSORS.items()]
    return onnx.helper.make_model(onnx.helper.make_graph([], "graph", [], [], tensors))


@functools.cache
def _external_data() -> tuple[bytes, bytes]:
    """Return an ONNX model and the file of its data."""
    path = scratch() / _MODEL
    onnx.save(_onnx(), path, save_as_external_data=True, location=_DATA, size_threshold=64)
    return path.read_bytes(), path.with_name(_DATA).read_bytes()


_FILES: dict[str, Callable[[IO[bytes]], object]] = {
    "deflated.npz": lambda file: np.savez_compressed(file, **TENSORS, text=np.array(["x"])),
    "turned.npz": lambda file: np.savez(file, **TENSORS, turned=VALUES.T),
    "turned.npy": lambda file: np.save(file, VALUES.T.astype(">f4")),
    "zip.pt": functools.partial(_torch, zipped=True),
    "legacy.pt": functools.partial(_torch, zipped=False),
    "some.h5": _hdf5,
    "some.keras": _keras,
    "some.gguf": _gguf,
    "some.onnx": lambda file: file.write(_onnx().SerializeToString()),
    "external.onnx": lambda file: file.write(_external_data()[0]),
}


def _made(make: Callable[[IO[bytes]], object]) -> bytes:
    file = io.BytesIO()
    make(file)
    return file.getvalue()


def _put(name: str, data: bytes) -> Path:
    """Write a file, and beside external data the model that they are of."""
    if name == _DATA:
        written(_MODEL, _external_data()[0])
    return written(name, data)


def _contents(path: Path) -> Any:
    with open_checkpoint(path) as checkpoint:
        tensors = {info: digest(checkpoint.read(info.name)) for info in checkpoint.tensors}
        return tensors, checkpoint.aliases, checkpoint.template()


def _restored(name: str, data: bytes) -> None:
    """Read all of it, write it back, and require the same in every byte."""
    path, out = _put(name, data), scratch() / f"out-{name}"
    found = _contents(path)
    with open_checkpoint(path) as checkpoint:
        restore(checkpoint.template(), checkpoint, out)
    assert out.read_bytes() == data, "restores to other bytes"
    if found[2].kind == "safetensors":
        with contextlib.suppress(safetensors.SafetensorError):
            for key, item in safetensors.deserialize(data):
                own = next(d for info, d in found[0].items() if info.name == key)
                assert own == digest(bytes(item["data"])), f"the library reads another {key!r}"


def _compressed(name: str, data: bytes) -> None:
    path, packed = _put(name, data), scratch() / "packed.tc.safetensors"
    tensorcomp.compress(path, packed, threads=1, force=True)
    failed = [one.error for one in tensorcomp.verify(packed, path, threads=1) if one.error]
    assert not failed, failed[0]


def safetensors_file(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Return a safetensors file of arrays."""
    from safetensors.numpy import save

    return bytes(save(tensors, metadata))


def damaged_member(data: bytes, random: Random) -> bytes:
    """Return the archive with a member damaged, its name or method changed, checksums mended."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w") as damaged:
        names = archive.namelist()
        chosen = random.choice([*names, *[n for n in names if n.endswith("data.pkl")] * 3])
        for entry in archive.infolist():
            content, name = archive.read(entry), entry.filename
            if name == chosen and random.random() < 0.9:
                head = random.choice((len(content), 128))
                content = damaged_bytes(content[:head], content[::-1], random) + content[head:]
            elif name == chosen:
                name = random.choice((*names, f"{name}x", "../x", "x" * 70, "\u202ex.npy"))
            with contextlib.suppress(UserWarning):  # of two members of a name
                damaged.writestr(name, content, random.choice((entry.compress_type, 8, 0)))
    return out.getvalue()


def _damaged_directory(data: bytes, random: Random) -> bytes:
    start = data.rfind(b"PK\1\2", 0, len(data) - 100 if random.random() < 0.5 else None)
    return data[:start] + damaged_bytes(data[start:], data, random)


def damaged_header(data: bytes, random: Random) -> bytes:
    end = 8 + int.from_bytes(data[:8], "little")
    text = damaged_json(data[8:end], random)
    return len(text).to_bytes(8, "little") + text + data[end:]
