"""How the program ends: the status, and one line on stderr that says why."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import click

from tensorcomp._formatting import escaped
from tensorcomp.errors import TensorcompError, VerificationError

from .entry import signals

CHECK_FAILED = 1
BAD_USAGE = 2  # or an input that cannot be read
READER_GONE = 141  # what the shell reports of a program that SIGPIPE ended


class Stopped(BaseException):
    """Someone wants the program to end; no `Exception`, so that nothing but clean-up handles it.

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

    before = {number: signal.signal(number, stop) for number in signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if stopped:  # while a callback ran, of which Python ignores exceptions
        raise stopped[0]


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit status for an error, and the line to print; it may be empty.

    Parameters
    ----------
    error : BaseException
        Whatever ended a verb.
    """
    if isinstance(error, Stopped):
        return error.status, error.line
    if isinstance(error, VerificationError):
        return CHECK_FAILED, str(error)
    if isinstance(error, TensorcompError):
        return BAD_USAGE, str(error)
    if isinstance(error, click.UsageError):
        return BAD_USAGE, _usage_line(error)
    if isinstance(error, MemoryError):
        return BAD_USAGE, "not enough memory; fewer --threads need less"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return BAD_USAGE, f"{place}{error.strerror or error}"
    return BAD_USAGE, (
        f"unexpected {type(error).__name__}: {error}; please report this, with what "
        "`tensorcomp --debug …` prints"
    )


def _usage_line(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx is not None else "tensorcomp"
    return f"{error.format_message().rstrip('.')}; see {command} --help"


def say(line: str) -> None:
    """Print a line on stderr, whatever a file's name brings into it."""
    if sys.stderr is not None and line:  # None where the shell has closed it
        with contextlib.suppress(OSError):
            print(f"tensorcomp: {escaped(' '.join(line.split()))}", file=sys.stderr, flush=True)
