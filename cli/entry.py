"""Where the console script begins: a signal ends it at once while there is nothing to clean up."""

from __future__ import annotations

import os
import signal
from types import FrameType


def run() -> None:
    """Run the command line as the process's own job, and end the process."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows lacks one
        # What the parent has had ignored, as nohup does, stays so.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    from .main import run as run_verbs  # takes a third of a second, and has its own handlers

    run_verbs()


def _end(number: int, _frame: FrameType | None) -> None:
    os.write(2, f"tensorcomp: stopped by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)
