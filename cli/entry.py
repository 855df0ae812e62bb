"""Start the console script, with as few imports as its arguments need."""

from __future__ import annotations

import os
import sys

import tensorcomp


def run() -> None:
    """Run the command line as the process's own job, and end the process."""
    if sys.argv[1:] == ["--version"]:
        print(f"tensorcomp {tensorcomp.__version__}")
        return
    from .exits import end_on_signals

    end_on_signals()
    # Threads of NumPy's OpenBLAS spin while they wait for work; ours are at work already.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from .main import run as run_verbs  # imports click, and has its own handlers

    run_verbs()
