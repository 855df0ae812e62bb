"""The ways to send gradients that are measured: torch's own, and compressors of tensorcomp."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from statistics import mean
from typing import Any

PLAIN = "plain DDP"
NOTHING = "nothing sent"
FP16 = "fp16 hook"
POWERSGD = "torch PowerSGD, rank 4"
TOP_K = "topk(0.01, values=affine(8), indices=gaps)"
TOP_K_SHARE = 0.01
OWNED = f"owners({TOP_K})"
DGC = "dgc(0.001, momentum=0.9)"
DENSE = "dense"
ADAPTIVE = "adaptive(every=20)"

PAYLOAD, FRAMED = "bytes/payload", "bytes/framed"
TIMES = ("ms/encode", "ms/communicate", "ms/decode")
CODING = ("ms/encode", "ms/decode")
FIGURES = (PAYLOAD, FRAMED, *TIMES)

_ONE_BUCKET_MB = 1 << 10  # torch's PowerSGD hangs on gloo where there are more


def figures_of(compression: Any, steps: int) -> dict[str, float]:
    """Return the means of what a compression measured of its last steps; nothing of torch's."""
    taken = (
        [step.scalars() for step in compression.metrics][-steps:] if compression is not None else []
    )
    return {name: mean(step[name] for step in taken) for name in FIGURES} if taken else {}


def choices_of(compression: Any) -> dict[str, int]:
    """Return how many parameters are sent by which compressor, where that is agreed on."""
    return dict(Counter(compression.choices.values())) if compression is not None else {}


@dataclass(frozen=True)
class Way:
    """A way to send gradients.

    Parameters
    ----------
    attach : callable
        Given a DDP model and its optimizer; returns a compression of tensorcomp, or None.
    one_bucket : bool
        Whether all gradients must be in one bucket.
    own_momentum : bool
        Whether momentum is the compressor's, so that the optimizer must have none.
    in_step : bool
        Whether all ranks stay equal.
    adapts : bool
        Whether it watches the link, so that it must see the rate from its first step on.
    discard : int
        Steps that are in no figure.
    peer : bool
        Whether it is torch's own.
    """

    attach: Callable[[Any, Any], Any]
    one_bucket: bool = False
    own_momentum: bool = False
    in_step: bool = True
    adapts: bool = False
    discard: int = 3
    peer: bool = False

    def options(self) -> dict[str, Any]:
        """Return the options of DistributedDataParallel."""
        return {"bucket_cap_mb": _ONE_BUCKET_MB} if self.one_bucket else {}


def _plain(model: Any, optimizer: Any) -> None:
    """Leave torch's own mean."""


def _hooked(module: str, hook: str) -> Callable[[Any, Any], None]:
    """Return what registers a hook of torch without a state."""

    def attach(model: Any, optimizer: Any) -> None:
        hooks = import_module(f"torch.distributed.algorithms.ddp_comm_hooks.{module}")
        model.register_comm_hook(None, getattr(hooks, hook))

    return attach


def _powersgd(model: Any, optimizer: Any) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
        PowerSGDState,
        powerSGD_hook,
    )

    state = PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook)


PEERS: Mapping[str, Way] = {
    PLAIN: Way(_plain, peer=True),
    NOTHING: Way(_hooked("debugging_hooks", "noop_hook"), in_step=False, peer=True),
    FP16: Way(_hooked("default_hooks", "fp16_compress_hook"), peer=True),
    POWERSGD: Way(_powersgd, one_bucket=True, peer=True),
}


def _ours(text: str, **more: Any) -> Way:
    """Return the way of a compressor."""

    def attach(model: Any, optimizer: Any) -> Any:
        from tensorcomp.gradients.ddp.hook import compress_gradients

        return compress_gradients(model, text, optimizer=optimizer)

    return Way(attach, **more)


OURS: Mapping[str, Way] = {
    TOP_K: _ours(TOP_K),
    OWNED: _ours(OWNED),
    DGC: _ours(DGC, own_momentum=True),
    ADAPTIVE: _ours(ADAPTIVE, adapts=True, discard=40),
    **{
        text: _ours(text)
        for text in ("dense", "int8", "int4", "sign", "powersgd(4)", "randomk(0.01)")
    },
}

WAYS: Mapping[str, Way] = {**PEERS, **OURS}
