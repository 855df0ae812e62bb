"""Processes with links of their own on one machine, each in a network namespace, all with an end.

A shell script makes the namespaces and holds them: it deletes them when its input closes, which it
does when this process ends, in whatever way. Ranks are asked in lines of JSON, and end likewise.
"""

import json
import os
import queue
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("netns_ranks.sh")
UNSHAPED = "none"
RATES = {"100mbit": 100e6, "1gbit": 1e9, UNSHAPED: None}  # bits a second
PORT = 29511  # of the first rank, in its namespace, where nobody else listens

_HOLDER_SECONDS = 20.0
_GRACE_SECONDS = 5.0
_MOST_LINES = 12  # of a rank's errors in a message


class LinkError(Exception):
    """Namespaces or links cannot be made here, or a rank did not do what it was asked."""


@dataclass(frozen=True)
class Namespaces:
    """Network namespaces, one a rank, as long as their holder lives."""

    prefix: str
    world: int
    holder: "subprocess.Popen[str]"

    def shape(self, rate: str) -> None:
        """Give every link another rate, in both directions."""
        assert self.holder.stdin is not None
        with suppress(BrokenPipeError):
            self.holder.stdin.write(f"{rate}\n")
            self.holder.stdin.flush()
        _await_ready(self.holder)

    def command(self, rank: int, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs another one in a rank's namespace."""
        return ["ip", "netns", "exec", f"{self.prefix}{rank}", *arguments]


def check_rate(rate: str) -> None:
    """Require what `tc` takes as a rate, or none."""
    if rate != UNSHAPED and not re.fullmatch(r"[0-9]+(\.[0-9]+)?[kmg]bit", rate):
        raise LinkError(f"a rate is such as 100mbit, 1gbit or {UNSHAPED}; got {rate!r}")


@contextmanager
def namespaces(world: int, rate: str = UNSHAPED) -> Iterator[Namespaces]:
    """Make namespaces for so many ranks, and delete them on leaving.

    Raises
    ------
    LinkError
        If that is not possible here; the message is the reason.
    """
    check_rate(rate)
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise LinkError(f"network namespaces need the program {tool}")
    prefix = f"g{os.getpid() % 0x100000:x}"
    holder = subprocess.Popen(
        ["bash", str(SCRIPT), "hold", prefix, str(world), rate],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C ends this process; the holder sees it by its input
    )
    try:
        _await_ready(holder)
        yield Namespaces(prefix, world, holder)
    finally:
        _close(holder)


def _await_ready(holder: "subprocess.Popen[str]") -> None:
    assert holder.stdout is not None
    ready, _, _ = select.select([holder.stdout], [], [], _HOLDER_SECONDS)
    if not ready or holder.stdout.readline().strip() != "ready":
        reason = " ".join(_close(holder).split()) or "no answer"
        raise LinkError(f"no network namespaces with links of their own: {reason}")


def _close(holder: "subprocess.Popen[str]") -> str:
    """End the holder by its input, so that it deletes what it made; return its complaints."""
    if holder.stdin is None or holder.stdin.closed:
        return ""
    try:
        return holder.communicate(timeout=_HOLDER_SECONDS)[1]
    except subprocess.TimeoutExpired:
        holder.terminate()
        return holder.communicate(timeout=_GRACE_SECONDS)[1]


def why_not() -> str | None:
    """Return why there can be no namespaces here, or None."""
    try:
        with namespaces(1, "1gbit"):
            return None
    except LinkError as error:
        return str(error)


@dataclass
class Ranks:
    """Processes that do what they are asked, all the same at a time."""

    processes: "list[subprocess.Popen[str]]"
    errors: list[Path]
    answers: "queue.Queue[tuple[int, str]]" = field(default_factory=queue.Queue)

    def listen(self) -> None:
        """Read what the processes write, from now on."""
        for rank, process in enumerate(self.processes):
            assert process.stdout is not None
            listener = threading.Thread(
                target=self._listen, args=(rank, process.stdout), daemon=True
            )
            listener.start()

    def _listen(self, rank: int, stream: IO[str]) -> None:
        with suppress(ValueError):  # it was closed
            for line in stream:
                self.answers.put((rank, line))
        self.answers.put((rank, ""))

    def ask(self, seconds: float, **what: Any) -> list[dict[str, Any]]:
        """Have all ranks do something, and return their answers.

        Raises
        ------
        LinkError
            If one fails, dies, or takes longer than so many seconds.
        """
        for process in self.processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(what) + "\n")
                process.stdin.flush()
        deadline = time.monotonic() + seconds
        found: dict[int, dict[str, Any]] = {}
        while len(found) < len(self.processes):
            try:
                rank, line = self.answers.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                silent = sorted(set(range(len(self.processes))) - found.keys())
                message = f"no answer from rank {silent} within {seconds:.0f} s"
                raise LinkError(message) from None
            if not line:
                raise LinkError(f"rank {rank} died: {self._last_words(rank)}")
            answer = json.loads(line)
            if "error" in answer:
                raise LinkError(f"rank {rank}: {answer['error']}")
            found[rank] = answer
        return [found[rank] for rank in sorted(found)]

    def _last_words(self, rank: int) -> str:
        lines = self.errors[rank].read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-_MOST_LINES:]) or "without a word"

    def kill(self) -> None:
        """End all processes, and what they started."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(_GRACE_SECONDS)
            for stream in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):
                    if stream is not None:
                        stream.close()


@contextmanager
def ranks(where: Namespaces, module: str, seconds: float) -> Iterator[Ranks]:
    """Start a module in every namespace, wait until all are joined, and end all on leaving.

    Parameters
    ----------
    where : Namespaces
    module : str
        To be run; it reads lines of JSON, answers each by one, and ends with its input.
    seconds : float
        Within which all must have answered to their greeting.
    """
    with TemporaryDirectory() as folder:
        errors = [Path(folder) / f"rank{rank}.txt" for rank in range(where.world)]
        started: list[subprocess.Popen[str]] = []
        group = Ranks(started, errors)
        try:
            for rank, path in enumerate(errors):
                started.append(_start(where, rank, module, path))
            group.listen()
            group.ask(seconds, do="join")
            yield group
        finally:
            group.kill()


def _start(where: Namespaces, rank: int, module: str, errors: Path) -> "subprocess.Popen[str]":
    environment = {
        "GLOO_SOCKET_IFNAME": f"tcv{rank}",
        "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": str(PORT),
        "RANK": str(rank),
        "WORLD_SIZE": str(where.world),
        "OMP_NUM_THREADS": "1",
    }
    with errors.open("w") as sink:
        return subprocess.Popen(
            where.command(rank, [sys.executable, "-m", module]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
