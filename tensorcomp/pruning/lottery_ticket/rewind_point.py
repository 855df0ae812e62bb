"""Save and restore a point of a training run."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tensorcomp.calibration.preserve_state import generators, set_generators
from tensorcomp.errors import PARSING_ERRORS, PruningError


@dataclass(frozen=True)
class RewindPoint:
    """The state of a training run, as a torch file that ``weights_only`` loads.

    In it are the model's state dict, its buffers that are not in that, the optimizer's state dict,
    and the global generators of torch (CPU, CUDA), NumPy and ``random``. Bytes, so that going back
    is the same whether the point was kept in memory or read from a file.
    """

    data: bytes

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> RewindPoint:
        """Return the state of a model, its optimizer, and the generators."""
        weights = model.state_dict()
        buffers = {name: one for name, one in model.named_buffers() if name not in weights}
        state = {"model": weights, "buffers": buffers, "optimizer": optimizer.state_dict()}
        state["generators"] = generators()
        file = io.BytesIO()
        torch.save(state, file)
        point = cls(file.getvalue())
        point._load()
        return point

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Set a model, its optimizer and the generators back to that state.

        Parameters
        ----------
        model, optimizer
            Made as those of the point were; on any device.

        Raises
        ------
        PruningError
            If they are others.
        """
        state = self._load()
        try:
            devices, needed = torch.cuda.device_count(), len(state["generators"]["cuda"])
            if needed > devices:
                raise PruningError(
                    f"the rewind point needs {needed} CUDA devices; here are {devices}"
                )
            model.load_state_dict(state["model"])
            own = dict(model.named_buffers())
            for name, buffer in state["buffers"].items():
                own[name].copy_(buffer)
            optimizer.load_state_dict(state["optimizer"])
            set_generators(state["generators"])
        except PARSING_ERRORS as error:
            raise PruningError(
                f"the model or optimizer is not that of the rewind point: {_first_line(error)}"
            ) from error

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the model's state dict, on the CPU."""
        return dict(self._load()["model"])

    def _load(self) -> dict[str, Any]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of unusual pickles
                state: dict[str, Any] = torch.load(
                    io.BytesIO(self.data), map_location="cpu", weights_only=True
                )
        except Exception as error:  # a damaged pickle can raise anything
            raise PruningError(
                "the rewind point is damaged, or the state of model or optimizer holds more than "
                f"tensors and plain values: {_first_line(error)}"
            ) from error
        return state


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
