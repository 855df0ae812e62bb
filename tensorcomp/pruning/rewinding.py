"""A point of a training run to go back to: model, optimizer and random numbers."""

from __future__ import annotations

import io
import pickle
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from tensorcomp.errors import PruningError


@dataclass(frozen=True)
class Snapshot:
    """The state of a training run, as a torch file that ``weights_only`` loads.

    In it are the model's state dict, its buffers that are not in that, the optimizer's state dict,
    and the global generators of torch (CPU, CUDA), NumPy and ``random``. Bytes, so that going back
    is the same whether the point was kept in memory or read from a file.

    Parameters
    ----------
    data : bytes
    """

    data: bytes

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> Snapshot:
        """Return the state of a model, its optimizer, and the generators.

        Raises
        ------
        PruningError
            If a state dict holds what such a file cannot.
        """
        weights = model.state_dict()
        state = {
            "model": weights,
            "buffers": {
                name: buffer for name, buffer in model.named_buffers() if name not in weights
            },
            "optimizer": optimizer.state_dict(),
            "generators": generators(),
        }
        file = io.BytesIO()
        torch.save(state, file)
        snapshot = cls(file.getvalue())
        snapshot._load()
        return snapshot

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Set a model, its optimizer and the generators back to that state.

        Parameters
        ----------
        model, optimizer
            Made as those of the snapshot were; on any device.

        Raises
        ------
        PruningError
            If they are others.
        """
        state = self._load()
        devices, needed = torch.cuda.device_count(), len(state["generators"]["cuda"])
        if needed > devices:
            raise PruningError(
                f"the rewind point is of a machine with {needed} CUDA devices; here are {devices}"
            )
        try:
            model.load_state_dict(state["model"])
            own = dict(model.named_buffers())
            for name, buffer in state["buffers"].items():
                own[name].copy_(buffer)
            optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            what = str(error).splitlines()[0]
            raise PruningError(
                f"the model or optimizer is not that of the rewind point: {what}"
            ) from error
        set_generators(state["generators"])

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the model's state dict, on the CPU."""
        return dict(self._load()["model"])

    def _load(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = torch.load(
                io.BytesIO(self.data), map_location="cpu", weights_only=True
            )
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            what = str(error).splitlines()[0]
            raise PruningError(
                "the rewind point is damaged, or the state of model or optimizer holds more than "
                f"tensors and plain values: {what}"
            ) from error
        return state


def seed_generators(seed: int) -> None:
    """Start the global generators of torch, NumPy and ``random`` from a seed."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the global one is what loaders use
    random.seed(seed)


def generators() -> dict[str, Any]:
    """Return the state of the global generators, as tensors and plain values."""
    own: dict[str, Any] = dict(np.random.get_state(legacy=False))  # noqa: NPY002
    own["state"] = {**own["state"], "key": torch.from_numpy(own["state"]["key"].astype(np.int64))}
    # Asking for CUDA's state would set CUDA up.
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if in_use else [],
        "numpy": own,
        "random": random.getstate(),
    }


def set_generators(state: dict[str, Any]) -> None:
    """Set the global generators to what `generators` returned."""
    own = state["numpy"]
    key = own["state"]["key"].numpy().astype(np.uint32)
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    np.random.set_state({**own, "state": {**own["state"], "key": key}})  # noqa: NPY002
    random.setstate(state["random"])
