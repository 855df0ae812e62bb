"""The global generators of random numbers: torch's, NumPy's and that of ``random``."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_generators(seed: int) -> None:
    """Start the global generators of torch, NumPy and ``random`` from a seed."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the global one is what loaders use
    random.seed(seed)


def generators() -> dict[str, Any]:
    """Return the state of the global generators, as tensors and plain values."""
    own: dict[str, Any] = dict(np.random.get_state(legacy=False))  # noqa: NPY002
    if "key" in own["state"]:  # of the usual generator, an array
        key = torch.from_numpy(own["state"]["key"].astype(np.int64))
        own["state"] = {**own["state"], "key": key}
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
    own = dict(state["numpy"])
    if "key" in own["state"]:
        key = own["state"]["key"].numpy().astype(np.uint32)
        own["state"] = {**own["state"], "key": key}
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    np.random.set_state(own)  # noqa: NPY002
    random.setstate(state["random"])
