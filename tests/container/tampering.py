"""Compressed files rebuilt with another manifest: sound in every way but the one that is tested."""

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tensorcomp
from tensorcomp._zstd_frames import compress, decompress
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header, read_header
from tensorcomp.container.manifest import FORMAT_VERSION

KEY = "tensorcomp"


def sample_tensors() -> dict[str, np.ndarray]:
    """Return tensors of several kinds, small; one is stored twice, and some in a bundle."""
    random = np.random.default_rng(5)
    weights = (random.standard_normal((72, 64)) * 0.02).astype(np.float32)
    bundled = {
        f"bundled.{i}": weights[i, : 3 * i + 6].reshape(3, -1).astype(ml_dtypes.bfloat16)
        for i in range(17)
    }
    return {
        "weights": weights,
        "weights_again": weights.copy(),
        "bias": np.zeros(64, np.float32),
        "steps": np.arange(40, dtype=np.int64),
        "scalar": np.array(3.5, np.float16),
        "empty": np.empty((0, 7), np.float32),
        **bundled,
    }


def sample_bytes() -> bytes:
    """Return a compressed file of those, with metadata."""
    return tensorcomp.save(sample_tensors(), {"format": "pt", "note": "first"}, threads=1)


def metadata_of(data: bytes) -> str:
    """Return the manifest's text."""
    header = read_header(io.BytesIO(data), len(data), "test")
    assert header.metadata is not None
    return header.metadata[KEY]


def manifest_of(data: bytes) -> dict[str, Any]:
    """Return the manifest's JSON."""
    packed = base64.b64decode(json.loads(metadata_of(data))["manifest"])
    value: dict[str, Any] = json.loads(decompress(packed, 1 << 30))
    return value


def pack_manifest(value: object, version: object = FORMAT_VERSION) -> str:
    """Return the text of a manifest that holds any JSON value."""
    plain = value if isinstance(value, bytes) else json.dumps(value).encode()
    packed = compress(plain, 3)
    return json.dumps({"format": version, "manifest": base64.b64encode(packed).decode()})


def with_metadata(data: bytes, text: str | None) -> bytes:
    """Return the file with another manifest text, or none."""
    header = read_header(io.BytesIO(data), len(data), "test")
    metadata = {"other": "x"} if text is None else {KEY: text}
    return build_header(header.tensors, metadata) + data[header.data_start :]


def with_manifest(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """Return the file with its manifest changed in place, or replaced by what `change` returns."""
    value = manifest_of(data)
    found = change(value)
    return with_metadata(data, pack_manifest(value if found is None else found))


def with_blob(data: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return the file with one blob changed; the header follows its size."""
    header = read_header(io.BytesIO(data), len(data), "test")
    infos, blobs = [], []
    for info in header.tensors:
        begin, stop = (header.data_start + offset for offset in header.offsets[info.name])
        blob = change(data[begin:stop]) if info.name == name else data[begin:stop]
        infos.append(TensorInfo(info.name, "U8", (len(blob),), len(blob)))
        blobs.append(blob)
    return build_header(infos, header.metadata) + b"".join(blobs)
