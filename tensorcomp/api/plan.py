"""Predict codec tree, size and error of each tensor from samples."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, Unpack

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    counted,
    printable,
    ratio_text,
    shape_text,
    snr_text,
)
from tensorcomp._tables import Column, Table
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.codecs.text import format_tree
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.container.model import open_model, open_original
from tensorcomp.container.records import PruningRecord
from tensorcomp.errors import PlanError, PruningError
from tensorcomp.pipeline.job import Shard, draft_shards, pruned_shards
from tensorcomp.pipeline.options import CompressKeywords, CompressOptions
from tensorcomp.pipeline.tensor_summary import share_text
from tensorcomp.planning.plan import LOSSLESS, Plan, plan_to_json
from tensorcomp.planning.roles.classify import RoleDecision, classify_all
from tensorcomp.selection.stored.pruned_checkpoint import PrunedCheckpoint


@dataclass(frozen=True, repr=False)
class PlanReport:
    """Plan of a checkpoint, with predicted sizes.

    Parameters
    ----------
    plan : Plan
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

    plan: Plan
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

    def table(self) -> Table:
        """Return a table of the plan of each tensor."""
        infos, plans = self.infos, self.plan.tensors

        def snr(name: str) -> float | None:
            rel_l2 = plans[name].rel_l2
            return -20 * math.log10(rel_l2) if rel_l2 else None

        def tree(name: str) -> str:
            found = plans[name].tree
            return LOSSLESS if found is None else format_tree(found)

        def pruned(name: str) -> str | None:
            return share_text(self.pruned.get(name), math.prod(infos[name].shape))

        columns = (
            Column("Tensor", "name", str, printable, left=True),
            Column("Shape", "shape", lambda name: shape_text(infos[name].shape), left=True),
            Column("Type", "dtype", lambda name: infos[name].dtype, printable, left=True),
            Column("Role", "role", lambda name: self.roles[name].role, left=True, spare=1),
            Column("Bytes", "predicted_bytes", self.predicted_bytes, bytes_text),
            Column("Bits", "", self.predicted_bits, bits_text),
            Column("", "predicted_rel_l2", lambda name: plans[name].rel_l2),
            Column("SNR dB", "", snr, snr_text),
            Column("Pruned", "", pruned, optional=True),
            Column(
                "Tree",
                "tree",
                tree,
                printable,
                left=True,
                narrow=lambda name: tree(name).split("(")[0],
            ),
            Column("Why", "why", self.why, printable, left=True, spare=9),
        )
        return Table(columns, list(infos))

    def totals(self) -> str:
        """Return the predicted size, ratio and rate in one line."""
        size, weights = self.output_bytes, self.weights
        rate = f", {bits_text(8 * size / weights)} bits per weight" if weights else ""
        budget = self.plan.budget
        aim = f", for {budget}" if budget.given() else ""
        return (
            f"{counted(len(self.infos), 'tensor')}, {bytes_text(self.input_bytes)} in about "
            f"{bytes_text(size)}: ratio {ratio_text(self.input_bytes / size)}{rate}{aim}"
        )

    def __str__(self) -> str:
        return "\n".join([*self.table().lines(), "", self.totals()])

    def __repr__(self) -> str:
        return f"<PlanReport: {self.totals()}>"

    def _repr_html_(self) -> str:
        """Return the table and totals for a notebook."""
        return f"{self.table()._repr_html_()}<p>{self.totals()}</p>"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan file as JSON values."""
        values: dict[str, Any] = json.loads(self.to_json())
        return values

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
    options: CompressOptions | None = None,
    **keywords: Unpack[CompressKeywords],
) -> PlanReport:
    """Predict the codec tree, size and error of each tensor from samples; nothing is compressed.

    Parameters
    ----------
    path : str or path-like
        A checkpoint file or folder.
    options : CompressOptions, optional
        As for `compress`; or give its fields as keywords.
    **keywords
        Fields of `CompressOptions`. `compress` obeys the result's ``plan``; what is pruned must be
        given to it again.

    Raises
    ------
    CheckpointError
        If the input cannot be read.
    PlanError
        If the budget cannot be kept, or what is asked for does not go together.
    PruningError
        If weights cannot be pruned as asked.
    """
    options = CompressOptions(**keywords) if options is None else options
    if options.plan is not None:
        raise PlanError("expected what to plan for, got a plan; give it to compress")
    if options.prune is not None and options.prune.target_size is not None:
        raise PruningError("a target size is found by writing files; plan for a sparsity")
    planner = replace(options.planner(), predict=True)
    model = open_model(path, compressed=False)
    infos: dict[str, TensorInfo] = {}
    roles: dict[str, RoleDecision] = {}
    shards = []
    for shard, keys in model.keys().items():
        shards.append(Shard(partial(open_original, model.file(shard)), _nothing, keys))
        with shards[-1].open() as checkpoint:
            infos |= {keys[info.name]: info for info in checkpoint.tensors}
            found = classify_all(checkpoint.tensors)
            roles |= {keys[name]: decision for name, decision in found.items()}
    with pruned_shards(shards, options, planner) as pruned:
        draft, nbytes = draft_shards(pruned, options, planner)
        records = _pruned(pruned)
    settled = draft.allocate(draft.max_bytes(nbytes), infos)
    how = dict.fromkeys(f"{item.score}, {item.granularity}" for item in records.values())
    settled = replace(settled, pruned="; ".join(how))
    return PlanReport(settled, infos, roles, nbytes, draft.overhead, draft.copies, records)


def _nothing() -> NoReturn:
    raise AssertionError("a plan writes nothing")


def _pruned(shards: Sequence[Shard]) -> dict[str, PruningRecord]:
    """Return the records of the tensors that are pruned, by what the plan calls them."""
    found = {}
    for shard in shards:
        with shard.open() as source:
            if isinstance(source, PrunedCheckpoint):
                found.update({shard.keys[n]: record for n, record in source.planned().items()})
    return found
