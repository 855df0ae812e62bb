"""Damaged and hostile compressed files: an error of ours, never another, nothing allocated."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
import zstandard
from tampering import (
    manifest_of,
    metadata_of,
    pack_manifest,
    sample_bytes,
    sample_tensors,
    with_blob,
    with_manifest,
    with_metadata,
)

import tensorcomp
from tensorcomp.errors import CheckpointError, FormatError, VerificationError

Change = Callable[[dict[str, Any]], Any]
REFUSED = (CheckpointError, FormatError, VerificationError)


@functools.cache
def sound() -> bytes:
    return sample_bytes()


def read_all(path: Path, out: Path) -> str:
    """Read a compressed file in every way there is; return the digest of the restored file."""
    tensorcomp.load_file(path, threads=1)
    with tensorcomp.safe_open(path) as file:
        file.metadata()
        for name in file.keys():  # noqa: SIM118 - not a dictionary
            file.get_tensor(name)
            if shape := file.get_slice(name).get_shape():
                file.get_slice(name)[: min(1, shape[0])]
    out.unlink(missing_ok=True)
    tensorcomp.decompress(path, out, threads=1)
    failed = [check.error for check in tensorcomp.verify(path, threads=1) if check.error]
    if failed:
        raise VerificationError(failed[0])
    return hashlib.sha256(out.read_bytes()).hexdigest()


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[[bytes], str | None]:
    """Return a function that reads bytes: digest of the restored file, or None if refused.

    Any other exception than ours fails the test, and so does a large allocation.
    """
    path, out = tmp_path / "x.tc.safetensors", tmp_path / "x.safetensors"

    def run(data: bytes) -> str | None:
        path.write_bytes(data)
        tracemalloc.start(1)
        try:
            return read_all(path, out)
        except REFUSED as error:
            message = str(error)
            if "\n" in message or len(message) > 1000:
                pytest.fail(f"the message is not one line: {message[:2000]!r}")
            return None
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 8 << 20, f"{peak} bytes allocated"
            assert not list(tmp_path.glob(".*")), "a temporary file is left"

    run(sound())  # compiles and imports what has to be
    return run


def test_a_sound_file_reads_the_same_in_every_way(attempt: Callable[[bytes], str | None]) -> None:
    restored = attempt(sound())
    assert restored is not None
    loaded = tensorcomp.load(sound())
    for name, array in sample_tensors().items():
        assert loaded[name].tobytes() == array.tobytes()


def test_a_file_cut_short_anywhere_is_refused(attempt: Callable[[bytes], str | None]) -> None:
    data = sound()
    start = len(data) - len(data[8 + int.from_bytes(data[:8], "little") :])
    places = {*range(0, start, 7), *range(start, len(data), 97), *range(len(data) - 40, len(data))}
    for place in sorted(places):
        assert attempt(data[:place]) is None, place
    assert attempt(data + b"\0") is None


def test_a_flipped_bit_anywhere_is_noticed_or_harmless(
    attempt: Callable[[bytes], str | None],
) -> None:
    data = sound()
    wanted = attempt(data)
    start = 8 + int.from_bytes(data[:8], "little")
    random = np.random.default_rng(11)
    places = [*range(start), *range(start, len(data), 41), *range(len(data) - 60, len(data))]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(8))
        assert attempt(bytes(damaged)) in (None, wanted), (place, data[place], damaged[place])


def _all(**changes: Any) -> Change:
    """Return a change of the record of every stored tensor."""

    def change(manifest: dict[str, Any]) -> None:
        for record in manifest["tensors"].values():
            if "same_as" not in record:
                record.update(changes)

    return change


def _record(name: str, **changes: Any) -> Change:
    return lambda manifest: manifest["tensors"][name].update(changes)


def _top(**changes: Any) -> Change:
    return lambda manifest: manifest.update(changes)


def _source(**changes: Any) -> Change:
    return lambda manifest: manifest["source"].update(changes)


def _without(*path: str) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        for key in path[:-1]:
            manifest = manifest[key]
        del manifest[path[-1]]

    return change


def _tree(text: Any) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        for planned in manifest["trees"]:
            planned["tree"] = text

    return change


MANIFESTS: dict[str, Change] = {
    "is a list": lambda manifest: [manifest],
    "is a number": lambda _: 7,
    "is text": lambda _: "manifest",
    "is empty": lambda _: {"a": 1},
    "nests deeply": lambda _: b"[" * 100_000 + b"]" * 100_000,
    "is no JSON": lambda _: b"{",
    "is no UTF-8": lambda _: b'{"\xff": 1}',
    "chunks of 0": _top(chunk_elements=0),
    "chunks of -1": _top(chunk_elements=-1),
    "huge chunks": _top(chunk_elements=1 << 40),
    "chunks of 1": _top(chunk_elements=1),
    "other chunks": _top(chunk_elements=1000),
    "chunks of a half": _top(chunk_elements=0.5),
    "chunks of true": _top(chunk_elements=True),
    "no chunks": _without("chunk_elements"),
    "no trees": _top(trees=[]),
    "trees is an object": _top(trees={}),
    "trees of numbers": _top(trees=[1, 2, 3, 4, 5, 6]),
    "no tensors": _top(tensors={}),
    "tensors is a list": _top(tensors=[]),
    "a tensor less": _without("tensors", "bias"),
    "a tensor more": lambda m: m["tensors"].update(more=dict(m["tensors"]["bias"])),
    "a tensor is a list": lambda m: m["tensors"].update(bias=[]),
    "huge shape": _all(shape=[1 << 40, 1 << 20]),
    "overflowing shape": _all(shape=[1 << 62, 1 << 62, 1 << 62]),
    "large shape": _record("weights", shape=[1 << 31]),
    "somewhat larger shape": _record("weights", shape=[73, 64]),
    "smaller shape": _record("weights", shape=[71, 64]),
    "transposed": _record("weights", shape=[64, 72]),
    "flattened": _record("weights", shape=[64 * 72]),
    "negative shape": _all(shape=[-1]),
    "fractional shape": _all(shape=[2.5]),
    "shape of text": _all(shape="abc"),
    "shape is null": _all(shape=None),
    "too many axes": _record("weights", shape=[1] * 200 + [72, 64]),
    "unknown dtype": _record("weights", dtype="F32X", nbytes=72 * 64 * 4),
    "unknown dtype, huge": _record("weights", dtype="F32X", nbytes=1 << 50),
    "unknown dtype, no size": _record("weights", dtype="F32X"),
    "narrower dtype": _record("weights", dtype="F16"),
    "wider dtype": _record("weights", dtype="F64"),
    "complex dtype": _record("weights", dtype="C64", shape=[36, 64]),
    "dtype of half a byte": _record("weights", dtype="F4", shape=[72, 64, 8]),
    "dtype is a number": _all(dtype=32),
    "other integer type": _record("weights", dtype="U32"),
    "tree out of range": _all(tree=99),
    "negative tree": _all(tree=-1),
    "tree is text": _all(tree="0"),
    "no tree": _without("tensors", "weights", "tree"),
    "fallback out of range": _all(fallback=99),
    "a fallback more": _all(fallback=0),
    "fallback is text": _all(fallback="0"),
    "no digest": _without("tensors", "weights", "digest"),
    "wrong digest": _record("weights", digest="0" * 16),
    "short digest": _record("weights", digest="0"),
    "digest is no number": _record("weights", digest="xyz"),
    "digest is null": _record("weights", digest=None),
    "role is a number": _all(role=3),
    "equals itself": _record("weights", same_as="weights"),
    "equals a duplicate": _record("bias", same_as="weights"),
    "equals nothing": _record("weights", same_as="nothing"),
    "equals a number": _record("weights", same_as=5),
    "tied to nothing": _top(aliases={"other": "nothing"}),
    "tied to itself": _top(aliases={"other": "other"}),
    "tied in a ring": _top(aliases={"a": "b", "b": "a"}),
    "tied over a tensor": _top(aliases={"weights": "bias"}),
    "tied to a number": _top(aliases={"other": 4}),
    "aliases is a list": _top(aliases=[]),
    "no source": _without("source"),
    "source is null": _top(source=None),
    "unknown kind": _source(kind="gguf"),
    "kind of a torch file": _source(kind="torch"),
    "kind of an archive": _source(kind="npz"),
    "source is negative": _source(nbytes=-1),
    "metadata is a list": _source(structure={"metadata": ["x"]}),
    "metadata of numbers": _source(structure={"metadata": {"a": 1}}),
    "metadata of surrogates": _source(structure={"metadata": {"a": "\udcff"}}),
    "structure is a list": _source(structure=["x"]),
    "structure of pairs": _source(structure=[["metadata", 4]]),
    "attachments is a list": _source(attachments=[]),
    "attachment is no base64": _source(attachments={"header": "§"}),
    "attachment is no frame": _source(attachments={"header": "AAAA"}),
    "attachment is a number": _source(attachments={"header": 4}),
    "tree is a filter": _tree("zstd"),
    "tree of an unknown codec": _tree("nonesuch"),
    "tree is broken": _tree("raw("),
    "tree is deep": _tree("fields(exponent=" * 900),
    "tree is long": _tree("raw" + " " * (1 << 20)),
    "tree is a number": _tree(4),
    "tree of other codecs": _tree("ans"),
    "tree of contexts": _tree("huffman(contexts=32)"),
    "tree of parts": _tree("sparse(mask=gaps, values=palette)"),
    "tree of bits": _tree("bitpack"),
    "tree of runs": _tree("runlength"),
    "constant tree": _tree("constant"),
    "raw tree": _tree("raw(bytes=zstd)"),
}

# What these say is as sound as what the writer said.
HARMLESS = {"role is other", "a fallback more"}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_hostile_manifest_is_refused(name: str, attempt: Callable[[bytes], str | None]) -> None:
    assert attempt(with_manifest(sound(), MANIFESTS[name])) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        '"manifest"',
        "{}",
        '{"format": 1}',
        '{"format": 1, "manifest": 7}',
        '{"format": 1, "manifest": "AAAA"}',
        '{"format": 1, "manifest": "§"}',
        '{"format": 1, "manifest": null}',
        '{"format": "1", "manifest": ""}',
        '{"format": 0, "manifest": ""}',
        '{"format": true, "manifest": ""}',
        '{"format": 1.0, "manifest": ""}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_metadata_that_are_no_manifest_are_refused(
    text: str, attempt: Callable[[bytes], str | None]
) -> None:
    assert attempt(with_metadata(sound(), text)) is None


def test_a_later_format_is_named(tmp_path: Path) -> None:
    data = with_metadata(sound(), pack_manifest(manifest_of(sound()), version=2))
    with pytest.raises(FormatError, match=r"written in format 2.*install a newer one"):
        tensorcomp.load(data)


def test_a_plain_safetensors_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not one that tensorcomp compressed"):
        tensorcomp.load(with_metadata(sound(), None))


@pytest.mark.parametrize("size", [1 << 24, 1 << 29])
def test_a_manifest_that_unpacks_to_much_more_is_refused(
    size: int, attempt: Callable[[bytes], str | None]
) -> None:
    bomb = zstandard.ZstdCompressor().compress(b" " * size)
    text = json.dumps({"format": 1, "manifest": base64.b64encode(bomb).decode()})
    assert attempt(with_metadata(sound(), text)) is None


def test_a_manifest_with_data_behind_its_frame_is_refused_or_the_same(
    attempt: Callable[[bytes], str | None],
) -> None:
    packed = base64.b64decode(json.loads(metadata_of(sound()))["manifest"]) + b"more"
    text = json.dumps({"format": 1, "manifest": base64.b64encode(packed).decode()})
    assert attempt(with_metadata(sound(), text)) in (None, attempt(sound()))


def test_a_header_that_unpacks_to_much_more_is_refused(
    attempt: Callable[[bytes], str | None],
) -> None:
    bomb = base64.b64encode(zstandard.ZstdCompressor().compress(bytes(1 << 28))).decode()
    assert attempt(with_manifest(sound(), _source(attachments={"header": bomb}))) is None


def _rechecked(blob: bytes, place: int, value: int) -> bytes:
    """Return a blob of one chunk with a byte changed and the checksums right again."""
    body, index = bytearray(blob[:-32]), blob[-32:]
    body[place % len(body)] = value
    shared_size, _, size, _ = struct.unpack("<4Q", index)
    shared, payload = bytes(body[:shared_size]), bytes(body[shared_size:])
    return bytes(body) + struct.pack(
        "<4Q",
        shared_size,
        xxhash.xxh3_64_intdigest(shared),
        size,
        xxhash.xxh3_64_intdigest(payload),
    )


def test_a_forged_checksum_does_not_help(attempt: Callable[[bytes], str | None]) -> None:
    wanted = attempt(sound())
    for name in ("weights", "steps", "bias"):
        for place in (*range(60), *range(60, 4000, 301)):
            for value in (0, 1, 2, 0xFF):
                damaged = with_blob(sound(), name, lambda b, p=place, v=value: _rechecked(b, p, v))
                assert attempt(damaged) in (None, wanted), (name, place, value)


@pytest.mark.parametrize(
    "change",
    [
        lambda blob: b"",
        lambda blob: blob[-16:],
        lambda blob: blob[-31:],
        lambda blob: b"\0" + blob,
        lambda blob: blob[:-32] + struct.pack("<4Q", 1 << 63, 0, 1 << 63, 0),
        lambda blob: blob[:-32] + struct.pack("<4Q", 2**64 - 1, 0, len(blob) - 31, 0),
        lambda blob: blob[:-32] + struct.pack("<4Q", len(blob), 0, 0, 0),
        lambda blob: bytes(len(blob)),
        lambda blob: b"\xff" * len(blob),
        lambda blob: blob + blob[-16:],
    ],
)
def test_a_forged_index_is_refused(
    change: Callable[[bytes], bytes], attempt: Callable[[bytes], str | None]
) -> None:
    for name in ("weights", "scalar", "empty"):
        assert attempt(with_blob(sound(), name, change)) is None
