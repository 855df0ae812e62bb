"""End the program on a signal: at once while it starts, later as an error that cleans up."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

READER_GONE = 141  # what the shell reports of a program that SIGPIPE ended


class Stopped(BaseException):
    """A request to end the program; no `Exception`, so that nothing but clean-up handles it.

    Parameters
    ----------
    status : int
    line : str
        What to say; may be empty.
    """

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status
        self.line = line


def end_on_signals() -> None:
    """End the process at once on a signal, while there is nothing to clean up."""
    for number in _signals():
        signal.signal(number, _end)


@contextlib.contextmanager
def signals_stop() -> Iterator[None]:
    """Raise `Stopped` on SIGINT, SIGTERM and SIGHUP, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped: list[Stopped] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(Stopped(128 + number, f"stopped by {signal.Signals(number).name}"))
        raise stopped[-1]

    before = {number: signal.signal(number, stop) for number in _signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if stopped:  # while a callback ran, of which Python ignores exceptions
        raise stopped[0]


def _signals() -> list[int]:
    """Return the signals that end the program, but for those it was started to ignore.

    What the parent has had ignored, as nohup does, stays so; Windows lacks SIGHUP.
    """
    numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    return [n for n in numbers if n is not None and signal.getsignal(n) is not signal.SIG_IGN]


def _end(number: int, _frame: FrameType | None) -> None:
    os.write(2, f"tensorcomp: stopped by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)
