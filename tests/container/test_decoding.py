"""Chunks decoded on threads: an error ends it, is the same for any number, and hangs nobody."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorcomp
from tensorcomp.container import decoding
from tensorcomp.container.decoding import decode_all, decode_jobs
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import FormatError

THREADS = [1, 2, 5]
SIZES = [10, 1 << 19, 30, 1 << 20, 1 << 18, 5, 1 << 19, *[1 << 19] * 30, 7]


class Stored:
    """Stands for tensors of a file: chunk `index` is filled with its number, or damaged."""

    def __init__(self, damaged: tuple[int, ...] = (), error: type[BaseException] = FormatError):
        self.damaged, self.error = damaged, error
        self.decoded: list[int] = []

    def decode_chunk(self, index: int, out: np.ndarray) -> None:
        if index in self.damaged:
            raise self.error(f"chunk {index} is damaged")
        out[...] = index + 1
        self.decoded.append(index)


def jobs_of(stored: Stored, sizes: list[int] = SIZES) -> list[Any]:
    return [(stored, index, np.empty(size, np.uint8)) for index, size in enumerate(sizes)]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("sizes", [SIZES, [3, 4, 5], [1 << 20] * 3, []], ids=len)
def test_every_chunk_is_decoded_once(threads, sizes):
    stored = Stored()
    jobs = jobs_of(stored, sizes)
    decode_all(jobs, threads)
    assert sorted(stored.decoded) == list(range(len(sizes)))
    assert all((out == index + 1).all() for _, index, out in jobs)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("damaged", [(0,), (3,), (4, 3, 36), (2, 5), tuple(range(38))])
def test_the_first_damaged_chunk_is_told(threads, damaged):
    for _ in range(5):
        with pytest.raises(FormatError, match=f"chunk {min(damaged)} is damaged"):
            decode_all(jobs_of(Stored(damaged)), threads)


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize("place", ["populate", "small", "large"])
def test_no_thread_waits_for_one_that_failed(monkeypatch, threads, place):
    def refuse(_array: np.ndarray) -> None:
        raise MemoryError

    if place == "populate":
        monkeypatch.setattr(decoding, "populate", refuse)
    stored = Stored({"populate": (), "small": (0,), "large": (3,)}[place], KeyboardInterrupt)
    found: list[type[BaseException]] = []

    def run() -> None:
        try:
            decode_all(jobs_of(stored), threads)
        except BaseException as error:
            found.append(type(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert found == [MemoryError if place == "populate" else KeyboardInterrupt]


def test_memory_is_provided_only_somewhat_ahead(monkeypatch):
    populated: list[int] = []
    monkeypatch.setattr(decoding, "populate", lambda array: populated.append(array.size))
    first = threading.Event()

    def decode_chunk(index: int, out: np.ndarray) -> None:
        first.wait(0.2)
        first.set()
        raise FormatError("damaged")

    stored = SimpleNamespace(decode_chunk=decode_chunk)
    with pytest.raises(FormatError):
        decode_all([(stored, index, np.empty(1 << 18, np.uint8)) for index in range(99)], 2)
    assert 0 < len(populated) < 20


def resident_bytes(path):
    """Return the bytes of a mapped file that are in this process's memory."""
    sizes, inside = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            sizes.append(int(line.split()[1]) * 1024)
    return sum(sizes)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("threads", [1, 3])
def test_pages_that_were_decoded_do_not_stay_in_memory(tmp_path, threads):
    random = np.random.default_rng(0)
    tensors = {f"w{n}": random.standard_normal((1500, 1000), np.float32) for n in range(3)}
    path = tmp_path / "w.tc.safetensors"
    tensorcomp.save_file(tensors, path)
    with CompressedFile(path) as file:
        blobs = [file.open_tensor(name) for name in tensors]
        outs = [np.empty(tensor.grid.shape, np.float32) for tensor in blobs]
        jobs = [job for pair in zip(blobs, outs, strict=True) for job in decode_jobs(*pair)]
        for _ in range(2):  # what was let go is read again
            decode_all(jobs, threads)
            assert 0 < resident_bytes(path) < path.stat().st_size / 10
            for out, wanted in zip(outs, tensors.values(), strict=True):
                assert np.array_equal(out, wanted)


def test_bytes_in_memory_are_never_let_go():
    data = tensorcomp.save({"w": np.random.default_rng(0).standard_normal((900, 900))})
    before = bytes(bytearray(data))
    for _ in range(2):
        tensorcomp.load(data)
        with CompressedFile(data) as file:
            file.read("w")
    assert data == before
