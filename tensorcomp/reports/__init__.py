"""What became of a checkpoint: figures, tables for people, JSON for programs.

Pure functions of what was read from files; nothing here opens one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorcomp.lazy import lazy_names

if TYPE_CHECKING:
    from tensorcomp.reports.as_json import to_json
    from tensorcomp.reports.metrics import (
        Summary,
        TensorRow,
        join,
        summarise_checkpoint,
        summarise_compressed,
    )
    from tensorcomp.reports.plan_tables import plan_table, plan_totals
    from tensorcomp.reports.pruned import (
        PruningFigures,
        planned_line,
        pruning_figures,
        pruning_line,
    )
    from tensorcomp.reports.tables import cost_table, tensor_table, totals

_HOMES = {
    "PruningFigures": "pruned",
    "Summary": "metrics",
    "TensorRow": "metrics",
    "cost_table": "tables",
    "join": "metrics",
    "plan_table": "plan_tables",
    "plan_totals": "plan_tables",
    "planned_line": "pruned",
    "pruning_figures": "pruned",
    "pruning_line": "pruned",
    "summarise_checkpoint": "metrics",
    "summarise_compressed": "metrics",
    "tensor_table": "tables",
    "to_json": "as_json",
    "totals": "tables",
}

__all__ = [
    "PruningFigures",
    "Summary",
    "TensorRow",
    "cost_table",
    "join",
    "plan_table",
    "plan_totals",
    "planned_line",
    "pruning_figures",
    "pruning_line",
    "summarise_checkpoint",
    "summarise_compressed",
    "tensor_table",
    "to_json",
    "totals",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
