"""End the program on signals and errors, with a status and one line."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tensorcomp._formatting import escaped
from tensorcomp.errors import TensorcompError, VerificationError

CHECK_FAILED = 1
BAD_USAGE = 2  # or an input that cannot be read
READER_GONE = 141  # what the shell reports of a program that SIGPIPE ended


class Stopped(BaseException):
    """A request to end the program; not an `Exception`, so only clean-up sees it."""

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
    """Raise `Stopped` on SIGINT, SIGTERM and SIGHUP, for clean-up to run."""
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


@functools.cache  # since the system keeps the address of what it calls
def end_on_bus_errors() -> Any:
    """End with one line where a mapped file is cut short while it is read.

    Python's own handlers run after the access that raised the signal, which never ends.
    """
    if sys.platform != "linux":
        return None
    import ctypes

    def end(_number: int) -> None:
        say(f"{_cut_short()}: was cut short, or its disk failed, while it was read; run again")
        os._exit(BAD_USAGE)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_int)(end)
    ctypes.CDLL(None).signal(signal.SIGBUS, callback)
    return callback


def _cut_short() -> str:
    """Return the path of a mapped file that is shorter than its mapping."""
    page = os.sysconf("SC_PAGESIZE")
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").split("\n"):
        with contextlib.suppress(OSError, ValueError):  # of mappings without a file
            addresses, _, offset, _, _, path = line.split(maxsplit=5)
            begin, end = (int(address, 16) for address in addresses.split("-"))
            is_shorter = Path(path).stat().st_size <= int(offset, 16) + end - begin - page
            if is_shorter and ".so" not in path:  # libraries' data is longer than their files
                return path
    return "an input"


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit status for an error, and the line to print, if any."""
    import click  # late: what is above takes no time to import, and handles signals from then on

    if isinstance(error, Stopped):
        return error.status, error.line
    if isinstance(error, SystemExit):  # of click's shell completion
        return error.code if isinstance(error.code, int) else 0, ""
    if isinstance(error, TensorcompError):
        return CHECK_FAILED if isinstance(error, VerificationError) else BAD_USAGE, str(error)
    if isinstance(error, click.UsageError):
        command = "tensorcomp" if error.ctx is None else error.ctx.command_path
        return BAD_USAGE, f"{error.format_message().rstrip('.')}; see {command} --help"
    if isinstance(error, MemoryError):
        return BAD_USAGE, "not enough memory; fewer --threads need less"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return BAD_USAGE, f"{place}{error.strerror or error}"
    return BAD_USAGE, (
        f"unexpected {type(error).__name__}: {error}; please report this, with what "
        "`tensorcomp --debug …` prints"
    )


def say(line: str) -> None:
    """Print a line on stderr, whatever a file's name brings into it."""
    if sys.stderr is not None and line:  # None where the shell has closed it
        with contextlib.suppress(OSError):
            print(f"tensorcomp: {escaped(' '.join(line.split()))}", file=sys.stderr, flush=True)


def _signals() -> list[int]:
    """Return the signals that end the program, unless started to ignore them.

    What the parent has had ignored, as nohup does, stays so; Windows lacks SIGHUP.
    """
    numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    return [n for n in numbers if n is not None and signal.getsignal(n) is not signal.SIG_IGN]


def _end(number: int, _frame: FrameType | None) -> None:
    os.write(2, f"tensorcomp: stopped by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)
