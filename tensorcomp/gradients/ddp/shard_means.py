"""What owners make of the mean of a part: how they compress it, and what becomes of its rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tensorcomp.gradients.base import Compressor, chain, leaf_of
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.ddp.coding_groups import Context, Unit, UnitWork
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.partition import OWNED, Part, cut, share_out
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback


def parts_of(unit: Unit, world: int, context: Context) -> tuple[Part, ...]:
    """Return how a unit is cut into the parts of its owners; worked out once.

    Parameters
    ----------
    unit : Unit
    world : int
    context : Context

    Returns
    -------
    tuple of Part
    """
    parts: tuple[Part, ...] | None = unit.notes.get("parts")
    if parts is None:
        ownership = share_out(context.sizes, world)
        parts = cut(unit, ownership, world, compressor_of_means(unit.compressor))
        unit.notes["parts"] = parts
    return parts


def give_back(works: Sequence[UnitWork], link: Link, context: Context) -> None:
    """Add what this rank left out of the means of gradients that owners do not reduce any more.

    All ranks miss it, so it counts once for each of them.

    Parameters
    ----------
    works : sequence of UnitWork
        Gradients are changed.
    link : Link
    context : Context
        The owner's states are gone from its memory once the step is done.
    """
    for work in works:
        unit = work.unit
        if work.silent or not any(context.kept.holds(OWNED + name) for name in unit.key):
            continue
        ownership = share_out(context.sizes, link.world)
        part = part_of(cut(unit, ownership, link.world, ErrorFeedback(Dense())), link.rank)
        if part is not None:
            state: Any = context.kept.state(part.owned)
            flat = work.gradient.reshape(-1)
            part.put(part.take(flat) + link.world * state.residual.astype(flat.dtype), flat)
            context.kept.stage(part.owned, None)


def compressor_of_means(compressor: Compressor) -> Compressor:
    """Return what an owner compresses means with.

    The same leaf, with error feedback if the workers have it, or if what it leaves out is not zero
    on average: all ranks miss what an owner leaves out, and nobody else could send it later.

    Parameters
    ----------
    compressor : Compressor
        The workers', concrete.
    """
    leaf = leaf_of(compressor)
    feedback = next((one for one in chain(compressor) if isinstance(one, ErrorFeedback)), None)
    if _is_lossless(leaf) or (feedback is None and leaf.unbiased):
        return leaf
    return ErrorFeedback(leaf) if feedback is None else replace(feedback, inner=leaf)


def _is_lossless(leaf: Compressor) -> bool:
    return isinstance(leaf, Dense) or (isinstance(leaf, TreeCompressor) and leaf.tree.lossless)


def part_of(parts: Sequence[Part], rank: int) -> Part | None:
    """Return the part that a rank owns, None if it owns none."""
    return next((part for part in parts if part.owner == rank), None)
