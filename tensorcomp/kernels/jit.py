"""How kernels are compiled: cached on disk, with one hook to tell the user.

Loops over elements run without the interpreter's lock (`jit`). Loops over tables take some
microseconds, less than it costs two threads to hand the lock over, and keep it (`quick`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import event


def quick(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that keeps the interpreter's lock while it runs."""
    compiled: Callable[..., Any] = numba.njit(cache=True, error_model="numpy")(function)
    return compiled


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel on its first call; later processes load it from the disk cache."""
    compiled: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    return compiled


class _CompileListener(event.Listener):
    """Calls back once, at the first kernel that is compiled and not loaded from the cache."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify: Callable[[], None] | None = notify

    def on_start(self, _event: Any) -> None:
        if self._notify is not None:
            notify, self._notify = self._notify, None
            notify()

    def on_end(self, _event: Any) -> None:
        pass


def on_first_compile(notify: Callable[[], None]) -> None:
    """Call `notify` when this process first compiles a kernel (never, if all are cached)."""
    event.register("numba:compile", _CompileListener(notify))  # type: ignore[no-untyped-call]
