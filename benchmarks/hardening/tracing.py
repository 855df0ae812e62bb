"""Run work in a fork, under strace where system calls are to be listed, to fail or to kill."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tensorcomp_cli.exits import end_on_bus_errors, explain, say, signals_stop

CHANGES = (
    *("openat", "write", "pwrite64", "writev", "pwritev", "ftruncate", "fallocate", "fsync"),
    *("fdatasync", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat"),
    *("rmdir", "link", "linkat", "symlink", "copy_file_range", "sendfile", "chmod", "fchmod"),
)
READS = ("openat", "read", "pread64", "readv", "mmap", "newfstatat", "getdents64")
LIMIT = 120  # seconds of a run
_LINE = re.compile(r"(?P<thread>\d+) +(?P<name>\w+)\((?P<arguments>.*)")
_OPENED_TO_WRITE = re.compile(r"O_(WRONLY|RDWR|CREAT)")


class Ended(NamedTuple):
    """How a run ended: its status, negative of a signal, what it printed on stderr, its time."""

    status: int
    line: str
    seconds: float


class Call(NamedTuple):
    """A system call of a run: of those with this name in one thread, the one of this number."""

    name: str
    number: int


def available() -> bool:
    """Return whether strace is installed."""
    return shutil.which("strace") is not None


def run(
    work: Callable[[], object],
    *strace: str,
    kill_after: float = 0.0,
    meanwhile: Callable[[], object] | None = None,
) -> Ended:
    """Run work in a fork; return how it ended, in the words of the command line.

    Parameters
    ----------
    work : callable
    *strace : str
        Arguments of strace; without any the run is not traced.
    kill_after : float
        Seconds until it is killed, if any.
    meanwhile : callable, optional
        What is done while it runs.
    """
    said, saying = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(LIMIT)
        os.kill(os.getpid(), signal.SIGSTOP)
        sys.stderr = os.fdopen(os.dup2(saying, 2), "w", errors="surrogateescape")
        warnings.simplefilter("ignore")
        status, line = 0, ""
        try:
            end_on_bus_errors()
            with signals_stop():
                work()
        except BaseException as error:
            status, line = explain(error)
        say(line)
        os._exit(status)
    os.close(saying)
    os.waitpid(child, os.WUNTRACED)
    tracer = _attached(child, strace) if strace else None
    begun = time.perf_counter()
    os.kill(child, signal.SIGCONT)
    if meanwhile is not None:
        meanwhile()
    if kill_after:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    seconds = time.perf_counter() - begun
    if tracer is not None:
        tracer.wait()
    with os.fdopen(said, errors="surrogateescape") as file:
        return Ended(status, file.read().strip(), seconds)


def _attached(child: int, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start strace on a process that is stopped; return once it traces it."""
    tracer = subprocess.Popen(["strace", "-f", "-qq", *arguments, "-p", str(child)])
    while "TracerPid:\t0\n" in Path(f"/proc/{child}/status").read_text():
        if tracer.poll() is not None:
            os.kill(child, signal.SIGKILL)
            raise RuntimeError("strace ended; it needs the right to trace")
        time.sleep(1e-3)
    return tracer


def calls(work: Callable[[], object], folder: Path, names: Sequence[str]) -> list[Call]:
    """Run work once; return its system calls of these names on files in a folder.

    Raises
    ------
    RuntimeError
        If it does not end well.
    """
    with tempfile.NamedTemporaryFile("r") as log:
        ended = run(work, "-y", "-o", log.name, "-e", f"trace={_known(names)}")
        if ended.status:
            raise RuntimeError(f"the sound run ended with {ended}")
        return list(_listed(log, folder, writing=names is CHANGES))


def _listed(lines: Iterator[str], folder: Path, *, writing: bool) -> Iterator[Call]:
    counts: Counter[tuple[str, str]] = Counter()
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        name, arguments = found["name"], found["arguments"]
        counts[found["thread"], name] += 1
        ours = str(folder) in arguments and (
            name != "openat" or not writing or _OPENED_TO_WRITE.search(arguments)
        )
        if ours:
            yield Call(name, counts[found["thread"], name])


def inject(call: Call, what: str) -> tuple[str, ...]:
    """Return arguments of strace by which a call fails (``error=EIO``) or kills (``signal=KILL``).

    One that kills does so before anything is done.
    """
    rule = f"inject={call.name}:{what}:when={call.number}"
    return "-o", "/dev/null", "-e", f"trace={call.name}", "-e", rule


def _known(names: Sequence[str]) -> str:
    return ",".join(f"?{name}" for name in names)  # some machines lack the older ones
