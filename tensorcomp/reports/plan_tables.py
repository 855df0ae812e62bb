"""Show what a plan would do with each tensor: the table, totals in one line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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
from tensorcomp.codecs.text import format_tree
from tensorcomp.planning.checkpoint_plan import LOSSLESS
from tensorcomp.reports.pruning import share_text

if TYPE_CHECKING:
    from tensorcomp.api.plan import PlanReport


def plan_table(forecast: PlanReport) -> Table:
    """Return a table of what is to become of each tensor."""
    infos, plans = forecast.infos, forecast.plan.tensors

    def snr(name: str) -> float | None:
        rel_l2 = plans[name].rel_l2
        return -20 * math.log10(rel_l2) if rel_l2 else None

    def tree(name: str) -> str:
        found = plans[name].tree
        return LOSSLESS if found is None else format_tree(found)

    def pruned(name: str) -> str | None:
        return share_text(forecast.pruned.get(name), math.prod(infos[name].shape))

    columns = (
        Column("Tensor", "name", str, printable, left=True),
        Column("Shape", "shape", lambda name: shape_text(infos[name].shape), left=True),
        Column("Type", "dtype", lambda name: infos[name].dtype, printable, left=True),
        Column("Role", "role", lambda name: forecast.roles[name].role, left=True, spare=1),
        Column("Bytes", "predicted_bytes", forecast.predicted_bytes, bytes_text),
        Column("Bits", "", forecast.predicted_bits, bits_text),
        Column("", "predicted_rel_l2", lambda name: plans[name].rel_l2),
        Column("SNR dB", "", snr, snr_text),
        Column("Pruned", "", pruned, optional=True),
        Column(
            "Tree", "tree", tree, printable, left=True, narrow=lambda name: tree(name).split("(")[0]
        ),
        Column("Why", "why", forecast.why, printable, left=True, spare=9),
    )
    return Table(columns, list(infos))


def plan_totals(forecast: PlanReport) -> str:
    """Return the predicted size, ratio and rate in one line."""
    size, weights = forecast.output_bytes, forecast.weights
    rate = f", {bits_text(8 * size / weights)} bits per weight" if weights else ""
    budget = forecast.plan.budget
    aim = f", for {budget}" if budget.given() else ""
    return (
        f"{counted(len(forecast.infos), 'tensor')}, {bytes_text(forecast.input_bytes)} in about "
        f"{bytes_text(size)}: ratio {ratio_text(forecast.input_bytes / size)}{rate}{aim}"
    )
