"""Broadcast a rank's failure through the process group's store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from tensorcomp.gradients.ddp.communicator import Communicator

_HEARD = "tensorcomp/heard"  # how many ranks have read it
_POLL = 0.25  # seconds between two looks into the store
_SLOW = 4  # of them, to one while this rank waits for nobody
_STAY = 2.0  # seconds that a rank which failed waits for the others to hear why


class FailureBroadcast:
    """Send this rank's failure to the others, and receive theirs.

    Parameters
    ----------
    comm : Communicator
        Of a private group: its store holds nothing else.
    waiting : callable
        Returns whether this rank waits for others; failures are looked for only then.
    heard : callable
        Called once, from a thread of its own, with the message of another rank's failure.
    """

    def __init__(
        self, comm: Communicator, waiting: Callable[[], bool], heard: Callable[[str], None]
    ) -> None:
        self._store = comm.roll_call.store
        self._comm = comm
        self._waiting = waiting
        self._heard = heard
        self._posted = False
        self._answered = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tensorcomp failures", daemon=True)
        self._thread.start()

    def post(self, message: str) -> None:
        """Send this rank's failure to the others, unless another one was first."""
        self._posted |= self._comm.roll_call.post(message)

    def message(self, wait: float = 0.0) -> str | None:
        """Return what failed on another rank, waiting some seconds for it."""
        found = self._comm.roll_call.failure(wait)
        if found is not None and not self._answered:
            self._answered = True
            with contextlib.suppress(Exception):  # the store is gone with its host, which was last
                self._store.add(_HEARD, 1)
        return found

    def close(self) -> None:
        """Stop listening; after a failure here, wait until others have read it.

        The store may be this process's own, and end with it.
        """
        self._stop.set()
        deadline = time.monotonic() + _STAY
        if self._thread is not threading.current_thread():
            # A thread that is inside the store when the interpreter ends aborts the process.
            self._thread.join(timeout=_STAY)
        with contextlib.suppress(Exception):
            while self._posted and time.monotonic() < deadline:
                lost = len(self._comm.roll_call.silent)
                if self._store.add(_HEARD, 0) >= self._comm.world - 1 - lost:
                    return
                time.sleep(0.02)

    def _watch(self) -> None:
        round_ = 0
        while not self._stop.wait(_POLL):
            round_ += 1
            waiting = self._waiting()
            if waiting or round_ % _SLOW == 0:
                with contextlib.suppress(Exception):  # the store is gone with its host
                    self._comm.roll_call.answer()
            if waiting:
                message = self.message()
                if message is not None:
                    self._heard(message)
                    return
