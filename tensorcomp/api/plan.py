"""The verb plan: what would become of each tensor, told from samples."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.folder import scan_folder
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.container.paths import open_original
from tensorcomp.container.records import PruningRecord
from tensorcomp.errors import PruningError
from tensorcomp.pipeline.job import Pipeline
from tensorcomp.pipeline.model_files import Opener, draft_files, sources_of, tensor_keys
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.checkpoint_plan import CheckpointPlan, plan_to_json
from tensorcomp.planning.profiles import Profile
from tensorcomp.planning.requests import make_planner
from tensorcomp.planning.roles.classify import RoleDecision, classify_all
from tensorcomp.planning.rules import Rule
from tensorcomp.selection.request import Pruning
from tensorcomp.selection.stored.pruned_checkpoint import PrunedSource


@dataclass(frozen=True)
class Forecast:
    """A plan, and what there is to say of each tensor.

    Parameters
    ----------
    plan : CheckpointPlan
    infos : mapping of str to TensorInfo
    roles : mapping of str to RoleDecision
    input_bytes : int
        Of the files.
    overhead : int
        Bytes of the compressed files that are no blobs, about.
    copies : mapping of str to str
        Tensors that equal another one of their file, which is stored once.
    pruned : mapping of str to PruningRecord
        How many weights tensors lose first; what that costs is not known before they are read.
    """

    plan: CheckpointPlan
    infos: Mapping[str, TensorInfo]
    roles: Mapping[str, RoleDecision]
    input_bytes: int
    overhead: int
    copies: Mapping[str, str] = field(default_factory=dict)
    pruned: Mapping[str, PruningRecord] = field(default_factory=dict)

    def predicted_bytes(self, name: str) -> int:
        """Return the bytes that a tensor will take, about."""
        info, plan = self.infos[name], self.plan.tensors[name]
        if name in self.copies:
            return 0
        if plan.bits is None:
            return info.nbytes
        elements = math.prod(chunk_grid(info.dtype, info.shape, info.nbytes).shape)
        return min(int(plan.bits * elements / 8), info.nbytes)

    def predicted_bits(self, name: str) -> float | None:
        """Return the bits that a weight will take, about; None if there is none."""
        weights = math.prod(self.infos[name].shape)
        return 8 * self.predicted_bytes(name) / weights if weights else None

    def why(self, name: str) -> str:
        """Return why a tensor has its plan, or which one it equals."""
        first = self.copies.get(name)
        return self.plan.tensors[name].why if first is None else f"equals {first}"

    @property
    def output_bytes(self) -> int:
        """Bytes of the compressed files, about."""
        return self.overhead + sum(self.predicted_bytes(name) for name in self.infos)

    @property
    def weights(self) -> int:
        """Elements of all tensors."""
        return sum(math.prod(info.shape) for info in self.infos.values())

    def to_json(self) -> str:
        """Return the text of the plan file."""
        described = {
            name: {
                "role": self.roles[name].role,
                "shape": list(info.shape),
                "dtype": info.dtype,
                "predicted_bytes": self.predicted_bytes(name),
                **({"pruned": self.pruned[name].count} if name in self.pruned else {}),
            }
            for name, info in self.infos.items()
        }
        return plan_to_json(self.plan, described)


def plan(
    path: str | os.PathLike[str],
    *,
    effort: str | None = None,
    profile: str | Profile | None = None,
    budget: Budget | None = None,
    codecs: Iterable[str | Rule] = (),
    bounds: Mapping[str, Budget] | None = None,
    importance: str | os.PathLike[str] | Mapping[str, float] | None = None,
    prune: Pruning | None = None,
    threads: int | None = None,
) -> Forecast:
    """Return what `compress` would do with each tensor; nothing is compressed.

    Parameters
    ----------
    path : str or path-like
        A checkpoint file or folder.
    effort, profile, budget, codecs, bounds, importance, prune, threads
        As for `compress`, which obeys ``plan(…).plan``; what is pruned must be said to it again.

    Raises
    ------
    CheckpointError
        If the input cannot be read.
    PlanError
        If the budget cannot be kept, or what is asked for does not go together.
    PruningError
        If weights cannot be pruned as asked.
    """
    if prune is not None and prune.target_size is not None:
        raise PruningError("a target size is found by writing files; plan for a sparsity")
    source = Path(path)
    planner = make_planner(
        profile=profile,
        budget=budget,
        codecs=codecs,
        bounds=bounds,
        importance=importance,
        effort=effort,
    )
    pipeline = Pipeline.of(replace(planner, predict=True), threads, prune)
    paths = [source / name for name in scan_folder(source).weights] if source.is_dir() else [source]
    keys = tensor_keys(source, paths)
    infos: dict[str, TensorInfo] = {}
    roles: dict[str, RoleDecision] = {}
    for file, names in keys.items():
        with open_original(file) as checkpoint:
            infos |= {names[info.name]: info for info in checkpoint.tensors}
            found = classify_all(checkpoint.tensors)
            roles |= {names[name]: decision for name, decision in found.items()}
    with sources_of(keys, pipeline) as opened:
        draft, nbytes = draft_files(pipeline, planner, keys, opened)
        pruned = _pruned(keys, opened)
    settled = draft.settle(draft.most_bytes(nbytes), infos)
    settled = replace(settled, pruned=_how(pruned.values()))
    return Forecast(settled, infos, roles, nbytes, draft.overhead, draft.copies, pruned)


def _pruned(keys: Mapping[Path, Mapping[str, str]], opened: Opener) -> dict[str, PruningRecord]:
    """Return the records of the tensors that are pruned, by what the plan calls them."""
    found = {}
    for path, names in keys.items():
        with opened(path) as source:
            if isinstance(source, PrunedSource):
                found.update({names[name]: record for name, record in source.planned().items()})
    return found


def _how(records: Iterable[PruningRecord]) -> str:
    """Return by what tensors are pruned; nothing if none are."""
    return "; ".join(dict.fromkeys(f"{item.score}, {item.granularity}" for item in records))
