"""Predict codec tree, size and error of each tensor from samples."""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Unpack

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    counted,
    printable,
    ratio_text,
    snr_text,
)
from tensorcomp._tables import Column, Table
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.codecs.text import format_tree
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.container.local_copies import with_copies
from tensorcomp.container.model import Model, open_model, open_original
from tensorcomp.container.records import PruningRecord
from tensorcomp.errors import PlanError, PruningError
from tensorcomp.pipeline.job import Shard, calibrated_tensors, pruned_shards, shards_problem
from tensorcomp.pipeline.options import CompressKeywords, CompressOptions
from tensorcomp.pipeline.summary import CheckpointSummary
from tensorcomp.pipeline.tensor_summary import (
    PRUNED_COLUMN,
    ROLE_COLUMN,
    TYPE_COLUMNS,
    TensorSummary,
)
from tensorcomp.planning.plan import LOSSLESS, Plan, plan_to_json
from tensorcomp.planning.roles.classify import roles_of
from tensorcomp.selection.stored.pruned_checkpoint import PrunedCheckpoint


def _root(row: TensorSummary) -> str:
    return (row.tree or "").split("(")[0]


@dataclass(frozen=True, repr=False)
class PlanReport(CheckpointSummary):
    """Plan of a checkpoint, with predicted sizes.

    Parameters
    ----------
    input_bytes : int
        Of the files.
    output_bytes : int
        Of the compressed files, about.
    tensors : tuple of TensorSummary
        With predicted bytes and errors; those that equal another one of their file take none. What
        pruning costs is not known before the weights are read.
    compressed : bool
        True.
    plan : Plan
    """

    plan: Plan

    def predicted_bytes(self, name: str) -> int:
        """Return the bytes that a tensor will take, about."""
        return self._rows[name].stored

    def reason(self, name: str) -> str:
        """Return why a tensor has its plan, or which one it equals."""
        return self._rows[name].reason

    @functools.cached_property
    def _rows(self) -> dict[str, TensorSummary]:
        return {row.name: row for row in self.tensors}

    def table(self) -> Table:
        """Return a table of the plan of each tensor."""
        plans = self.plan.tensors
        columns = (
            Column("Tensor", "name", lambda row: row.name, printable, left=True),
            *TYPE_COLUMNS,
            ROLE_COLUMN,
            Column("Bytes", "predicted_bytes", lambda row: row.stored, bytes_text),
            Column("Bits", "", lambda row: row.bits_per_weight, bits_text),
            Column(
                "",
                "predicted_rel_l2",
                lambda row: plans[row.name].rel_l2 if plans[row.name].loss is None else None,
            ),
            Column("SNR dB", "", lambda row: row.snr_db, snr_text),
            Column(
                *("Loss", "predicted_loss", lambda row: plans[row.name].loss),
                "{:.3g}".format,
                optional=True,
            ),
            PRUNED_COLUMN,
            Column("Tree", "tree", lambda row: row.tree, printable, left=True, narrow=_root),
            Column("Why", "why", lambda row: row.reason, printable, left=True, spare=9),
        )
        return Table(columns, self.tensors)

    @property
    def predicted_loss(self) -> float | None:
        """Loss that all errors add, in nats a term of it; None without statistics."""
        losses = {  # tied tensors have the same moment
            item.calibrated.moment.place: item.loss
            for item in self.plan.tensors.values()
            if item.calibrated is not None and item.loss is not None
        }
        return sum(losses.values()) if losses else None

    def totals(self) -> str:
        """Return the predicted size, ratio and rate in one line."""
        bits, budget = self.bits_per_weight, self.plan.budget
        rate = "" if bits is None else f", {bits_text(bits)} bits per weight"
        aim = f", for {budget}" if budget.given() else ""
        loss = self.predicted_loss
        aim += "" if loss is None else f", predicted loss {loss:.3g} nats"
        return (
            f"{counted(len(self.tensors), 'tensor')}, {bytes_text(self.input_bytes)} in about "
            f"{bytes_text(self.output_bytes)}: ratio {ratio_text(self.ratio)}{rate}{aim}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan file as JSON values."""
        values: dict[str, Any] = json.loads(self.to_json())
        return values

    def to_json(self) -> str:
        """Return the text of the plan file."""
        described = {
            row.name: {
                "role": row.role,
                "shape": list(row.shape),
                "dtype": row.dtype,
                "predicted_bytes": row.stored,
                **({} if row.pruned is None else {"pruned": row.pruned.count}),
                **({"unpruned": row.unpruned} if row.unpruned else {}),
            }
            for row in self.tensors
        }
        return plan_to_json(self.plan, described)


def plan(
    path: str | os.PathLike[str],
    *,
    options: CompressOptions | None = None,
    **keywords: Unpack[CompressKeywords],
) -> PlanReport:
    """Predict the tree, size and error of each tensor, without compressing.

    Trees are chosen and measured on samples of the tensors.

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
        raise PlanError("expected a budget to plan for, got a plan; give it to compress")
    if options.prune is not None and options.prune.target_size is not None:
        raise PruningError(
            "expected a sparsity, got a target size, which is met by writing files; "
            "plan for a sparsity"
        )
    with with_copies(open_model(path, compressed=False)) as model:
        return _plan(model, options)


def _plan(model: Model, options: CompressOptions) -> PlanReport:
    planner = replace(options.planner(), predict=True)
    infos: dict[str, TensorInfo] = {}
    hidden: set[str] = set()
    roles: dict[str, str] = {}
    shards = []
    for shard, keys in model.keys().items():
        shards.append(Shard(functools.partial(open_original, model.file(shard)), _nothing, keys))
        with shards[-1].open() as checkpoint:
            infos |= {keys[info.name]: info for info in checkpoint.tensors}
            hidden |= {keys[name] for name in checkpoint.hidden if name in keys}
            found = roles_of(checkpoint.tensors)
            roles |= {keys[name]: role for name, role in found.items()}
    calibrated = calibrated_tensors(shards, options)
    with pruned_shards(shards, options, planner) as pruned:
        problem, nbytes = shards_problem(pruned, options, planner, calibrated)
        records, unpruned = _pruned(pruned)
    planned = problem.allocate(problem.max_bytes(nbytes), infos).with_statistics(calibrated)
    how = dict.fromkeys(f"{item.score}, {item.granularity}" for item in records.values())
    planned = replace(planned, pruned="; ".join(how))
    rows = []
    for name, info in infos.items():
        chosen, first = planned.tensors[name], problem.copies.get(name)
        size = info.nbytes if first is None else 0
        if chosen.bits is not None:
            elements = math.prod(chunk_grid(info.dtype, info.shape, info.nbytes).shape)
            size = min(int(chosen.bits * elements / 8), size)
        row = TensorSummary.of(
            replace(info, name=name),
            roles[name],
            size,
            tree=LOSSLESS if chosen.tree is None else format_tree(chosen.tree),
            reason=chosen.reason if first is None else f"equals {first}",
            same_as=first,
            rel_l2=chosen.rel_l2 or 0,
            pruned=records.get(name),
            unpruned=unpruned.get(name, ""),
        )
        rows.append(row)
    output_bytes = problem.overhead + sum(row.stored for row in rows)
    shown_rows = tuple(row for row in rows if row.name not in hidden)
    return PlanReport(nbytes, output_bytes, shown_rows, True, planned, copied=model.copied)


def _nothing() -> NoReturn:
    raise AssertionError("a plan writes nothing")


def _pruned(shards: Sequence[Shard]) -> tuple[dict[str, PruningRecord], dict[str, str]]:
    """Return the records of pruned tensors, and why others are not, by names in the plan."""
    found, unpruned = {}, {}
    for shard in shards:
        with shard.open() as source:
            if isinstance(source, PrunedCheckpoint):
                found.update({shard.keys[n]: record for n, record in source.planned().items()})
                unpruned.update({shard.keys[n]: why for n, why in source.unpruned.items()})
    return found, unpruned
