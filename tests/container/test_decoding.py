"""Chunks decoded on threads: an error ends it, is the same for any number, and hangs nobody."""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensorcomp.container import decoding
from tensorcomp.container.decoding import decode_all
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
