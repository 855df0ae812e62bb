"""Choose the encoder of a tensor from its plan, and encode its chunks.

A lossy chunk is decoded again as soon as it is encoded, and compared with what it was: the errors
that are reported, and the bounds that are promised, hold for what a reader gets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import as_words, readable
from tensorcomp.codecs.feedback import encoder_with
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.rounding import all_finite, is_float
from tensorcomp.codecs.text import format_tree, parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.container.blob import CODED, FALLBACK, ChunkCoder
from tensorcomp.container.chunk_grid import CHUNK_ELEMENTS, ChunkGrid
from tensorcomp.container.tensor_blob import chunk_roots
from tensorcomp.container.writer import Payload
from tensorcomp.errors import NotRepresentable
from tensorcomp.metrics.distortion import ErrorSums, measure
from tensorcomp.planning.budgets import NO_FEEDBACK, Bound
from tensorcomp.planning.calibrated import Calibrated, takes_feedback
from tensorcomp.planning.lossless import any_tree, plan_lossless, sample_rows
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.reference_trees import plan_with_reference
from tensorcomp.planning.steps import has_free_step, scale_steps
from tensorcomp.planning.trials import bound_of_sample, errors_of, fit_steps

_AIM = 0.997  # of a bound that was broken
_ATTEMPTS = 4
_FEW_VALUES = 0.3  # share up to which gaps take fewer bytes than a bit for each place
_EXACT = ErrorSums()


class EncodedChunk(NamedTuple):
    """Encoded chunk, with the errors of what it decodes to.

    Parameters
    ----------
    payload : Payload
    errors : ErrorSums
        Of what the payload decodes to; all zeros if it is exact.
    decoded : numpy.ndarray or None
        That, if its tree may lose something: flat uint8.
    mark : int
        The payload's first byte: how it is coded (see `container.blob`).
    from_original : ErrorSums
        As `errors`, but against the chunk before it was pruned; all zeros if `decoded` is None.
    keeps_zeros : bool
        Whether what was pruned is still +0.0.
    """

    payload: Payload
    errors: ErrorSums = _EXACT
    decoded: np.ndarray | None = None
    mark: int = CODED
    from_original: ErrorSums = _EXACT
    keeps_zeros: bool = True


@dataclass(frozen=True)
class TensorEncoder:
    """Encoder of the chunks of one tensor.

    Parameters
    ----------
    coder : ChunkCoder
    reason : str
        Why that tree.
    roots : tuple of Node
        The tree that encodes each chunk; empty if it is the coder's first for all.
    bound : Bound or None
        Limit of the decoded tensor's errors.
    attempts : int
        Number of times that a step was made smaller since the bound was broken.
    calibrated : Calibrated or None
        Statistics by which the output error is measured.
    rows : int
        Rows of a chunk.
    reference : numpy.ndarray or None
        What the tensor is coded against, of its shape and dtype.
    """

    coder: ChunkCoder
    reason: str
    roots: tuple[Node, ...] = ()
    bound: Bound | None = None
    attempts: int = 0
    calibrated: Calibrated | None = None
    rows: int = 0
    reference: np.ndarray | None = None

    @property
    def tree(self) -> Node:
        """The tree of the manifest."""
        return self.coder.trees[0]

    @property
    def lossless(self) -> bool:
        """Whether every bit is kept."""
        return self.tree.lossless

    def encode(self, array: np.ndarray, index: int) -> EncodedChunk:
        """Encode chunk `index`."""
        rows = None
        if self.reference is not None:
            rows = self.reference[self.rows * index : self.rows * index + len(array)]
        pieces = self.coder.encode(array, self.roots[index] if self.roots else None, rows)
        payload = Payload.of(pieces)
        if self.lossless:
            return EncodedChunk(payload)
        data = np.frombuffer(join(pieces), np.uint8)
        decoded = self.coder.decode(data, spec_of(array), None, rows)
        flat = decoded.reshape(-1).view(np.uint8)
        errors = self.measured(
            array, decoded, index, columns=math.prod(array.shape[1:]) if array.ndim > 1 else 0
        )
        return EncodedChunk(payload, errors, flat, int(data[0]))

    def measured(
        self, array: np.ndarray, decoded: np.ndarray, index: int, columns: int = 0
    ) -> ErrorSums:
        """Return the errors of a chunk, that of its output too where known."""
        errors = measure(array, decoded, columns)
        if self.calibrated is None:
            return errors
        return self.calibrated.measured(errors, array, decoded, self.rows * index)


def lossless_encoder(
    array: np.ndarray,
    grid: ChunkGrid,
    effort: str,
    reason: str = "",
    reference: np.ndarray | None = None,
) -> TensorEncoder:
    """Return the encoder that the lossless planner chooses."""
    plan = plan_lossless(array, effort, grid.stored)
    if reference is not None:
        plan = plan_with_reference(array, reference, plan)
    trees = (plan.tree,) if plan.fallback is None else (plan.tree, plan.fallback)
    reason = f"{reason}; {plan.reason}" if reason else plan.reason
    if reference is None or not plan.tree.codec.uses_reference:
        return TensorEncoder(_learn(trees, sample_rows(array), grid), reason)
    rows = sample_rows(array, CHUNK_ELEMENTS), sample_rows(reference, CHUNK_ELEMENTS)
    coder = _learn(trees, rows[0], grid, rows[1])
    return TensorEncoder(coder, reason, rows=grid.chunk, reference=reference)


def planned_encoder(
    array: np.ndarray,
    grid: ChunkGrid,
    plan: TensorPlan | None,
    effort: str,
    reference: np.ndarray | None = None,
) -> tuple[TensorEncoder, EncodedChunk | None]:
    """Return the encoder of a tensor by its plan; None means lossless.

    Steps are made to fit the plan's bound on the tensor itself, or on a chunk's worth of its rows.
    A tensor that holds NaN or infinity, or for which no step keeps the bound, is coded losslessly.

    Returns
    -------
    TensorEncoder
    EncodedChunk or None
        The only chunk, where it had to be encoded already.
    """
    if plan is None or plan.tree is None:
        reason, own = ("", "") if plan is None else (plan.reason, plan.effort)
        return lossless_encoder(array, grid, own or effort, reason, reference), None
    if not plan.tree.lossless and is_float(array.dtype) and not all_finite(array):
        reason = "holds NaN or infinity: lossless"
        return lossless_encoder(array, grid, effort, reason, reference), None
    if plan.bound is None or plan.tree.lossless:
        return _coder_of(replace(plan, bound=None), array, grid, effort), None
    known = plan.calibrated is not None and plan.calibrated.measures(grid.count)
    if plan.bound.max_output_error < math.inf and not known:
        why = "" if plan.calibrated is None else f" of inputs × outputs in {grid.count} chunks"
        return lossless_encoder(
            array, grid, effort, f"no output error{why} is known: lossless"
        ), None
    done: dict[Node, tuple[TensorEncoder, EncodedChunk]] = {}
    sample, bound = array, plan.bound
    if grid.count > 1:
        sample = readable(sample_rows(array, CHUNK_ELEMENTS))
        if plan.tree.codec.for_outliers:  # which rows are a sample's, decides its norm
            bound = bound_of_sample(array, sample, bound)

    @functools.cache
    def errors(tree: Node) -> ErrorSums | None:
        if grid.count > 1 and not (plan.calibrated and plan.for_output):
            return errors_of(tree, sample, _sampled(plan.reference))
        coder = _coder_of(replace(plan, tree=tree), array, grid, effort)
        start, stop = grid.bounds(grid.count // 2)
        encoded = coder.encode(array[start:stop], grid.count // 2)
        if grid.count == 1:
            done[tree] = coder, encoded
        return None if coder.lossless else encoded.errors

    tree: Node | None = plan.tree
    first = None if plan.fits_bound else errors(plan.tree)
    if first is None or bound.used(first.rel_l2, first.max_abs, first.output_error) > 1:
        tree = fit_steps(plan.tree, bound, errors)
    if tree is None:
        reason = f"no step of {plan.tree.codec.id} keeps {plan.bound}: lossless"
        return lossless_encoder(array, grid, effort, reason), None
    if tree in done:
        return done[tree]
    return _coder_of(replace(plan, tree=tree), array, grid, effort), None


def _coder_of(plan: TensorPlan, array: np.ndarray, grid: ChunkGrid, effort: str) -> TensorEncoder:
    """Return the encoder by a plan's tree."""
    tree, reason, calibrated = plan.tree, plan.reason, plan.calibrated
    assert tree is not None
    trees = (tree, any_tree(array.dtype, effort))
    try:
        roots = chunk_roots(tree, array, grid)
        if calibrated is not None:
            roots, why = _with_feedback(plan, tree, calibrated, grid, roots)
            reason = (
                f"{reason}; {NO_FEEDBACK}{why}" if why and NO_FEEDBACK not in reason else reason
            )
            calibrated = calibrated if calibrated.measures(grid.count) else None
        sample = sample_rows(array, CHUNK_ELEMENTS)
        coder = _learn(trees, sample, grid, _sampled(plan.reference))
    except NotRepresentable as error:
        return lossless_encoder(array, grid, effort, f"{error}: lossless", plan.reference)
    if coder.trees[0] != tree:
        return TensorEncoder(coder, f"{tree.codec.id} cannot represent it: lossless")
    return TensorEncoder(
        coder, reason, roots, plan.bound, 0, calibrated, grid.chunk, plan.reference
    )


