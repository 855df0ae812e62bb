"""Fresh memory: what is asked of the system changes no byte, and needs no system that knows it."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from tensorcomp.container import pages
from tensorcomp.container.pages import ask_for_large_pages, populate


@pytest.mark.parametrize("size", [0, 1, 4095, 5000, 1 << 20, (3 << 20) + 17])
def test_populating_changes_nothing(size: int) -> None:
    array = np.arange(size, dtype=np.uint8)
    wanted = array.copy()
    populate(array)
    populate(array[1:])
    ask_for_large_pages(array.ctypes.data, array.nbytes)
    assert np.array_equal(array, wanted)


def test_systems_without_such_advice_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    pages._madvise.cache_clear()
    try:
        array = np.ones(3 << 20, np.uint8)
        populate(array)
        ask_for_large_pages(array.ctypes.data, array.nbytes)
        assert array.all()
    finally:
        pages._madvise.cache_clear()
