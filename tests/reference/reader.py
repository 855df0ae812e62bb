"""The file: a safetensors file of blobs, and a manifest that says what they decode to.

*safetensors*: the length of the header (uint64); the header, a JSON object that gives for each
name a ``dtype``, a ``shape`` and ``data_offsets``, where its bytes start and stop behind the
header. Here each entry is a blob, of type U8. The string ``__metadata__["tensorcomp"]`` is JSON:
``format``, a version from 1 to 7, and ``manifest``, base64 of a zstd frame of JSON.

*Manifest*: ``chunk_elements``; ``trees``, each with its text ``tree`` (see `tree`); ``tensors`` in
the order of the source and, from version 6 on, ``bundles``, each with ``dtype``, ``shape`` and

- ``tree`` and maybe ``fallback``, places among the trees, ``digest``, ``chunk_elements`` if that is
  not the manifest's, ``nbytes`` if the type is none of `DTYPES` or `BITS`: it has a blob of its
  name (bundles always have);
- or ``same_as``: it has the bytes of another tensor;
- or ``bundle``: it is a part of what that bundle decodes to, behind the tensors before it that are
  parts of it; bytes of 0 follow the last one;

``aliases``, further names of tensors. A digest is the first 16 hexadecimal digits of the XXH3-128
of the decoded bytes. Other members do not matter for decoding.

*Chunks*: a blob's array is cut along its first axis, into as many rows as have `chunk_elements`
elements at most. What the codecs see as the array: bytes, if NumPy lacks the type; of booleans,
uint8; of complex numbers, floats with a last axis of 2; the flat array, if it has less than two
axes, no elements, or a row of more than `chunk_elements`; a matrix of the first axis × all the
others, if it has more than 8 axes.

*Blob*: what the chunks share, their payloads, an index: for the former and for each payload the
length and the XXH3-64 (2 × uint64). A blob of one chunk shares nothing, and, except in version 1,
its index is the payload's XXH3-64.

*Payload*: of the tree (see `tree`), or the mark 2 and a payload of the fallback. What chunks share
is what the tree's nodes share or, if there is a fallback, first the former behind its length
(uint64) and then what the fallback's nodes share.
"""

import base64
import json
import math
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import xxhash

from reference.bits import take_sized, unpack_frame
from reference.codec import Shape
from reference.tree import decode, parse

DTYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"I{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"F{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    "C64": np.dtype("<c8"),
    "C128": np.dtype("<c16"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
FALLBACK = 2
MOST_AXES = 8

Record = dict[str, Any]


def read(path: Path) -> dict[str, np.ndarray]:
    """Return every tensor of a file; of a type that NumPy lacks, its bytes."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    told = json.loads(header.pop("__metadata__")["tensorcomp"])
    version = told["format"]
    manifest = json.loads(unpack_frame(base64.b64decode(told["manifest"])))
    tensors, bundles = manifest["tensors"], manifest.get("bundles", {})
    decoded: dict[str, bytes] = {}
    for name, record in (tensors | bundles).items():
        if "tree" in record:
            start, stop = (8 + length + offset for offset in header[name]["data_offsets"])
            decoded[name] = read_blob(data[start:stop], record, manifest, version)
    places = dict.fromkeys(bundles, 0)
    for name, record in tensors.items():
        if "bundle" in record:
            start = places[record["bundle"]]
            places[record["bundle"]] = stop = start + _nbytes(record)
            decoded[name] = decoded[record["bundle"]][start:stop]
    arrays = {}
    for name, record in tensors.items():
        content = np.frombuffer(decoded[record.get("same_as", name)], np.uint8)
        dtype = DTYPES.get(record["dtype"])
        arrays[name] = content if dtype is None else content.view(dtype).reshape(record["shape"])
    return arrays | {name: arrays[target] for name, target in manifest["aliases"].items()}


def _nbytes(record: Record) -> int:
    if "nbytes" in record:
        return record["nbytes"]
    dtype = DTYPES.get(record["dtype"])
    bits = BITS[record["dtype"]] if dtype is None else 8 * dtype.itemsize
    return math.prod(record["shape"]) * bits // 8


def read_blob(data: bytes, record: Record, manifest: Record, version: int) -> bytes:
    """Return the bytes that a blob decodes to."""
    elements = record.get("chunk_elements") or manifest["chunk_elements"]
    shape, dtype, chunk = _cut(record, elements)
    chunks = max(-(-shape[0] // chunk), 1)
    shared, payloads = _split(data, chunks, version)
    places = [record[which] for which in ("tree", "fallback") if which in record]
    trees = [parse(manifest["trees"][place]["tree"]) for place in places]
    of_trees = [shared]
    if len(trees) == 2:
        of_trees = [*take_sized(shared)] if shared else [b"", b""]
    content = b""
    for index, payload in enumerate(payloads):
        rows = min(chunk, shape[0] - index * chunk)
        which = int(len(trees) == 2 and payload[0] == FALLBACK)
        array = decode(trees[which], payload[which:], (rows, *shape[1:]), dtype, of_trees[which])
        content += array.tobytes()
    if xxhash.xxh3_128_hexdigest(content)[:16] != record["digest"]:
        raise ValueError("the decoded bytes have another digest")
    return content


def _cut(record: Record, elements: int) -> tuple[Shape, np.dtype, int]:
    """Return the shape and dtype of the array that codecs see, and the rows of a chunk."""
    dtype = DTYPES.get(record["dtype"])
    shape = tuple(record["shape"])
    if dtype is None:
        return (_nbytes(record),), np.dtype(np.uint8), elements
    if dtype.kind == "b":
        dtype = np.dtype(np.uint8)
    elif dtype.kind == "c":
        shape, dtype = (*shape, 2), np.dtype(f"<f{dtype.itemsize // 2}")
    row = math.prod(shape[1:])
    if len(shape) > 1 and 0 < row <= elements:
        return shape if len(shape) <= MOST_AXES else (shape[0], row), dtype, elements // row
    return (math.prod(shape),), dtype, elements


def _split(data: bytes, chunks: int, version: int) -> tuple[bytes, list[bytes]]:
    """Return what the chunks of a blob share, and their payloads."""
    if chunks == 1 and version > 1:
        entries = [(len(data) - 8, *struct.unpack("<Q", data[-8:]))]
    else:
        entries = list(struct.iter_unpack("<QQ", data[-16 * (chunks + 1) :]))
    parts = []
    at = 0
    for size, checksum in entries:
        parts.append(data[at : at + size])
        at += size
        if xxhash.xxh3_64_intdigest(parts[-1]) != checksum:
            raise ValueError("a part of a blob has another checksum")
    return (parts[0], parts[1:]) if len(parts) > 1 else (b"", parts)
