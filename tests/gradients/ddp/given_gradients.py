"""Training whose every local gradient is known beforehand, so that what arrives can be checked.

The loss of `Given` is linear in its parameters: the gradient of a parameter is exactly the array
that the step gives for it. `steps` is what ranks run; its outcomes are checked by the test.
"""

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ranks
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from tensorcomp._names import clean_name
from tensorcomp.gradients import compress_gradients
from tensorcomp.gradients.ddp.shards import partition

Shapes = tuple[tuple[int, ...], ...]
# Large and small, odd and even; some are coalesced, and three buckets are made of them at 0.02 MB.
SHAPES: Shapes = ((64, 65), (7,), (4099,), (1,), (33, 3), (80, 64), (2, 3, 5))
_NONE = np.zeros(())
EIGHT_BUCKETS: Shapes = ((96, 64),) * 10


class Given(torch.nn.Module):
    """Parameters ``p0``, ``p1`` … whose gradients are what `forward` is given."""

    def __init__(self, shapes: Shapes, order: Sequence[int] | None = None) -> None:
        super().__init__()
        for index in order or range(len(shapes)):
            self.register_parameter(f"p{index}", torch.nn.Parameter(torch.zeros(shapes[index])))

    def forward(self, gradients: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the sum of products of parameters and what their gradients are to be."""
        terms = [(getattr(self, name) * given).sum() for name, given in gradients.items()]
        return torch.stack([term.float() for term in terms]).sum()


@dataclass(frozen=True)
class Case:
    """What `steps` does.

    Parameters
    ----------
    compressor : str
        Of `compress_gradients`.
    steps : range
        The numbers of the steps that are done: gradients depend on rank, step and parameter.
    shapes : tuple of tuple of int
    options : mapping
        Of `compress_gradients`.
    ddp : mapping
        Of `DistributedDataParallel`.
    micro : int
        Backward passes of a step, all but the last inside ``no_sync``.
    unused : mapping of (rank, step) to names
        Parameters that take no part; the rank None stands for all ranks.
    zeros : frozenset of (rank, step)
        Where all gradients are zero.
    infinite : frozenset of (rank, step)
        Where the first parameter's gradient holds an infinity.
    scale : float
        Gradients of rank r are multiplied by ``scale ** r``.
    load : tuple of bytes
        State dicts, of each rank or one for all, to be loaded before the first step.
    strict : bool
        Whether they must be of the same compressor.
    keep : tuple of int
        Steps after which the state dict is returned as well.
    mode : str
        Of `state_dict`.
    device : str
        Of the model.
    compiled : bool
        Whether the model is compiled by `torch.compile`.
    wrap : callable, optional
        What wraps the module before `DistributedDataParallel` does.
    """

    compressor: str
    steps: range
    shapes: Shapes = SHAPES
    options: Mapping[str, Any] = field(default_factory=dict)
    ddp: Mapping[str, Any] = field(default_factory=lambda: {"bucket_cap_mb": 0.02})
    micro: int = 1
    unused: Mapping[tuple[int | None, int], tuple[str, ...]] = field(default_factory=dict)
    zeros: frozenset[tuple[int, int]] = frozenset()
    infinite: frozenset[tuple[int, int]] = frozenset()
    scale: float = 1.0
    load: tuple[bytes, ...] = ()
    strict: bool = True
    mode: str = "exact"
    keep: tuple[int, ...] = ()
    device: str = "cpu"
    compiled: bool = False
    wrap: Callable[[torch.nn.Module], torch.nn.Module] | None = None

    def gradients(self, rank: int, step: int) -> dict[str, np.ndarray]:
        """Return the local gradients of a step, without the infinities; zeros where unused."""
        out = {}
        hidden = {*self.unused.get((rank, step), ()), *self.unused.get((None, step), ())}
        for index, shape in enumerate(self.shapes):
            total = np.zeros(shape, np.float32)
            for micro in range(self.micro):
                total = total + self.part(rank, step, index, micro)
            if f"p{index}" in hidden:
                total[...] = 0
            out[f"p{index}"] = total
        return out

    def part(self, rank: int, step: int, index: int, micro: int) -> np.ndarray:
        """Return the gradient of one backward pass, float32."""
        shape = self.shapes[index]
        if (rank, step) in self.zeros:
            return np.zeros(shape, np.float32)
        rng = np.random.default_rng((rank, step, index, micro))
        return (rng.standard_t(3, shape) * self.scale**rank).astype(np.float32)


@dataclass(frozen=True)
class Outcome:
    """What a rank saw.

    Parameters
    ----------
    means : list of dict of str to numpy.ndarray
        Gradients after each step.
    hashes : list of str
        Of all gradients, after each step.
    saved : dict of int to bytes
        The state dict after the steps of `Case.keep`, by step, as `torch.save` writes it.
    buckets : int
        Buckets after the rebuild.
    """

    means: list[dict[str, np.ndarray]]
    hashes: list[str]
    saved: dict[int, bytes]
    buckets: int


def steps(case: Case) -> Outcome:
    """Do the steps of a case on this rank."""
    rank = distributed.get_rank()
    module: torch.nn.Module = Given(case.shapes).to(case.device)
    model = DistributedDataParallel(case.wrap(module) if case.wrap else module, **case.ddp)
    forward = torch.compile(model, backend="eager") if case.compiled else model
    outcome = Outcome([], [], {}, 0)
    with compress_gradients(model, case.compressor, **case.options) as compression:
        if case.load:
            state = loaded(case.load[rank % len(case.load)])
            compression.load_state_dict(state, strict=case.strict)
        for step in case.steps:
            model.zero_grad()
            for micro in range(case.micro):
                given = dict(_given(case, rank, step, micro))
                with nullcontext() if micro == case.micro - 1 else model.no_sync():
                    forward(given).backward()
            means = gradients_of(model)
            outcome.means.append(means)
            outcome.hashes.append(hashed(means))
            if step in case.keep:
                outcome.saved[step] = saved(compression.state_dict(mode=case.mode))
    return Outcome(outcome.means, outcome.hashes, outcome.saved, buckets_of(model))


def _given(case: Case, rank: int, step: int, micro: int) -> Iterator[tuple[str, torch.Tensor]]:
    hidden = {*case.unused.get((rank, step), ()), *case.unused.get((None, step), ())}
    for index in range(len(case.shapes)):
        if f"p{index}" not in hidden:
            part = torch.from_numpy(case.part(rank, step, index, micro))
            if index == 0 and (rank, step) in case.infinite:
                part.view(-1)[3] = torch.inf
            yield f"p{index}", part.to(case.device)


def gradients_of(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return copies of a model's gradients by parameter name."""
    return {
        clean_name(name): parameter.grad.detach().float().cpu().numpy().copy()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def hashed(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a digest of arrays, of every bit."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()


def saved(state_dict: Mapping[str, Any]) -> bytes:
    """Return a state dict as torch writes it."""
    file = io.BytesIO()
    torch.save(state_dict, file)
    return file.getvalue()


def loaded(data: bytes) -> dict[str, Any]:
    """Read a state dict as torch does by default: plain tensors and numbers only."""
    state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return state


def buckets_of(model: DistributedDataParallel) -> int:
    """Return the number of buckets now."""
    data = model._get_ddp_logging_data()
    sizes = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
    return len(str(sizes).split(",")) if sizes else 0


def residuals(state_dict: Mapping[str, Any], case: Case) -> dict[str, np.ndarray]:
    """Return what a rank has not sent, by parameter name, float64; zeros where it has no residual.

    Owners' residuals, which are of means, count for all ranks: the mean over ranks of what this
    returns is what is left of the means of gradients.
    """
    out = {f"p{i}": np.zeros(shape) for i, shape in enumerate(case.shapes)}
    for name, left in _residuals(state_dict["states"]):
        out[name] += left.reshape(out[name].shape)
    world = state_dict["world"]
    bounds = partition({name: one.size for name, one in out.items()}, world)
    for name, left in _residuals(state_dict["means"]):
        start, stop = bounds[name][state_dict["rank"] :][:2]
        if state_dict["mode"] == "mean":
            out[name] += left.reshape(out[name].shape)
        else:
            out[name].reshape(-1)[start:stop] += world * left.reshape(-1)
    return out


def _residuals(states: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, np.ndarray]]:
    for name, fields in states.items():
        for field_name, value in fields.items():
            if field_name.rpartition(".")[2] == "residual":
                yield name, value.double().numpy()


def check_ranks_equal(outcomes: Sequence[Outcome]) -> None:
    """Check that all ranks had the same bits after every step."""
    first = outcomes[0]
    for rank, outcome in enumerate(outcomes):
        assert outcome.hashes == first.hashes, f"rank {rank} differs from rank 0"


def run_alike(case: Case, world: int = 2) -> list[Outcome]:
    """Run the steps of a case, check that all ranks agree, and return what they saw."""
    outcomes: list[Outcome] = ranks.run(steps, case, world=world)
    check_ranks_equal(outcomes)
    return outcomes


def true_means(case: Case, world: int) -> list[dict[str, np.ndarray]]:
    """Return the means of the local gradients of every step, in float64."""
    out = []
    for step in case.steps:
        local = [case.gradients(rank, step) for rank in range(world)]
        out.append(
            {name: np.mean([one[name].astype(float) for one in local], axis=0) for name in local[0]}
        )
    return out


def check_invariant(
    case: Case,
    outcomes: Sequence[Outcome],
    *,
    before: Mapping[str, np.ndarray] | None = None,
    skipped: Sequence[int] = (),
    rtol: float = 1e-5,
) -> dict[str, np.ndarray]:
    """Check Σ sent + residual = Σ gradients, for the means over ranks, and return the residuals.

    The state after the last step must be kept; `before` holds mean residuals before the first.
    """
    last = case.steps[-1]
    world = len(outcomes)
    truth = true_means(case, world)
    kept = [residuals(loaded(outcome.saved[last]), case) for outcome in outcomes]
    after = {name: np.mean([one[name] for one in kept], axis=0) for name in kept[0]}
    for name in after:
        did = [i for i, step in enumerate(case.steps) if step not in skipped]
        sent = sum(outcomes[0].means[i].get(name, _NONE).astype(float) for i in did)
        given = sum(truth[i][name] for i in did)
        if before is not None:
            given = given + before[name]
        scale = max(float(np.linalg.norm(given)), 1e-30)
        error = float(np.linalg.norm(sent + after[name] - given)) / scale
        assert error <= rtol, f"{name}: Σ sent + residual is off by {error:.2e} of Σ gradients"
    return after
