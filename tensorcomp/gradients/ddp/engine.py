"""Run the reduction of buckets on one thread, in their order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tensorcomp.errors import GradientError
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.failure_broadcast import FailureBroadcast
from tensorcomp.gradients.ddp.roll_call import LostRanksError

_PATIENCE = 1.0  # seconds that a rank which lost its peer waits to hear why


@dataclass(eq=False)
class Job:
    """Hold a bucket that waits for its mean.

    The buffer (n,) holds the gradients of the parameters, in order; the mean is written over them,
    and the future then gets it. The last bucket of a step ends it.
    """

    index: int
    last: bool
    buffer: torch.Tensor
    parameters: list[torch.Tensor]
    future: torch.futures.Future[torch.Tensor]


class Engine:
    """Run jobs in order, so that all ranks issue collectives in the same order.

    What fails on one rank ends the futures of all of them, with its message.

    Parameters
    ----------
    run : callable
        Does a job; it may raise.
    comm : Communicator
        Of a group that nobody else uses.

    Attributes
    ----------
    failure : str or None
        What ended this engine.
    """

    def __init__(self, run: Callable[[Job], None], comm: Communicator) -> None:
        self._run = run
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._pending: set[Job] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.failure: str | None = None
        self._roll_call = comm.roll_call
        self._failures = FailureBroadcast(
            comm.roll_call, lambda: self.waiting, lambda text: self.fail(text, heard=True)
        )

    @property
    def waiting(self) -> bool:
        """Return whether jobs are not done."""
        return bool(self._pending)

    def submit(self, job: Job, *, now: bool) -> None:
        """Do a job on the caller's thread, or some time later on the engine's."""
        self.raise_failure()
        with self._lock:
            self._pending.add(job)
        if now:
            self._do(job)
            self.raise_failure()
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="tensorcomp gradients", daemon=True
            )
            self._thread.start()
        self._jobs.put(job)

    def raise_failure(self) -> None:
        """Raise what ended this engine, if anything did."""
        if self.failure is not None:
            raise GradientError(self.failure)

    def fail(self, message: str, *, heard: bool = False) -> None:
        """End all that is pending; send what failed to all ranks unless it was heard."""
        with self._lock:
            if self.failure is None:
                self.failure = message
            pending, self._pending = self._pending, set()
        if not heard:
            self._roll_call.post(message)
        for job in pending:
            job.future.set_exception(GradientError(self.failure))  # type: ignore[arg-type]

    def heard(self) -> str | None:
        """Return what failed on another rank, or None; wait a little for it."""
        return self._roll_call.failure(_PATIENCE)

    def close(self) -> None:
        """Do what is pending, and end the threads."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout=None if self.failure is None else _PATIENCE)
            self._thread = None
        self._failures.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(job)

    def _do(self, job: Job) -> None:
        if self.failure is None:
            try:
                self._run(job)
            except LostRanksError as error:
                # which is what another rank's failure looks like from here
                self.fail(self._roll_call.failure() or str(error))
            except GradientError as error:
                self.fail(str(error))
            except Exception as error:
                self.fail(self.heard() or f"{type(error).__name__}: {error}")
        with self._lock:
            done = job in self._pending
            self._pending.discard(job)
        if done:
            job.future.set_result(job.buffer)
