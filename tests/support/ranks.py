"""Functions run on several ranks: processes that talk by gloo over loopback, and always end.

`run` starts a rank by forking a server that has `preloaded` what takes long, so that a case of two
ranks takes some tenths of a second. What is run is a function at the top level of the test's own
module; it is called as ``function(*arguments)`` on every rank, inside an initialised process group.
"""

import faulthandler
import functools
import gc
import multiprocessing
import multiprocessing.context
import multiprocessing.forkserver
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import pytest

_GRACE = 10.0  # seconds that the others get after a rank has failed
_START = 60.0  # seconds that all ranks get to start and meet


@dataclass(frozen=True)
class RankFailure:
    """What became of one rank.

    Parameters
    ----------
    kind : str
        The exception's type; ``"died"`` for a process that ended without a word, ``"stuck"`` for
        one that had to be killed.
    message : str
        The exception's text, or how the process ended.
    trace : str
        The traceback; of all threads where the rank was stuck.
    """

    kind: str
    message: str
    trace: str


class RanksFailed(AssertionError):
    """At least one rank did not return.

    Attributes
    ----------
    failures : dict of int to RankFailure
        By rank.
    seconds : float
        From the first failure to the end of the last rank.
    """

    def __init__(self, failures: Mapping[int, RankFailure], seconds: float) -> None:
        self.failures = dict(failures)
        self.seconds = seconds
        super().__init__(
            "\n".join(
                f"rank {rank}: {failure.kind}: {failure.message}\n{failure.trace}"
                for rank, failure in sorted(failures.items())
            )
        )


@dataclass
class _Rank:
    process: BaseProcess
    answers: Connection
    release: Connection
    stacks: Path
    result: Any = None
    failure: RankFailure | None = None
    began: bool = False
    open: bool = True


def run(
    function: Callable[..., Any],
    *arguments: Any,
    world: int = 2,
    timeout: float = 60.0,
    grace: float = _GRACE,
    backend: Literal["gloo", "nccl"] = "gloo",
    store: Literal["test", "rank 0"] = "test",
    environment: Mapping[str, str] | None = None,
) -> list[Any]:
    """Call a function on every rank and return what the ranks return.

    Parameters
    ----------
    function : callable
        At the top level of a test module: ranks import it by name.
    *arguments : Any
        The same for all ranks; pickled.
    world : int
        Ranks.
    timeout : float
        Seconds that the function may take, counted once all ranks have met, however long a busy
        machine took to start them; then all ranks are killed.
    grace : float
        Seconds that the other ranks get to end after one has failed.
    backend : str
        Of the process group; with ``"nccl"`` rank r uses the CUDA device r.
    store : str
        Who holds the group's key-value store: this process, or rank 0 as under
        ``init_method="env://"``, with which it then ends.
    environment : mapping of str to str
        Set on the ranks before anything else.

    Returns
    -------
    list
        By rank: what it returned, unpickled (tensors are copied).

    Raises
    ------
    RanksFailed
        If a rank raised, died or was stuck; every process has ended by then.
    """
    from torch.distributed import TCPStore

    context = _server()
    meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first_failure = 0.0
    ranks: list[_Rank] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for rank in range(world):
                answers, answer = context.Pipe(duplex=False)
                released, release = context.Pipe(duplex=False)
                stacks = Path(folder, f"rank{rank}")
                task = pickle.dumps((function, arguments))
                settings = dict(environment or {})
                job = _Job(rank, world, meeting.port, backend, store, timeout, settings, task)
                process = context.Process(
                    target=_main, args=(job, answer, released, str(stacks)), daemon=True
                )
                process.start()
                answer.close()
                released.close()
                ranks.append(_Rank(process, answers, release, stacks))
            first_failure = _collect(ranks, timeout, grace)
        finally:
            _end(ranks, timeout)
    failures = {rank: one.failure for rank, one in enumerate(ranks) if one.failure}
    if failures:
        raise RanksFailed(failures, time.monotonic() - first_failure)
    return [one.result for one in ranks]


def failed(function: Callable[..., Any], *arguments: Any, **options: Any) -> RanksFailed:
    """Run what must fail on every rank, and return how; `options` are those of `run`."""
    with pytest.raises(RanksFailed) as caught:
        run(function, *arguments, **options)
    assert sorted(caught.value.failures) == list(range(options.get("world", 2)))
    return caught.value


