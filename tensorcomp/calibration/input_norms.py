"""Measure ‖X‖₂ of each input feature that weights are multiplied with."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from tensorcomp.calibration.derivatives import sum_of_squares
from tensorcomp.calibration.weight_reads import Read, WeightReads
from tensorcomp.calibration.weight_uses import unfolded


class _Part(NamedTuple):
    """The part of a weight that an operation reads: (…, outputs, inputs) in the weight's memory."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class InputNorms:
    """Sums of squares of what weights are multiplied with while a block runs.

    Inputs count wherever a weight, a part or a transposed view of it, or its copy in another dtype
    is the matrix of a product or the kernel of a convolution, in whichever layer or function; those
    of all uses of a weight add up. Transposed convolutions do not count.

    Attributes
    ----------
    weights : mapping of str to torch.Tensor
    sums : dict of str to dict
        The squares so far, of each part of the weights that was read: float32, float64 for float64
        weights; they broadcast with the part.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self.weights = weights
        self.sums: dict[str, dict[_Part, torch.Tensor]] = {}
        self._read: set[str] = set()
        self._reads = WeightReads(weights, self._count)

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """Count inputs in this block only, not where layers run again."""
        return self._reads.listening()

    def norms(self) -> dict[str, torch.Tensor]:
        """Return ‖X‖₂ of the weights that samples reach.

        Of the shape of one output's weights where all outputs read the same, of a column for a
        matrix of inputs × outputs, else of the weight's shape.
        """
        totals = {name: _total(self.weights[name], parts) for name, parts in self.sums.items()}
        return {
            name: total.sqrt() for name, total in totals.items() if total.any() or not total.numel()
        }

    def unreached(self) -> set[str]:
        """Return the weights that no sample reaches."""
        return self.weights.keys() - self._read | self.sums.keys() - self.norms().keys()

    def non_finite(self) -> list[str]:
        """Return the weights that read an infinity or NaN."""
        finite = {
            name: all(bool(squares.isfinite().all()) for squares in parts.values())
            for name, parts in self.sums.items()
        }
        return [name for name in finite if not finite[name]]

    def _count(self, read: Read) -> None:
        args, names = read.args, read.names
        self._read.update(names.values())
        kind, at = read.use()
        if kind == "product":
            self._add(names[at], read.offsets[at], *_of_product(args[at - 1], args[at]))
        elif kind == "convolution":
            self._add(names[at], read.offsets[at], *_of_convolution(args))

    def _add(self, name: str, offset: int, part: _Part, squares: torch.Tensor) -> None:
        part = part._replace(offset=offset)
        sums = self.sums.setdefault(name, {})
        sums[part] = squares.to(sums[part].device) + sums[part] if part in sums else squares


def _of_product(inputs: torch.Tensor, matrix: torch.Tensor) -> tuple[_Part, torch.Tensor]:
    """Return what ``inputs @ matrix`` reads; a matrix that is expanded is read many times."""
    squares = sum_of_squares(inputs, -2)[..., None, :]
    *batch, count, outputs = matrix.shape
    *steps, down, right = matrix.stride()
    if batch and (batch[0] == 1 or not steps[0]):
        squares, batch, steps = squares.sum(0), [], []
    return _Part((*batch, outputs, count), (*steps, right, down), 0), squares


def _of_convolution(args: Sequence[Any]) -> tuple[_Part, torch.Tensor]:
    """Return what a convolution reads, of the sum over samples."""
    inputs, kernel, _, *settings, _, _, groups = args
    total = sum_of_squares(inputs, 0)[None]
    squares = unfolded(total, (kernel.shape[2:], *settings, groups)).sum(1)
    of_group = kernel.view(groups, -1, *kernel.shape[1:])
    part = _Part(of_group.shape, of_group.stride(), 0)
    return part, squares.reshape(groups, 1, *kernel.shape[1:])


def _total(weight: torch.Tensor, parts: Mapping[_Part, torch.Tensor]) -> torch.Tensor:
    """Add up all that was read by parts of a weight."""
    first, *others = parts.items()
    (size, stride, _), squares = first
    own = weight.shape, weight.stride()
    if not others and (size[-weight.ndim :], stride[-weight.ndim :]) == own and len(squares) == 1:
        return squares.reshape(weight.shape[1:])
    if not others and (size[::-1], stride[::-1]) == own:
        return squares.T
    total = torch.zeros_like(weight, dtype=squares.dtype, requires_grad=False)
    for part, squares in parts.items():
        total.as_strided(*part).add_(squares)
    return total
