"""Broadcast a rank's failure through the process group's store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from tensorcomp.gradients.ddp.roll_call import RollCall

_POLL = 0.25  # seconds between two looks into the store
_SLOW = 4  # of them, to one while this rank waits for nobody
_STAY = 2.0  # seconds that a rank which failed waits for the others to hear why


class FailureBroadcast:
    """Send this rank's failure to the others, and receive theirs.

    Parameters
    ----------
    roll_call : RollCall
        Of a private group: its store holds nothing else.
    waiting : callable
        Returns whether this rank waits for others; failures are looked for only then.
    heard : callable
        Called once, from a thread of its own, with the message of another rank's failure.
    """

    def __init__(
        self, roll_call: RollCall, waiting: Callable[[], bool], heard: Callable[[str], None]
    ) -> None:
        self._roll_call = roll_call
        self._waiting = waiting
        self._heard = heard
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tensorcomp failures", daemon=True)
        self._thread.start()

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
            while not self._roll_call.is_heard() and time.monotonic() < deadline:
                time.sleep(0.02)

    def _watch(self) -> None:
        round_ = 0
        while not self._stop.wait(_POLL):
            round_ += 1
            waiting = self._waiting()
            if waiting or round_ % _SLOW == 0:
                with contextlib.suppress(Exception):  # the store is gone with its host
                    self._roll_call.answer()
            if waiting and (message := self._roll_call.failure()) is not None:
                self._heard(message)
                return
