"""What became of a checkpoint: figures, tables for people, JSON for programs.

Pure functions of what was read from files; nothing here opens one.
"""

from tensorcomp.reports.as_json import to_json
from tensorcomp.reports.metrics import (
    Summary,
    TensorRow,
    join,
    summarise_checkpoint,
    summarise_compressed,
)
from tensorcomp.reports.plan_tables import plan_table, plan_totals
from tensorcomp.reports.pruned import PruningFigures, planned_line, pruning_figures, pruning_line
from tensorcomp.reports.tables import cost_table, tensor_table, totals

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