def _sampled(reference: np.ndarray | None) -> np.ndarray | None:
    """Return the rows of a reference that belong to a chunk's worth of sampled ones."""
    return None if reference is None else readable(sample_rows(reference, CHUNK_ELEMENTS))


def _with_feedback(
    plan: TensorPlan,
    tree: Node,
    calibrated: Calibrated,
    grid: ChunkGrid,
    roots: tuple[Node, ...],
) -> tuple[tuple[Node, ...], str]:
    """Return the trees that encode chunks with feedback, or why there is none."""
    if not plan.for_output:
        return roots, "its own error is bounded"
    if roots or not takes_feedback(tree.text, calibrated.along):
        return roots, f"{tree.codec.id} does not round one input after the other"
    parts = (functools.partial(calibrated.feedback, *grid.bounds(i)) for i in range(grid.count))
    return tuple(encoder_with(tree, part) for part in parts), ""


def tightened_encoder(
    coder: TensorEncoder,
    errors: ErrorSums,
    marks: Collection[int],
    array: np.ndarray,
    grid: ChunkGrid,
    effort: str,
    *,
    keeps_zeros: bool = True,
) -> TensorEncoder | None:
    """Return the encoder to encode a tensor again; None if its bound is kept.

    Nothing is to be done if the errors of the tensor keep the bound, the tree has coded at least
    one chunk, as their marks show, and what was pruned is still zero; where it is not, the tree is
    put under a mask.
    """
    name, bound = coder.tree.codec.id, coder.bound
    if coder.lossless:
        return None
    exact = functools.partial(lossless_encoder, array, grid, effort, reference=coder.reference)
    if CODED not in marks:
        reason = "cannot represent it" if FALLBACK in marks else "makes it no smaller"
        return exact(f"{name} {reason}: lossless")
    if not math.isfinite(errors.rel_l2):
        return exact(f"{name} gives no finite error: lossless")
    if not keeps_zeros:
        masked = _under_mask(coder.tree, array)
        reason = f"{coder.reason}; under a mask, since {name} moves zeros"
        plan = TensorPlan(masked, reason, bound, calibrated=coder.calibrated)
        return _coder_of(plan, array, grid, effort)
    output = errors.output_error
    used = 0.0 if bound is None else bound.used(errors.rel_l2, errors.max_abs, output)
    if used <= 1:
        return None
    if coder.attempts >= _ATTEMPTS or not has_free_step(coder.tree) or not math.isfinite(used):
        return exact(f"{name} does not keep {bound}: lossless")
    tree = scale_steps(coder.tree, _AIM / used)
    plan = TensorPlan(
        tree, coder.reason, bound, calibrated=coder.calibrated, reference=coder.reference
    )
    found = _coder_of(plan, array, grid, effort)
    return replace(found, attempts=coder.attempts + 1)


def _under_mask(tree: Node, array: np.ndarray) -> Node:
    """Return the tree that stores zeros exactly and the other values by `tree`."""
    words = as_words(array)
    few = np.count_nonzero(words) <= _FEW_VALUES * words.size
    mask = "gaps" if few else "bitpack"
    return parse_tree(f"sparse(mask={mask}, values={format_tree(tree)})")


def _learn(
    trees: tuple[Node, ...],
    sample: np.ndarray,
    grid: ChunkGrid,
    reference: np.ndarray | None = None,
) -> ChunkCoder:
    if grid.count == 1:
        return ChunkCoder.alone(trees)
    return ChunkCoder.learn(trees, sample, reference)
