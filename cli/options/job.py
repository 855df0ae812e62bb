"""All options that say how to compress, for the verbs that plan or do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .budget import budget_of, lossy_options, plan_option
from .common import force, threads, together
from .pruning import prune_options, pruning_of

if TYPE_CHECKING:
    from tensorcomp.pipeline.options import CompressOptions

plan_options = together(lossy_options, prune_options, threads, force)
job_options = together(lossy_options, plan_option, prune_options, threads, force)


def options_of(asked: dict[str, Any]) -> CompressOptions:
    """Return what the options of a verb ask for."""
    budget, prune = budget_of(asked), pruning_of(asked)
    from tensorcomp.pipeline.options import CompressOptions

    return CompressOptions(budget=budget, prune=prune, **asked)
