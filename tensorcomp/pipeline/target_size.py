"""Write files again with corrected plans until they keep a size."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tensorcomp.codecs.tree import Node
from tensorcomp.container.records import TensorRecord
from tensorcomp.errors import InfeasibleBudgetError
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.planning.plan import Plan, TensorPlan
from tensorcomp.planning.steps import has_free_step, scale_steps

if TYPE_CHECKING:
    from tensorcomp.planning.allocation import AllocationProblem

_PASSES = 6  # the second is mostly the last
_CLOSE = 0.995  # of the size: what is used of it at least, if there is anything to use it for
_ROOM = 0.998

Write: TypeAlias = "Callable[[Plan], list[FileResult]]"


def write_to_budget(
    problem: AllocationProblem, most: int, keys: Sequence[Mapping[str, str]], write: Write
) -> list[FileResult]:
    """Write files under allocated plans until they keep a size.

    Parameters
    ----------
    problem : AllocationProblem
    most : int
        Bytes of all files together.
    keys : sequence of mapping of str to str
        For each file, the names of its tensors in the problem, in the file's order.
    write : callable
        Writes all files under a plan, in place of those before, and returns the result of each.

    Raises
    ------
    InfeasibleBudgetError
        If the size cannot be kept.
    """
    order = [key for names in keys for key in names.values()]
    best: tuple[int, Plan] | None = None
    least = sys.maxsize
    trees: list[Node | None] | None = None
    for _ in range(_PASSES):
        plan = problem.allocate(most, order)
        before, trees = trees, [plan.tensors[key].tree for key in order]
        if trees == before:
            break  # nothing that could use what is left
        results, last = write(plan), plan
        written = list(_by_key(results, keys))
        sizes = {key: result.stored(record) for key, result, record in written}
        total = sum(result.output_bytes for result in results)
        if _CLOSE * most <= total <= most:
            return results
        if total <= most:
            best = max(best or (0, plan), (total, plan), key=lambda pair: pair[0])
        refused = [key for key, result, record in written if record.name in result.refused]
        problem = problem.corrected(plan, sizes, refused, total - sum(sizes.values()))
        least = min(least, total)
    if best is None:
        raise problem.impossible(least, most)
    return results if last is best[1] else write(best[1])


def _by_key(
    results: Sequence[FileResult], keys: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, FileResult, TensorRecord]]:
    """Yield each tensor's key, the result of its file, and its record."""
    for names, result in zip(keys, results, strict=True):
        for name, record in result.manifest.tensors.items():
            yield names[name], result, record


def write_with_plan(
    plan: Plan, keys: Sequence[Mapping[str, str]], write: Write
) -> list[FileResult]:
    """Write files under a given plan; grow all steps alike to keep its size.

    Its budget counts if it is a size. Tensors with a bound keep their steps. Keys and the callable
    are those of `write_to_budget`.

    Raises
    ------
    InfeasibleBudgetError
        If the size cannot be kept.
    """
    for _ in range(_PASSES):
        results = write(plan)
        total = sum(result.output_bytes for result in results)
        elements = {key: math.prod(record.shape) for key, _, record in _by_key(results, keys)}
        input_bytes = sum(result.input_bytes for result in results)
        weights = sum(result.weights for result in results)
        most = plan.budget.size(input_bytes, weights)
        if most is None or total <= most:
            return results
        movable = {key for key, tensor in plan.tensors.items() if _may_grow(tensor)}
        if not movable:
            break
        octaves = 8 * (total - _ROOM * most) / max(sum(elements[key] for key in movable), 1)
        factor = 2 ** min(octaves, 8.0)
        grown = {
            key: replace(tensor, tree=scale_steps(tensor.tree, factor))
            for key, tensor in plan.tensors.items()
            if key in movable and tensor.tree is not None
        }
        plan = replace(plan, tensors={**plan.tensors, **grown})
    assert most is not None
    raise InfeasibleBudgetError(
        f"expected {most:,} bytes at most, got {total:,} under the plan; give a larger budget",
        requested_bytes=most,
        least_bytes=total,
    )


def _may_grow(tensor: TensorPlan) -> bool:
    return tensor.tree is not None and tensor.bound is None and has_free_step(tensor.tree)
