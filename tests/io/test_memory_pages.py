"""Fresh memory: what is asked of the system changes no byte, and needs no system that knows it."""

import mmap

import numpy as np
import pytest

from tensorcomp.checkpoints.base import map_file
from tensorcomp.io import memory_pages as pages
from tensorcomp.io.memory_pages import (
    ask_for_large_pages,
    empty_in_large_pages,
    populate,
    release,
)


@pytest.mark.parametrize("size", [0, 1, 4095, 5000, 1 << 20, (3 << 20) + 17])
def test_populating_changes_nothing(size):
    array = np.arange(size, dtype=np.uint8)
    wanted = array.copy()
    populate(array)
    populate(array[1:])
    ask_for_large_pages(array.ctypes.data, array.nbytes)
    assert np.array_equal(array, wanted)


@pytest.mark.parametrize("size", [0, 5000, 2 << 20, (6 << 20) - 1])
def test_memory_in_large_pages_can_be_written_to_its_end(size):
    array = empty_in_large_pages(size)
    array[:] = 7
    assert (array.size, array.dtype) == (size, np.uint8)
    assert (array == 7).all()
    assert size < 2 << 20 or array.ctypes.data % (2 << 20) == 0


def test_systems_without_such_advice_do_without(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    pages._madvise.cache_clear()
    try:
        array = np.ones(3 << 20, np.uint8)
        populate(array)
        ask_for_large_pages(array.ctypes.data, array.nbytes)
        assert array.all()
    finally:
        pages._madvise.cache_clear()


def test_pages_of_a_mapped_file_are_read_again(tmp_path):
    wanted = np.random.default_rng(0).bytes(100_000)
    path = tmp_path / "file"
    path.write_bytes(wanted)
    with path.open("rb") as file:
        view = map_file(file)
    assert view is not None
    array = np.frombuffer(view, np.uint8)
    for part in (array, array[5000:70_001], array[:10], array[:0]):
        release(part)
        assert bytes(array) == wanted
