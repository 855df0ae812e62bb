"""The file: a safetensors file of blobs, and a manifest that says what they decode to.

*safetensors*: the length of the header (uint64); the header, a JSON object that gives for each
name a ``dtype``, a ``shape`` and ``data_offsets``, where its bytes start and stop behind the
header. Here each entry is a blob, of type U8. The string ``__metadata__["tensorcomp"]`` is JSON:
``format``, a version from 1 to 10, and ``manifest``, base64 of a zstd frame of JSON.

*Manifest*: ``chunk_elements``; ``trees``, each with its text ``tree`` (see `tree`); ``tensors`` in
the order of the source and, from version 6 on, ``bundles``, each with ``dtype``, ``shape`` and

- ``tree`` and maybe ``fallback``, places among the trees, ``digest``, ``chunk_elements`` if that is
  not the manifest's, ``nbytes`` if the type is none of `DTYPES` or `BITS`: it has a blob of its
  name (bundles always have);
- or ``same_as``: it has the bytes of another tensor;
- or ``bundle``: it is a part of what that bundle decodes to, behind the tensors before it that are
  parts of it; bytes of 0 follow the last one;

``aliases``, further names of tensors. ``bases`` are further files, each with its ``name`` in the
same folder (a program searches others). A record with a ``reference``, ``[base, digest, name]``,
short of what is empty or its own name at the end, is coded against the tensor of that name there:
cast, by way of float32 if one type has 16 bits, and with zeros for the elements that it lacks. Of a
bundle these are the references of the tensors in it, zeros for others. A digest is the first 16
hexadecimal digits of the XXH3-128 of the decoded bytes. Other members do not matter for decoding.

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
    metadata = header.pop("__metadata__", {})
    if "tensorcomp" not in metadata:
        return _plain(header, data[8 + length :])
    told = json.loads(metadata["tensorcomp"])
    version = told["format"]
    manifest = json.loads(unpack_frame(base64.b64decode(told["manifest"])))
    tensors, bundles = manifest["tensors"], manifest.get("bundles", {})
    bases = [read(path.parent / base["name"]) for base in manifest.get("bases", ())]
    decoded: dict[str, bytes] = {}
    for name, record in (tensors | bundles).items():
        if "tree" in record:
            start, stop = (8 + length + offset for offset in header[name]["data_offsets"])
            known = None
            if "reference" in record:
                members = {n: r for n, r in tensors.items() if r.get("bundle") == name}
                known = _references(members or {name: record}, _nbytes(record), bases)
                if xxhash.xxh3_128_hexdigest(known)[:16] != record["reference"][1] and members:
                    raise ValueError("the references of a bundle have another digest")
            decoded[name] = read_blob(data[start:stop], record, manifest, version, known)
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


def _plain(header: Record, data: bytes) -> dict[str, np.ndarray]:
    """Return the tensors of a file that is not compressed."""
    arrays = {}
    for name, record in header.items():
        content = np.frombuffer(data[slice(*record["data_offsets"])], np.uint8)
        dtype = DTYPES.get(record["dtype"])
        arrays[name] = content if dtype is None else content.view(dtype).reshape(record["shape"])
    return arrays


def _references(
    records: dict[str, Record], nbytes: int, bases: list[dict[str, np.ndarray]]
) -> bytes:
    """Return the bytes that tensors are coded against, one after the other, and zeros."""
    content = b""
    for name, record in records.items():
        size, own = _nbytes(record), b""
        if "reference" in record:
            base, digest, other = [*record["reference"], "", ""][:3]
            found = bases[base][other or name]
            if digest and xxhash.xxh3_128_hexdigest(found.tobytes())[:16] != digest:
                raise ValueError("a tensor of a base has another digest")
            dtype = DTYPES[record["dtype"]]
            if found.dtype != dtype and 2 in (found.dtype.itemsize, dtype.itemsize):
                found = found.astype(np.float32)
            own = found.astype(dtype).tobytes()[:size]
        content += own.ljust(size, b"\0")
    return content.ljust(nbytes, b"\0")


def _nbytes(record: Record) -> int:
    if "nbytes" in record:
        return record["nbytes"]
    dtype = DTYPES.get(record["dtype"])
    bits = BITS[record["dtype"]] if dtype is None else 8 * dtype.itemsize
    return math.prod(record["shape"]) * bits // 8


def read_blob(
    data: bytes, record: Record, manifest: Record, version: int, known: bytes | None = None
) -> bytes:
    """Return the bytes that a blob decodes to, coded against others if there are any known."""
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
        seen = (rows, *shape[1:])
        reference = None
        if known is not None:
            before = len(content)
            part = known[before : before + math.prod(seen) * dtype.itemsize]
            reference = np.frombuffer(part, dtype).reshape(seen)
        array = decode(trees[which], payload[which:], seen, dtype, of_trees[which], reference)
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
