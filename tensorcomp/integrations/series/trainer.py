"""Keep the checkpoints of transformers' Trainer in a series."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import distributed
from transformers import TrainerCallback

from tensorcomp.errors import CheckpointError
from tensorcomp.series.series import Series


class SeriesCallback(TrainerCallback):  # type: ignore[misc]
    """Keep the checkpoints of a transformers Trainer in a series.

    Each folder ``checkpoint-N`` that the Trainer has written is added, file by file: weights,
    optimizer, scheduler, random states. ``save_total_limit=1`` leaves one of them beside it.
    Of several processes, the first one writes.

    Parameters
    ----------
    path : str or path-like
        The series' folder.
    **keywords
        Those of `tensorcomp.Series`.
    """

    def __init__(self, path: str | os.PathLike[str], **keywords: Any) -> None:
        self.series = Series(path, **keywords)

    def restore(self, folder: str | os.PathLike[str], step: int | None = None) -> str | None:
        """Write a step as ``FOLDER/checkpoint-N``, for ``resume_from_checkpoint``.

        Parameters
        ----------
        folder : str or path-like
            The Trainer's ``output_dir``.
        step : int, optional
            By default the newest.

        Returns
        -------
        str or None
            The path; None where the series has no step yet, with which training begins.
        """
        step = self.series.latest if step is None else step
        if step is None:
            return None
        target = Path(folder, f"checkpoint-{step}")
        if not _has_others() or not distributed.get_rank():
            target.parent.mkdir(parents=True, exist_ok=True)
            # What is there may be what a killed save has left.
            self.series.get(step, out=target, force=True)
        if _has_others():
            distributed.barrier()
        return str(target)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Refuse to train on from before the newest step."""
        latest = self.series.latest
        if latest is not None and latest > state.global_step:
            raise CheckpointError(
                f"has step {latest} already, and training goes on from step {state.global_step}; "
                "give resume_from_checkpoint=callback.restore(…), or another series",
                path=self.series.path,
            )

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Add what the Trainer has saved."""
        if _has_others():
            distributed.barrier()  # until every process has saved its own random state
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            self.series.add_path(folder, state.global_step)


def _has_others() -> bool:
    return distributed.is_available() and distributed.is_initialized()