@functools.cache
def _server() -> multiprocessing.context.ForkServerContext:
    """Start the server that ranks are forked from; it imports `preloaded`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["preloaded"])
    before = os.environ.get("PYTHONPATH")
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = here if before is None else os.pathsep.join([here, before])
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context


@dataclass(frozen=True)
class _Job:
    rank: int
    world: int
    port: int
    backend: str
    store: str
    timeout: float
    environment: dict[str, str]
    task: bytes


def _collect(ranks: Sequence[_Rank], timeout: float, grace: float) -> float:
    """Take every rank's answer until the deadline, and return when the first one failed."""
    deadline = time.monotonic() + _START + timeout
    first_failure = float("inf")
    while pending := [one for one in ranks if one.open]:
        ready = wait([one.answers for one in pending], max(0.0, deadline - time.monotonic()))
        if not ready:
            for one in pending:
                one.failure = RankFailure("stuck", "killed after its time", _stacks(one))
            return min(first_failure, deadline)
        for one in pending:
            if one.answers not in ready:
                continue
            try:
                kind, content = pickle.loads(one.answers.recv_bytes())
            except EOFError:
                one.process.join(5)
                code = one.process.exitcode
                one.failure = RankFailure("died", f"exit code {code}", one.stacks.read_text())
            else:
                if kind == "began":
                    one.began = True
                    if all(r.began and not r.failure for r in ranks):
                        deadline = time.monotonic() + timeout
                    continue
                if kind == "returned":
                    one.result = content
                else:
                    one.failure = RankFailure(*content)
            one.open = False
            if one.failure:
                first_failure = min(first_failure, time.monotonic())
                deadline = min(deadline, first_failure + grace)
    return first_failure


def _end(ranks: Sequence[_Rank], timeout: float) -> None:
    """Let the ranks go together, and kill those that do not end."""
    deadline = time.monotonic() + timeout
    for one in ranks:
        one.release.close()
    for one in ranks:
        if one.failure is None or one.failure.kind != "stuck":
            one.process.join(max(2.0, deadline - time.monotonic()))
        if one.process.is_alive():
            if one.failure is None:
                one.failure = RankFailure("stuck", "returned and did not end", _stacks(one))
            one.process.kill()
            one.process.join()
        one.answers.close()


def _stacks(one: _Rank) -> str:
    """Ask a rank for the stacks of all its threads."""
    if one.process.pid is None or not one.process.is_alive():
        return ""
    os.kill(one.process.pid, signal.SIGUSR1)
    text, deadline = "", time.monotonic() + 5
    while time.monotonic() < deadline:  # until it is there and grows no more
        time.sleep(0.3)
        before, text = text, one.stacks.read_text()
        if text and text == before:
            break
    return text


def _main(job: _Job, answer: Connection, released: Connection, stacks: str) -> None:
    """Be a rank."""
    with Path(stacks).open("w") as file:
        faulthandler.enable(file, all_threads=True)
        faulthandler.register(signal.SIGUSR1, file, all_threads=True, chain=False)
        try:
            content: Any = ("returned", _call(job, answer))
            message = pickle.dumps(content)
        except BaseException as error:
            failure = (type(error).__name__, str(error), traceback.format_exc())
            answer.send_bytes(pickle.dumps(("raised", failure)))
            os._exit(1)  # as a script that fails: connections break at once
        answer.send_bytes(message)
        answer.close()
        # A rank that has nothing more to say still answers others' packets until all are done.
        wait([released])
        from torch import distributed

        if distributed.is_initialized():
            gc.collect()  # the group's threads end with the last reference to it
            distributed.destroy_process_group()
        faulthandler.unregister(signal.SIGUSR1)
        faulthandler.disable()


def _call(job: _Job, answer: Connection) -> Any:
    """Join the group, say so and call the function."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ.update(job.environment)
    import torch
    import torch.distributed.nn.functional  # imported after the group is made, it would keep it
    from torch import distributed

    torch.set_num_threads(1)
    if job.backend == "nccl":
        torch.cuda.set_device(job.rank)
    patience = timedelta(seconds=_START + job.timeout)
    meeting = distributed.TCPStore("127.0.0.1", job.port, is_master=False, timeout=patience)
    distributed.init_process_group(
        job.backend,
        store=_group_store(job, meeting, patience),
        rank=job.rank,
        world_size=job.world,
        timeout=patience,
    )
    function, arguments = pickle.loads(job.task)
    answer.send_bytes(pickle.dumps(("began", None)))
    return function(*arguments)


def _group_store(job: _Job, meeting: Any, patience: timedelta) -> Any:
    """Return the store of the process group."""
    from torch import distributed

    if job.store == "test":
        return distributed.PrefixStore("group", meeting)
    if job.rank == 0:
        own = distributed.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=patience
        )
        meeting.set("port", str(own.port))
        return own
    port = int(meeting.get("port"))
    return distributed.TCPStore("127.0.0.1", port, is_master=False, timeout=patience)
