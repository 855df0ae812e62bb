"""Compressed files to damage: blobs, chunks, side information and manifests, checksums mended."""

import importlib
import json
import pkgutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import xxhash
from golden_cases import Case, file_of
from tampering import manifest_of, pack_manifest

import tensorcomp
import tensorcomp.codecs
from benchmarks.hardening import ROOT
from benchmarks.hardening.mutations import OWN_TREES, damaged_bytes, damaged_json
from benchmarks.hardening.sound import LIMIT, Layer, Sound, Way, digest, scratch, written
from tensorcomp.codecs.entropy.side_info import unpack_side_info
from tensorcomp.codecs.registry import own_codecs
from tensorcomp.codecs.text import parse_tree
from tensorcomp.container.blob import Blob, is_short
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.container.manifest import METADATA_KEY
from tensorcomp.container.reader import CompressedFile
from tensorcomp.dtypes import dtype_bits
from tensorcomp.errors import NotRepresentable, VerificationError
from tensorcomp.testing import nasty_arrays

_MOST_BYTES = 1 << 16  # of a file: damage does not get worse with size
_ARRAYS = ("weights float32", "rows of three", "geometric uint16", "one rare symbol of many")
_ARRAYS += ("half zeros", "fp32 that holds fp16 in some rows")
_ARRAYS += ("two-sided", "rare marks", "positions")
_KEPT = 3 << 10  # bytes of each of those


