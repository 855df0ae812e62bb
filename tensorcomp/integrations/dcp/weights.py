"""Let budgets change the weights of a training checkpoint, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.codecs.text import parse_tree
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.writer import SizeOnly
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.planning.plan import Plan, TensorPlan
from tensorcomp.planning.roles.classify import matches_role, roles_of

_OPTIMIZER = ("moment", "step", "optimizer")


def exact_optimizer(options: CompressOptions) -> CompressOptions:
    """Return options that keep optimizer state unless asked for it by name."""
    if options.plan is not None or options.is_lossless:
        return options
    profile = options.planner().profile
    return replace(
        options, profile=replace(profile, protect=tuple({*profile.protect, *_OPTIMIZER}))
    )


def planned_for_weights(
    options: CompressOptions, threads: int, tensors: Mapping[str, Any], objects: Collection[str]
) -> CompressOptions:
    """Return options with a plan that keeps a size for the weights alone.

    Parameters
    ----------
    options : CompressOptions
    threads : int
    tensors : mapping of str to array
        All that a rank stores.
    objects : collection of str
        Those that are no weights, whatever their names.
    """
    options = replace(options, threads=threads)
    if options.plan is not None or options.is_lossless:
        return options
    planner = options.planner()
    if not planner.budget.is_size:
        return options
    rules = [rule for rule in planner.rules if rule.by_name]
    roles = roles_of(MemoryCheckpoint(tensors).tensors)
    weights = {
        name: tensors[name]
        for name, role in roles.items()
        if any(rule.selects(name, role) for rule in rules)
        or not (name in objects or any(matches_role(own, role) for own in _OPTIMIZER))
    }
    plans = dict.fromkeys(tensors, TensorPlan(reason="no size is asked of it"))
    if weights:
        alone = compress_source(MemoryCheckpoint(weights), SizeOnly(), options)
        plans |= _plans(alone.manifest)
    return CompressOptions(
        plan=Plan(plans, effort=planner.effort),
        threads=threads,
        prune=options.prune,
        statistics=options.statistics,
    )


def _plans(manifest: Manifest) -> dict[str, TensorPlan]:
    """Return plans that lead to the trees of a file that keeps its size."""
    plans = {}
    for name in manifest.tensors:
        record = manifest.stored(name)
        if record.tree is not None:
            tree = parse_tree(manifest.trees[record.tree].tree)
            if not tree.lossless:
                plans[name] = TensorPlan(tree, manifest.trees[record.tree].reason)
    return plans
