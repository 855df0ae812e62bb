"""Files appear complete or not at all, whatever happens while they are written."""

import errno
import io
import os
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tampering import sample_tensors

import tensorcomp
from tensorcomp.checkpoints.base import SourceTemplate
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.container import writer
from tensorcomp.container.manifest import Manifest, manifest_to_text
from tensorcomp.container.records import PruningRecord, TensorRecord
from tensorcomp.errors import CheckpointError
from tensorcomp.io import files as atomic
from tensorcomp.io.files import atomic_file
from tensorcomp.pipeline.job import compress_source
from tensorcomp.progress import Progress

OLD = b"what was there before"


def temporary(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if "tensorcomp-" in path.name]


class Failing(Progress):
    """Fails once some tensors are done."""

    def __init__(self, error: BaseException, tensors: int = 2) -> None:
        self.error = error
        self.left = tensors

    def advance(self, name: str, nbytes: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a safetensors file."""
    folder = tmp_path / "source"
    folder.mkdir()
    packed = folder / "model.tc.safetensors"
    tensorcomp.save_file(sample_tensors(), packed)
    tensorcomp.decompress(packed)
    return folder / "model.safetensors"


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError(errno.ENOSPC, "")])
@pytest.mark.parametrize("existing", [False, True])
def test_an_error_leaves_the_destination_as_it_was(error, existing, source, tmp_path):
    packed = source.with_name("model.tc.safetensors")
    out = tmp_path / "out"
    if existing:
        out.write_bytes(OLD)
    jobs: list[Callable[[Progress], Any]] = [
        lambda progress: tensorcomp.compress(source, out, force=True, progress=progress),
        lambda progress: tensorcomp.decompress(packed, out, force=True, progress=progress),
    ]
    for job in jobs:
        with pytest.raises(CheckpointError if isinstance(error, OSError) else type(error)):
            job(Failing(error))
        assert (out.read_bytes() == OLD) if existing else not out.exists()
        assert not temporary(tmp_path)


def test_a_full_disk_is_named(source, tmp_path):
    progress = Failing(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(CheckpointError, match=r"out: cannot be written: the disk is full"):
        tensorcomp.compress(source, tmp_path / "out", progress=progress)


class FullFile(io.BytesIO):
    """A file on a disk with room for so many bytes, which takes what it can before it fails."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, data: Any) -> int:
        fits = max(0, min(len(data), self.room - self.tell()))
        super().write(bytes(data)[:fits])
        if fits < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return fits


def test_no_write_is_lost_when_the_disk_fills_up(monkeypatch):
    tensors = sample_tensors()
    size = len(tensorcomp.save(tensors, threads=1))
    for margin in (writer._MARGIN, -500):
        monkeypatch.setattr(writer, "_MARGIN", margin)
        monkeypatch.setattr(writer, "_MOVED_AT_ONCE", 0)
        whole = io.BytesIO()
        compress_source(MemoryCheckpoint(tensors), whole)
        for room in range(0, size + 600, 331):
            file = FullFile(room)
            try:
                compress_source(MemoryCheckpoint(tensors), file)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            else:
                assert file.getvalue() == whole.getvalue()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let the system refuse to write beyond so many bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("size", [0, 100, 5000, 9000])
def test_the_system_s_refusal_is_one_of_ours(size, source, tmp_path):
    packed = source.with_name("model.tc.safetensors")
    out = tmp_path / "out"
    out.write_bytes(OLD)
    for verb, given in ((tensorcomp.compress, source), (tensorcomp.decompress, packed)):
        with file_size_limit(size), pytest.raises(CheckpointError, match="cannot be written"):
            verb(given, out, force=True)
        assert out.read_bytes() == OLD
        assert not temporary(tmp_path)


def test_a_killed_run_leaves_the_destination_and_the_next_cleans_up(source, tmp_path):
    out = tmp_path / "out.tc.safetensors"
    out.write_bytes(OLD)
    code = """
import os, sys
import tensorcomp
class Killed(tensorcomp.Progress):
    def advance(self, name, nbytes):
        os._exit(9)
tensorcomp.compress(sys.argv[1], sys.argv[2], force=True, progress=Killed())
"""
    done = subprocess.run([sys.executable, "-c", code, source, out], check=False)
    assert done.returncode == 9
    assert out.read_bytes() == OLD
    assert len(temporary(tmp_path)) == 1
    tensorcomp.compress(source, out, force=True)
    assert not temporary(tmp_path)
    tensorcomp.decompress(out, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == source.read_bytes()


def test_what_a_killed_run_left_is_overwritten_even_if_longer(tmp_path):
    out = tmp_path / "out"
    (tmp_path / ".out.tensorcomp-part").write_bytes(bytes(10_000))
    with atomic_file(out, force=False) as file:
        file.write(b"new")
    assert out.read_bytes() == b"new"
    assert not temporary(tmp_path)


def test_two_runs_do_not_write_one_file(tmp_path):
    out = tmp_path / "out"
    with atomic_file(out, force=False) as first:
        first.write(b"first")
        with (
            pytest.raises(CheckpointError, match="another run is writing it"),
            atomic_file(out, force=False),
        ):
            raise AssertionError
        assert len(temporary(tmp_path)) == 1
    assert out.read_bytes() == b"first"


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(CheckpointError, match="exists already"), atomic_file(out, force=False):
        out.write_bytes(OLD)
    assert out.read_bytes() == OLD
    assert not temporary(tmp_path)


def test_outputs_that_cannot_be_are_refused(tmp_path, source):
    (tmp_path / "out").write_bytes(OLD)
    for target, wanted in (
        (tmp_path / "out", "exists already; force=True replaces it"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "out", "there is no folder"),
    ):
        with pytest.raises(CheckpointError, match=wanted):
            tensorcomp.compress(source, target)
    with pytest.raises(CheckpointError, match="the output would replace the input"):
        tensorcomp.compress(source, source, force=True)
    link = tmp_path / "link"
    link.symlink_to(source)
    with pytest.raises(CheckpointError, match="the output would replace the input"):
        tensorcomp.compress(source, link, force=True)
    assert (tmp_path / "out").read_bytes() == OLD


def test_the_mode_of_a_new_file_follows_the_mask(tmp_path):
    before = os.umask(0o027)
    try:
        tensorcomp.save_file({"a": np.arange(9)}, tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("margin", [512, -500])
@pytest.mark.parametrize("block", [1, 1000, 1 << 24])
def test_blobs_move_where_the_header_needs_more_room(margin, block, monkeypatch):
    tensors = sample_tensors()
    moved = []
    move = writer._move
    monkeypatch.setattr(writer, "_MARGIN", margin)
    monkeypatch.setattr(writer, "_MOVED_AT_ONCE", 0)
    monkeypatch.setattr(writer, "_BLOCK", block)
    monkeypatch.setattr(writer, "_move", lambda *args: (moved.append(args), move(*args)))
    loaded = tensorcomp.load(tensorcomp.save(tensors, threads=1))
    assert all(loaded[name].tobytes() == array.tobytes() for name, array in tensors.items())
    assert bool(moved) == (margin < 0)


class Halting(io.FileIO):
    """A file of which each call reads or writes only some bytes, as systems may."""

    def write(self, data: Any) -> int:
        return super().write(bytes(data)[:700])

    def readinto(self, buffer: Any) -> int:
        return super().readinto(memoryview(buffer)[:300])


@pytest.mark.parametrize("margin", [512, -500])
def test_short_reads_and_writes_are_gone_on_with(margin, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_MARGIN", margin)
    monkeypatch.setattr(writer, "_MOVED_AT_ONCE", 0)
    tensors = sample_tensors()
    path = tmp_path / "out"
    with io.BufferedRandom(Halting(path, "w+b")) as file:  # as outputs are opened
        compress_source(MemoryCheckpoint(tensors), file)
    loaded = tensorcomp.load_file(path)
    assert all(loaded[name].tobytes() == array.tobytes() for name, array in tensors.items())


def test_the_header_needs_no_move_for_many_tensors_with_long_names():
    tensors = {f"layers.{i}.{'long_' * 20}weight": np.arange(i, i + 2100) for i in range(500)}
    source = MemoryCheckpoint(tensors, {"text": "x" * 5000, "é": "ü"})
    file = io.BytesIO()
    moved = []
    move, writer._move = writer._move, lambda *args: moved.append(args)
    try:
        compress_source(source, file)
    finally:
        writer._move = move
    assert not moved
    assert len(tensorcomp.load(file.getvalue())) == 500


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes with names")
def test_no_device_and_no_pipe_is_replaced(source):
    pipe = source.with_name("pipe")
    os.mkfifo(pipe)
    for out in (pipe, Path(os.devnull)):
        with pytest.raises(CheckpointError, match="is a device or a pipe"):
            tensorcomp.compress(source, out, force=True)
    assert pipe.is_fifo()
    assert Path(os.devnull).is_char_device()


def test_a_link_in_place_of_the_temporary_file_is_not_followed(source):
    victim, out = source.with_name("victim"), source.with_name("out.tc.safetensors")
    victim.write_text("precious")
    source.with_name(".out.tc.safetensors.tensorcomp-part").symlink_to(victim)
    tensorcomp.compress(source, out)
    assert victim.read_text() == "precious"
    assert out.is_file()
    assert not out.is_symlink()


def test_a_run_that_waited_for_another_s_file_takes_a_new_one(tmp_path, monkeypatch):
    out, partial = tmp_path / "out", tmp_path / ".out.tensorcomp-part"
    lock = atomic.lock
    finished = []

    def lock_late(descriptor: int, path: Path) -> None:
        if not finished:  # another run ends between opening and locking
            finished.append(partial.rename(out))
            out.write_bytes(OLD)
        lock(descriptor, path)

    monkeypatch.setattr(atomic, "lock", lock_late)
    with atomic_file(out, force=True) as file:
        assert out.read_bytes() == OLD
        file.write(b"new")
    assert finished
    assert out.read_bytes() == b"new"


@pytest.mark.parametrize("what", ["header", "manifest"])
def test_texts_of_many_tensors_are_made_without_all_their_objects(what):
    count, score = 20_000, PruningRecord("magnitude", "element", 40_000, 0.25)
    records = {
        name: TensorRecord(name, "BF16", (400, 100), "mlp", 80_000, digest="0" * 16, pruned=score)
        for name in (f"layers.{i}.weight" for i in range(count))
    }
    manifest = Manifest(1 << 20, (), records, SourceTemplate("safetensors"), 0)
    infos = manifest.infos
    tracemalloc.start()
    text = build_header(infos) if what == "header" else manifest_to_text(manifest)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text
    assert peak < count * (500 if what == "header" else 780)
