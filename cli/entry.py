"""Where the console script begins: what needs no verb is done before anything else is imported."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

import tensorcomp


def signals() -> list[int]:
    """Return the signals that end the program, but for those it was started to ignore.

    What the parent has had ignored, as nohup does, stays so; Windows lacks SIGHUP.
    """
    numbers = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    return [n for n in numbers if n is not None and signal.getsignal(n) is not signal.SIG_IGN]


def run() -> None:
    """Run the command line as the process's own job, and end the process."""
    if sys.argv[1:] == ["--version"]:
        print(f"tensorcomp {tensorcomp.__version__}")
        return
    # A signal ends the program at once while there is nothing to clean up.
    for number in signals():
        signal.signal(number, _end)
    # Threads of NumPy's OpenBLAS spin while they wait for work; ours are at work already.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from .main import run as run_verbs  # imports click, and has its own handlers

    run_verbs()


def _end(number: int, _frame: FrameType | None) -> None:
    os.write(2, f"tensorcomp: stopped by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)
