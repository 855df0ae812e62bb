"""Record what weights are multiplied with, and the results' gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tensorcomp.calibration.weight_reads import Read, WeightReads


class Part(NamedTuple):
    """Rows of a weight: blocks of rows × inputs, or inputs × rows."""

    name: str
    first_row: int
    rows: int  # of each block
    of: int  # all rows of the weight
    blocks: int = 1
    transposed: bool = False
    is_lookup: bool = False


@dataclass(eq=False)
class Use:
    """A product, convolution or lookup of a part of a weight.

    Parameters
    ----------
    part : Part
    inputs : torch.Tensor
        (…, n) of a product, (blocks, …, n) where there are several; (N, C, …) of a convolution;
        the indices of a lookup.
    convolution : tuple, optional
        Kernel sizes, strides, paddings, dilations and groups.
    is_root : bool
        Whether the inputs depend on no weight.
    edge : torch.autograd.graph.GradientEdge, optional
        Where the gradient of the result arrives; none without autograd.
    """

    part: Part
    inputs: torch.Tensor
    convolution: tuple[Any, ...] = ()
    is_root: bool = False
    edge: GradientEdge | None = None

    def key(self) -> tuple[Any, ...]:
        """Return what equal inputs have in common while they are kept in memory."""
        x = self.inputs
        where = x.untyped_storage()._cdata, x.storage_offset(), x._version
        return (*where, x.shape, x.stride(), self.convolution)


class WeightUses:
    """All uses of weights on a minibatch.

    Attributes
    ----------
    uses : list of Use
    others : set of str
        Weights that other operations read, such as a product of a part of their rows.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._reads = WeightReads(weights, self._heard)
        self.uses: list[Use] = []
        self.others: set[str] = set()
        self._own = {id(weight) for weight in weights.values()}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record uses in this block."""
        with self._reads.listening():
            yield

    def differentiate(self, loss: torch.Tensor, found: Callable[[Use, torch.Tensor], None]) -> None:
        """Call a function with each use and the gradient of the loss by its result.

        Gradients of weights are not computed: differentiation ends at results that depend on no
        other weight.
        """
        reached = [use for use in self.uses if use.edge is not None]
        for use in reached:
            if use.edge is not None and not use.is_root:
                use.edge.node.register_prehook(partial(_hear, use, found))
        roots = [use for use in reached if use.is_root]
        ends: list[Any] = [use.edge for use in roots]
        ends += [leaf for leaf in _leaves(loss) if id(leaf) not in self._own]
        if not ends or not loss.requires_grad:
            return
        gradients = torch.autograd.grad(loss, ends, allow_unused=True)
        for use, gradient in zip(roots, gradients, strict=False):
            _hear(use, found, (gradient,))

    def _heard(self, read: Read) -> Callable[[], None] | None:
        at, use = self._use_of(read)
        self.others.update(name for place, name in read.names.items() if place != at)
        if use is None:
            return None
        use.is_root = not use.inputs.requires_grad
        self.uses.append(use)

        def take_edge() -> None:  # before the result may be changed in place
            if read.result.requires_grad:
                use.edge = get_gradient_edge(read.result)

        return take_edge

    def _use_of(self, read: Read) -> tuple[int | None, Use | None]:
        """Return where the weight stands in an operation, and its use, if it is one."""
        args, names = read.args, read.names
        at, use = read.product(), None
        if at is not None and not read.options:
            weight = self._reads.weights[names[at]]
            part = _part(names[at], weight, args[at], self._reads.offset(names[at], args[at]))
            use = None if part is None else Use(part, args[at - 1])
        elif read.is_convolution() and args[1].shape == self._reads.weights[names[1]].shape:
            at, kernel, groups = 1, args[1], args[8]
            place = Part(names[1], 0, len(kernel) // groups, len(kernel), groups)
            settings = (tuple(kernel.shape[2:]), *map(tuple, args[3:6]), groups)
            use = Use(place, args[0], settings)
        elif read.is_lookup() and args[0].shape == self._reads.weights[names[0]].shape:
            at = 0
            use = Use(Part(names[0], 0, len(args[0]), len(args[0]), is_lookup=True), args[1])
        return (None if use is None else at), use


def _hear(
    use: Use, found: Callable[[Use, torch.Tensor], None], gradients: Sequence[torch.Tensor | None]
) -> None:
    if gradients[0] is not None:
        found(use, gradients[0])


def _leaves(loss: torch.Tensor) -> list[torch.Tensor]:
    """Return the leaves that a loss depends on."""
    pending, seen = [loss.grad_fn], set()
    while pending:
        if (node := pending.pop()) is not None and node not in seen:
            seen.add(node)
            pending += [before for before, _ in node.next_functions]
    return [node.variable for node in seen if hasattr(node, "variable")]


def _part(name: str, weight: torch.Tensor, matrix: torch.Tensor, offset: int) -> Part | None:
    """Return which whole rows ``inputs @ matrix`` reads; None if it does not read whole rows."""
    down, across = weight.shape[-2:]
    w_down, w_across = weight.stride()[-2:]
    inputs, outputs = matrix.shape[-2:]
    m_in, m_out = matrix.stride()[-2:]
    step = down * across
    if weight.ndim > 2 and not weight.is_contiguous():
        return None
    block, within = divmod(offset, step) if weight.ndim > 2 else (0, offset)

    def fits(length: int, of_inputs: int, of_outputs: int) -> bool:
        steps_fit = m_in == of_inputs or inputs == 1, m_out == of_outputs or outputs == 1
        return inputs == length and all(steps_fit) and within % of_outputs == 0

    if fits(across, w_across, w_down):
        rows, first, transposed = down, within // w_down, False
    elif fits(down, w_down, w_across):
        rows, first, transposed = across, within // w_across, True
    else:
        return None
    if first + outputs > rows:
        return None
    start = block * rows + first
    blocks = matrix.shape[0] if matrix.ndim == 3 and matrix.stride(0) else 1
    if blocks > 1 and (outputs != rows or matrix.stride(0) != step):
        return None
    of = rows * math.prod(weight.shape[:-2])
    return Part(name, start, outputs, of, blocks, transposed)
