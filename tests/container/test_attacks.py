"""Damaged and hostile compressed files: an error of ours, never another, nothing allocated."""

import base64
import functools
import hashlib
import io
import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hostile_manifests import MANIFESTS, SOUND, every_record, record, source
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
from tensorcomp._zstd_frames import compress
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import CheckpointError, FormatError, VerificationError
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions

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

    def once(data: bytes) -> str | None:
        try:
            return read_all(path, out)
        except REFUSED as error:
            message = str(error)
            if "\n" in message or len(message) > 1000 or path.name not in message:
                pytest.fail(f"the message is not one line with the file: {message[:2000]!r}")
            return None

    def run(data: bytes) -> str | None:
        path.write_bytes(data)
        for _ in range(2):  # what compiles a kernel or imports torch takes memory, but only once
            tracemalloc.start(1)
            try:
                found = once(data)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert not list(tmp_path.glob(".*")), "a temporary file is left"
            if peak < 8 << 20:
                return found
        raise AssertionError(f"{peak} bytes allocated")

    run(sound())  # compiles and imports what has to be
    return run


def test_a_sound_file_reads_the_same_in_every_way(attempt):
    restored = attempt(sound())
    assert restored is not None
    loaded = tensorcomp.load(sound())
    for name, array in sample_tensors().items():
        assert loaded[name].tobytes() == array.tobytes()


def test_a_file_cut_short_anywhere_is_refused(attempt):
    data = sound()
    start = len(data) - len(data[8 + int.from_bytes(data[:8], "little") :])
    places = {*range(0, start, 7), *range(start, len(data), 97), *range(len(data) - 40, len(data))}
    for place in sorted(places):
        assert attempt(data[:place]) is None, place
    assert attempt(data + b"\0") is None


def test_a_flipped_bit_anywhere_is_noticed_or_harmless(attempt):
    data = sound()
    wanted = attempt(data)
    start = 8 + int.from_bytes(data[:8], "little")
    random = np.random.default_rng(11)
    places = [*range(start), *range(start, len(data), 41), *range(len(data) - 60, len(data))]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(8))
        assert attempt(bytes(damaged)) in (None, wanted), (place, data[place], damaged[place])


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_hostile_manifest_is_refused(name, attempt):
    assert attempt(with_manifest(sound(), MANIFESTS[name])) is None


def test_more_axes_than_numpy_has_are_restored_but_not_loaded(tmp_path):
    path, out = tmp_path / "x.tc.safetensors", tmp_path / "x.safetensors"
    shape = [1] * 200 + [72, 64]
    path.write_bytes(with_manifest(sound(), record("weights", shape=shape)))
    with pytest.raises(FormatError, match="no array of 202 axes"):
        tensorcomp.load_file(path)
    tensorcomp.decompress(path, out)
    header = out.read_bytes()[:2000]
    assert json.dumps(shape, separators=(",", ":")).encode() in header


@pytest.mark.parametrize("name", SOUND)
def test_a_manifest_that_says_something_else_is_believed(name, attempt):
    assert attempt(with_manifest(sound(), SOUND[name])) is not None


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
def test_metadata_that_are_no_manifest_are_refused(text, attempt):
    assert attempt(with_metadata(sound(), text)) is None


def test_a_fallback_that_nothing_needs_changes_nothing(attempt):
    assert attempt(with_manifest(sound(), every_record(fallback=0))) == attempt(sound())


def test_a_later_format_is_named(tmp_path):
    data = with_metadata(sound(), pack_manifest(manifest_of(sound()), version=99))
    with pytest.raises(FormatError, match=r"written in format 99.*install a newer one"):
        tensorcomp.load(data)


def test_a_plain_safetensors_file_is_named(tmp_path):
    plain = with_metadata(sound(), None)
    with pytest.raises(FormatError, match="not one that tensorcomp compressed"):
        CompressedFile(plain)
    assert all(blob.dtype == np.uint8 for blob in tensorcomp.load(plain).values())


@pytest.mark.parametrize("size", [1 << 24, 1 << 29])
def test_a_manifest_that_unpacks_to_much_more_is_refused(size, attempt):
    bomb = compress(b" " * size, 3)
    text = json.dumps({"format": 1, "manifest": base64.b64encode(bomb).decode()})
    assert attempt(with_metadata(sound(), text)) is None


def test_a_manifest_with_data_behind_its_frame_is_refused_or_the_same(attempt):
    packed = base64.b64decode(json.loads(metadata_of(sound()))["manifest"]) + b"more"
    text = json.dumps({"format": 1, "manifest": base64.b64encode(packed).decode()})
    assert attempt(with_metadata(sound(), text)) in (None, attempt(sound()))


def test_a_header_that_unpacks_to_much_more_is_refused(attempt):
    bomb = base64.b64encode(compress(bytes(1 << 28), 3)).decode()
    assert attempt(with_manifest(sound(), source(attachments={"header": bomb}))) is None


def _rechecked(blob: bytes, place: int, value: int) -> bytes:
    """Return a blob of one chunk with a byte changed and the checksum right again."""
    body = bytearray(blob[:-8])
    body[place % len(body)] = value
    return bytes(body) + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))


def test_a_forged_checksum_does_not_help(attempt):
    wanted = attempt(sound())
    for name in ("weights", "steps", "bias"):
        for place in (*range(60), *range(60, 4000, 301)):
            for value in (0, 1, 2, 0xFF):
                damaged = with_blob(sound(), name, lambda b, p=place, v=value: _rechecked(b, p, v))
                assert attempt(damaged) in (None, wanted), (name, place, value)


ANY_INDEX = [
    lambda blob: b"",
    lambda blob: blob[1:],
    lambda blob: blob[-7:],
    lambda blob: b"\0" + blob,
    lambda blob: bytes(len(blob)),
    lambda blob: b"\xff" * len(blob),
    lambda blob: blob + blob[-16:],
]
LONG_INDEX = [
    lambda blob: blob[-31:],
    lambda blob: blob[:-16] + struct.pack("<2Q", 1 << 63, 0),
    lambda blob: blob[:-48] + struct.pack("<6Q", 1 << 63, 0, 1 << 63, 0, 0, 0),
    lambda blob: blob[:-48] + struct.pack("<6Q", 2**64 - 1, 0, len(blob) - 47, 0, 0, 0),
    lambda blob: blob[:-48] + struct.pack("<6Q", len(blob), 0, 0, 0, 0, 0),
]


@pytest.mark.parametrize("change", ANY_INDEX)
def test_a_forged_index_is_refused(change, attempt):
    for name in ("weights", "scalar", "empty"):
        assert attempt(with_blob(sound(), name, change)) is None


@functools.cache
def in_chunks() -> bytes:
    """Return a file with a tensor, ``weights``, of two chunks."""
    file = io.BytesIO()
    weights = np.random.default_rng(5).standard_normal((40, 50)).astype(np.float32)
    source = MemoryCheckpoint({"weights": weights})
    compress_source(source, file, CompressOptions(chunk_elements=1000))
    return file.getvalue()


@pytest.mark.parametrize("change", [*ANY_INDEX, *LONG_INDEX])
def test_a_forged_index_of_several_chunks_is_refused(change, attempt):
    assert attempt(in_chunks()) is not None
    assert attempt(with_blob(in_chunks(), "weights", change)) is None