def compressed_files(every: int = 1) -> Iterator[Sound]:
    """Yield the golden files of every version, and a file of every tree."""
    for path in sorted((ROOT / "tests" / "golden").glob("v*/*.tc.safetensors"))[::every]:
        data = path.read_bytes()
        if len(data) <= _MOST_BYTES:
            name = path.name.removesuffix(".tc.safetensors")
            yield compressed(f"{path.parent.name}/{name}", data)
    missing = own_codecs().keys() - {c.id for text in OWN_TREES for c in parse_tree(text).walk()}
    nasty = {
        name: array[: max(1, _KEPT * len(array) // array.nbytes)]
        for name, array in nasty_arrays().items()
        if name in _ARRAYS
    }
    floats = {name: array for name, array in nasty.items() if array.dtype.kind == "f"}
    trees = (*OWN_TREES, *sorted(missing))  # a codec without a tree for tests stands alone
    for text in trees[::every]:
        case = Case(text, lambda: nasty, "raw", chunk_elements=400)
        try:
            yield compressed(text, file_of(case))
        except NotRepresentable:
            yield compressed(text, file_of(replace(case, tensors=lambda: floats)))


def compressed(name: str, data: bytes) -> Sound:
    """Return a compressed file with its layers."""
    parsed = _Parsed(data)
    layers = [
        Layer("bytes", lambda data, random: damaged_bytes(data, data[::-1], random), 4),
        Layer("header", parsed.damaged_header, 1),
        Layer("blobs exchanged", parsed.exchanged, 1),
        Layer("chunk, sealed", parsed.damaged_chunk, 5),
        Layer("side information, sealed", _tampered, 2),
        Layer("manifest, sealed", parsed.damaged_manifest, 5, guarded=False),
    ]
    return Sound("compressed file", name, data, tuple(layers), _WAYS)


class _Parsed:
    """A compressed file in pieces, which damage puts together again."""

    def __init__(self, data: bytes) -> None:
        end = 8 + int.from_bytes(data[:8], "little")
        self.header: dict[str, Any] = json.loads(data[8:end])
        self.metadata = self.header.pop("__metadata__")
        self.blobs = {
            name: data[end + item["data_offsets"][0] : end + item["data_offsets"][1]]
            for name, item in self.header.items()
        }
        with CompressedFile(data) as file:
            manifest = self.manifest = file.manifest
        self.text = json.dumps(manifest_of(data), ensure_ascii=False)
        self.counts = {
            name: chunk_grid(
                record.dtype, record.shape, record.nbytes,
                record.chunk_elements or manifest.chunk_elements,
            ).count
            for name, record in manifest.blobs.items()
        }  # fmt: skip

    def file(self, blobs: dict[str, bytes], metadata: dict[str, str], text: bytes = b"") -> bytes:
        """Return the file of these blobs, whose header follows from them unless given."""
        if not text:
            header, start = {"__metadata__": metadata}, 0
            for name, blob in blobs.items():
                stop = start + len(blob)
                header[name] = {"dtype": "U8", "shape": [len(blob)], "data_offsets": [start, stop]}
                start = stop
            text = json.dumps(header).encode("utf-8", "surrogatepass")
        return len(text).to_bytes(8, "little") + text + b"".join(blobs.values())

    def damaged_header(self, _: bytes, random: Random) -> bytes:
        text = json.dumps({"__metadata__": self.metadata, **self.header})
        return self.file(self.blobs, self.metadata, damaged_json(text, random))

    def exchanged(self, _: bytes, random: Random) -> bytes:
        """Return the file with the blobs of two tensors exchanged, or one in place of another."""
        first, second = random.choices(list(self.blobs), k=2)
        blobs = {**self.blobs, first: self.blobs[second]}
        if random.random() < 0.7:
            blobs[second] = self.blobs[first]
        return self.file(blobs, self.metadata)

    def damaged_chunk(self, _: bytes, random: Random) -> bytes:
        """Return the file with a chunk, or what chunks share, damaged under a right checksum."""
        name = random.choice(list(self.blobs))
        blob = np.frombuffer(self.blobs[name], np.uint8)
        count, version = self.counts[name], self.manifest.version
        parts = [blob[a:b].tobytes() for a, b, _ in Blob.open(blob, count, name, version).parts]
        short = is_short(count, version)
        number = random.randrange(1 if short else 0, len(parts))
        other = random.choice(list(self.blobs.values()))
        parts[number] = damaged_bytes(parts[number], other, random)
        sums = [(len(part), xxhash.xxh3_64_intdigest(part)) for part in parts]
        index = struct.pack("<Q", sums[1][1]) if short else b"".join(
            struct.pack("<QQ", *entry) for entry in sums
        )  # fmt: skip
        return self.file({**self.blobs, name: b"".join([*parts, index])}, self.metadata)

    def damaged_manifest(self, _: bytes, random: Random) -> bytes:
        """Return the file with another manifest, whose names its blobs may follow."""
        text = damaged_json(self.text, random)
        version: Any = self.manifest.version
        if random.random() < 0.1:
            version = random.choice((0, 1, 2, 3, 4, 5, 6, 7, "6", True, -1, 1 << 63, 6.0, None))
        metadata = {**self.metadata, METADATA_KEY: pack_manifest(text, version)}
        return self.file(self.blobs, metadata)


class _Tampering:
    """Stand for `unpack_side_info`: damage a section while a case is tried, if it is armed.

    Equal data are damaged alike, however often and in whichever order they are read.
    """

    def __init__(self) -> None:
        self.seed: float | None = None

    def __call__(self, data: bytes, count: int, limit: int) -> list[bytes]:
        sections = unpack_side_info(data, count, limit)
        random = Random(f"{self.seed} {digest(data)}")
        if self.seed is not None and sections and random.random() < 0.4:
            place = random.randrange(len(sections))
            other = sections[place - 1]
            sections[place] = damaged_bytes(sections[place], other, random)[:limit]
        return sections


TAMPERING = _Tampering()


def tamper_side_information() -> None:
    """Put the damaging reader in place of that of all codecs."""
    for module in pkgutil.walk_packages(tensorcomp.codecs.__path__, "tensorcomp.codecs."):
        importlib.import_module(module.name)
        if hasattr(sys.modules[module.name], "unpack_side_info"):
            vars(sys.modules[module.name])["unpack_side_info"] = TAMPERING


def _tampered(data: bytes, random: Random) -> bytes:
    TAMPERING.seed = random.random()
    return data


def _tensors(data: bytes) -> Any:
    """Decode every tensor; each must have the digest that the manifest's JSON states."""
    found, decoded = {}, {}
    with CompressedFile(data) as file:
        file.check_expansion(LIMIT)
        for info in file.tensors:
            decoded[info.name] = b"".join(part.tobytes() for part in file.iter_bytes(info.name))
            found[info.name] = info.dtype, info.shape, digest(decoded[info.name])
        aliases = dict(file.aliases)
    stated = manifest_of(data)
    bundles: dict[str, bytes] = {}
    for name, record in stated["tensors"].items():
        if record.get("same_as") is not None:
            assert decoded[name] == decoded[record["same_as"]], f"{name!r} is not {record}"
        elif "bundle" in record:
            bundles[record["bundle"]] = bundles.get(record["bundle"], b"") + decoded[name]
        else:
            assert digest(decoded[name]) == record["digest"], f"{name!r} has another digest"
    for name, content in bundles.items():
        record = stated["bundles"][name]
        rows, bits = record["shape"][0] * record["shape"][1], dtype_bits(record["dtype"]) or 0
        whole = content + bytes(rows * bits // 8 - len(content))
        assert digest(whole) == record["digest"], f"bundle {name!r} has another digest"
    return found, aliases


def _loaded(data: bytes) -> Any:
    arrays = tensorcomp.load(data, threads=1, max_bytes=LIMIT)
    return {name: (array.dtype.str, array.shape, digest(array)) for name, array in arrays.items()}


def _restored(data: bytes) -> Any:
    out = scratch() / "restored"
    path = written("x.tc.safetensors", data)
    tensorcomp.decompress(path, out, threads=1, force=True, max_bytes=LIMIT)
    return digest(out.read_bytes())


def _verified(data: bytes) -> Any:
    for check in tensorcomp.verify(written("x.tc.safetensors", data), threads=1):
        if check.error:
            raise VerificationError(check.error)
    return _tensors(data)


def _sliced(data: bytes) -> Any:
    found = {}
    with tensorcomp.safe_open(written("x.tc.safetensors", data)) as file:
        file.metadata()
        for name in file.keys():  # noqa: SIM118 - not a dictionary
            part = file.get_slice(name)
            rows = (part.get_shape() or [1])[0]
            whole = file.get_tensor(name)
            found[name] = digest(whole), digest(part[rows // 2 :] if part.get_shape() else whole)
    return found


_WAYS = (
    Way("tensors", _tensors, 5),
    Way("restored", _restored, 1.5),
    Way("verified", _verified, 1),
    Way("loaded", _loaded, 2, sure=_tensors),
    Way("sliced", _sliced, 1, sure=_tensors),
)
