"""Broadcast a rank's failure through the process group's store."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from tensorcomp.gradients.ddp.communicator import Communicator

_KEY = "tensorcomp/failure"
_HEARD = "tensorcomp/heard"  # how many ranks have read it
_POLL = 0.25  # seconds
_STAY = 2.0  # seconds that a rank which failed waits for the others to hear why


class FailureBroadcast:
    """Send this rank's failure to the others, and receive theirs.

    Parameters
    ----------
    comm : Communicator
        Of a private group: its store holds nothing else.
    waiting : callable
        Returns whether this rank waits for others; the store is asked only then.
    heard : callable
        Called once, from a thread of its own, with the message of another rank's failure.
    """

    def __init__(
        self, comm: Communicator, waiting: Callable[[], bool], heard: Callable[[str], None]
    ) -> None:
        self._store = _store(comm.group)
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
        if self.message() is None:
            with contextlib.suppress(Exception):  # the store's host may be the rank that died
                self._store.set(_KEY, json.dumps([self._comm.rank, message]))
                self._posted = True

    def message(self, wait: float = 0.0) -> str | None:
        """Return what failed on another rank, waiting some seconds for it."""
        deadline = time.monotonic() + wait
        with contextlib.suppress(Exception):  # the store is gone with its host, which was last
            while not self._store.check([_KEY]):
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.05)
            rank, text = json.loads(self._store.get(_KEY))
            if rank != self._comm.rank:
                if not self._answered:
                    self._answered = True
                    with contextlib.suppress(Exception):
                        self._store.add(_HEARD, 1)
                return f"rank {rank} failed: {text}"
        return None

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
                if self._store.add(_HEARD, 0) >= self._comm.world - 1:
                    return
                time.sleep(0.02)

    def _watch(self) -> None:
        while not self._stop.wait(_POLL):
            if self._waiting():
                message = self.message()
                if message is not None:
                    self._heard(message)
                    return


def _store(group: dist.ProcessGroup) -> Any:
    """Return the store of a group."""
    if hasattr(group, "get_group_store"):
        return group.get_group_store()
    from torch.distributed import distributed_c10d  # torch 2.4 and 2.5

    return distributed_c10d._world.pg_map[group][1]
