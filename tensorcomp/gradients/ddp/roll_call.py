"""Find out which ranks are lost where a collective fails.

What torch says of it names an address, or nothing, and on most ranks that of a rank which merely
failed earlier.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from tensorcomp.errors import GradientError

_FAILURE = "tensorcomp/failure"  # what failed first, and on which rank
_HEARD = "tensorcomp/heard"  # how many ranks have read it
_CALL = "tensorcomp/roll call"
_HERE = "tensorcomp/here/"  # and the rank
_PATIENCE = 1.5  # seconds that ranks get to answer
_POLL = 0.05
_MAX_TEXT = 200  # characters of torch's own message


class LostRanksError(GradientError):
    """Report that ranks did not do their part of a collective."""


class RollCall:
    """Call all ranks, and answer, by the process group's store.

    Parameters
    ----------
    store : torch.distributed.Store
    rank : int
    world : int

    Attributes
    ----------
    silent : list of int
        The ranks that did not answer the last call.
    """

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self.store = store
        self._rank = rank
        self._world = world
        self._answered = self._posted = self._heard = False
        self.silent: list[int] = []

    def answer(self) -> None:
        """Say that this rank is there, if any rank asks."""
        if not self._answered and self.store.check([_CALL]):
            self._answered = True
            self.store.set(f"{_HERE}{self._rank}", "")

    def missing(self, error: str) -> str:
        """Return a message that names the ranks which do not answer, after an error.

        It comes sooner if a rank has said why it failed.
        """
        text = " ".join(error.split())[:_MAX_TEXT]
        self.silent = [rank for rank in range(self._world) if rank != self._rank]
        try:
            self.store.set(_CALL, str(self._rank))
            self.answer()
            deadline = time.monotonic() + _PATIENCE
            while self.silent and time.monotonic() < deadline and not self.store.check([_FAILURE]):
                self.silent = [r for r in self.silent if not self.store.check([f"{_HERE}{r}"])]
                time.sleep(_POLL)
        except Exception:  # of several types, by version
            return (
                "no answer from the process that holds the group's store (rank 0, or who started "
                f"the ranks): killed, or cut off from the network ({text})"
            )
        if not self.silent:
            return text
        names = f"rank{'s' * (len(self.silent) > 1)} {', '.join(map(str, self.silent))}"
        return f"no answer from {names}: killed, stopped, or cut off from the network ({text})"

    def post(self, text: str) -> None:
        """Say why this rank failed, unless another one did before."""
        with contextlib.suppress(Exception):  # the store's host may be the rank that died
            if self.failure() is None:
                self.store.set(_FAILURE, json.dumps([self._rank, text]))
                self._posted = True

    def is_heard(self) -> bool:
        """Return whether all ranks that answer have read what this one posted."""
        others = self._world - 1 - len(self.silent)
        return not self._posted or self.store.add(_HEARD, 0) >= others

    def failure(self, wait: float = 0.0) -> str | None:
        """Return what failed on another rank, waiting some seconds for it."""
        deadline, found = time.monotonic() + wait, None
        with contextlib.suppress(Exception):  # the store is gone with its host, which was last
            while not self.store.check([_FAILURE]):
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_POLL)
            rank, text = json.loads(self.store.get(_FAILURE))
            if rank != self._rank:
                found = f"rank {rank} failed: {text}"
                if not self._heard:
                    self._heard = True
                    self.store.add(_HEARD, 1)
        return found
