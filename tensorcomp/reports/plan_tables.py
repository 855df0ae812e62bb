"""A plan as lines of text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensorcomp._formatting import (
    bits_text,
    bytes_text,
    in_columns,
    printable,
    ratio_text,
    shape_text,
    snr_text,
)
from tensorcomp.codecs.text import format_tree
from tensorcomp.planning.checkpoint_plan import LOSSLESS
from tensorcomp.reports.pruned import share_text
from tensorcomp.reports.tables import fitted, without_less_needed

if TYPE_CHECKING:
    from tensorcomp.api.plan import Forecast

_HEAD = ("Tensor", "Shape", "Type", "Role", "Bytes", "Bits", "SNR dB")


def plan_table(forecast: Forecast, width: int | None = None) -> list[str]:
    """Return a table of what is to become of each tensor.

    Parameters
    ----------
    forecast : Forecast
    width : int, optional
        Columns to keep within; names are folded then, and trees are told by their first codec.
    """
    pruned = ("Pruned",) if forecast.pruned else ()
    whys = ("Why",) if width is None else ()
    rows: list[tuple[str, ...]] = [(*_HEAD, *pruned, "Tree", *whys)]
    for name, info in forecast.infos.items():
        plan = forecast.plan.tensors[name]
        tree = LOSSLESS if plan.tree is None else format_tree(plan.tree)
        if width is not None:
            tree = tree.split("(")[0]
        snr = -20 * math.log10(plan.rel_l2) if plan.rel_l2 else None
        figures = (
            printable(name),
            shape_text(info.shape),
            printable(info.dtype),
            forecast.roles[name].role,
            bytes_text(forecast.predicted_bytes(name)),
            bits_text(forecast.predicted_bits(name)),
            snr_text(snr),
        )
        share = (share_text(forecast.pruned.get(name), math.prod(info.shape)),) if pruned else ()
        why = (printable(forecast.why(name)),) if whys else ()
        rows.append((*figures, *share, printable(tree), *why))
    if width is not None:
        rows = without_less_needed(rows, width)
    right = range(rows[0].index("Bytes"), rows[0].index("Tree"))
    if width is None:
        return in_columns(rows, right=right)
    return [line for block in fitted(rows, width, right=right) for line in block]


def plan_totals(forecast: Forecast) -> str:
    """Return the predicted size, ratio and rate in one line."""
    size, weights = forecast.output_bytes, forecast.weights
    rate = f", {bits_text(8 * size / weights)} bits per weight" if weights else ""
    ratio = ratio_text(forecast.input_bytes / size)
    budget = forecast.plan.budget
    aim = f", for {budget}" if budget.given() else ""
    return (
        f"{len(forecast.infos):,} tensors, {bytes_text(forecast.input_bytes)} in about "
        f"{bytes_text(size)}: ratio {ratio}{rate}{aim}"
    )
