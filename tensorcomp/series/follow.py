"""Follow a series that another process writes, with a model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tensorcomp.errors import CheckpointError
from tensorcomp.series.journal import BASE, load_journal
from tensorcomp.series.state import check_model, copy_into, step_tensors


class Follower:
    """Updates of a model by the newest step of a series.

    The whole chain of a step is found and decoded to new memory before the model is touched: where
    anything fails, the model is as it was.

    Parameters
    ----------
    folder : Path
    model : torch.nn.Module or mapping of str to torch.Tensor

    Attributes
    ----------
    step : int or None
        The step that the model has.
    """

    def __init__(self, folder: Path, model: Any) -> None:
        self._folder, self._model = folder, model
        self.step: int | None = None

    def update(self) -> int | None:
        """Copy the newest step into the model if it is new; return which.

        Raises
        ------
        CheckpointError, FormatError, VerificationError
            If the chain is not whole, or damaged, or the model another. It is as it was then.
        """
        journal = load_journal(self._folder)
        newest = next((one for one in reversed(journal.steps) if one.step != BASE), None)
        if newest is None or newest.step == self.step:
            return None
        tensors = step_tensors(self._folder, journal, newest, only_weights=True)[0]
        check_model(self._model, tensors)
        copy_into(self._model, tensors)
        self.step = newest.step
        return newest.step

    def wait(self, timeout: float, every: float = 0.5) -> int:
        """Wait until there is a new step; copy it and return which.

        Raises `CheckpointError` if there is none within `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while (step := self.update()) is None:
            if time.monotonic() > end:
                raise CheckpointError(f"has no new step after {timeout:g} s", path=self._folder)
            time.sleep(every)
        return step
