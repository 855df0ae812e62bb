"""Limits on BLAS and OpenMP threads in calls from several threads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

_lock = threading.Lock()


@functools.cache
def _libraries(api: str) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api=api)


@contextmanager
def one_thread(api: str = "blas") -> Iterator[None]:
    """Give BLAS, or OpenMP, one thread meanwhile.

    Threads of OpenBLAS wait for each other in loops: where another process had one of two cores,
    eigenvectors of 384 x 384 numbers took up to 2.4 s instead of 0.04 s. One thread also gives the
    same factors whatever the number of cores. Floating-point flags are ignored: on aarch64 products
    of finite numbers raise those of lanes that hold no element.
    """
    libraries = _libraries(api)
    with _lock:  # so that nobody takes another one's limit for what is to be restored
        free = any(library.get_num_threads() > 1 for library in libraries.lib_controllers)
        limit = libraries.limit(limits=1) if free else nullcontext()
    with limit, np.errstate(all="ignore"):
        yield
