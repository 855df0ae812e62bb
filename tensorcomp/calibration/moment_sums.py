"""Sum second moments of inputs, and squared gradients of outputs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge

from tensorcomp.calibration.derivatives import sum_of_squares
from tensorcomp.calibration.weight_reads import Read, WeightReads
from tensorcomp.calibration.weight_uses import (
    Part,
    inputs_of,
    positions,
    second_moment,
    use_of,
)
from tensorcomp.errors import PruningError


class Measured(NamedTuple):
    """The second moments (groups, n, n) and row weights of one weight.

    The weight is of inputs × outputs if it is transposed. Positions are the samples of the mean,
    of the group that has fewest.
    """

    moment: torch.Tensor
    row_weight: torch.Tensor
    positions: int
    transposed: bool


class MomentSums:
    """Sums over the uses of weights, and the quadratic models that follow.

    Of products and convolutions the second moments are those of inputs, and the rows have squared
    gradients; of lookups the moments are those of gradients, and the rows are counted.

    Attributes
    ----------
    weights : mapping of str to torch.Tensor
    others : set of str
        Weights that are left out, since other operations read them, or in other ways.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self.weights = weights
        self.others: set[str] = set()
        self._reads = WeightReads(weights, self._heard)
        self._terms = 0
        self._moments: dict[Part, torch.Tensor] = {}
        self._positions: Counter[Part] = Counter()
        self._rows: dict[Part, torch.Tensor] = {}
        # Of a minibatch.
        self._place = ""
        self._mask: torch.Tensor | None = None
        self._edges: list[tuple[Part | None, Any]] = []  # of gradient edges, or tensors
        self._last: tuple[object, torch.Tensor, torch.Tensor, int] | None = None

    @contextmanager
    def listening(self, mask: torch.Tensor | None, place: str) -> Iterator[None]:
        """Count what weights read in this block, at positions where a mask is true."""
        self._mask, self._place, self._edges = mask, place, []
        with self._reads.listening():
            yield
        self._last = None

    def differentiate(self, loss: torch.Tensor, terms: int) -> None:
        """Count the gradients of a loss by what weights gave in the block before.

        Its terms are tokens or samples. Gradients by weights are not computed.
        """
        given, self._edges = self._edges, []
        self._terms += terms
        if not given or not loss.requires_grad:
            return
        found = torch.autograd.grad(loss, [edge for _, edge in given], allow_unused=True)
        for (part, _), gradient in zip(given, found, strict=True):
            if part is None or gradient is None:
                continue
            if part.kind == "convolution":
                rows = gradient.movedim(1, 0).flatten(1)[..., None]
            else:
                rows = positions(gradient, part.blocks, self._mask)
            if part.kind == "lookup":
                self._add_moment(part, *second_moment([rows]))
            else:
                self._add(self._rows, part, sum_of_squares(rows, 1).flatten())

    def measured(self, name: str) -> Measured | None:
        """Return what was measured of a weight; None if no gradient reaches it."""
        parts = [part for part in {**self._moments, **self._rows} if part.name == name]
        if len({part.transposed for part in parts}) > 1:
            self.others.add(name)  # rows of one use are columns of another
        if name in self.others or not parts:
            return None
        kinds = dict.fromkeys(part.kind for part in parts)
        found = [self._of_parts([p for p in parts if p.kind == kind]) for kind in kinds]
        sides = [side for side in found if side is not None]
        if len(sides) < len(found):
            return None
        if len(sides) > 1 and any(len(side.moment) > 1 for side in sides):
            self.others.add(name)
            return None
        return sides[0] if len(sides) == 1 else _tied(sides)

    def _heard(self, read: Read) -> None:
        use = use_of(read, self.weights)
        self.others.update(n for at, n in read.names.items() if use is None or at != use.at)
        if use is None:
            return
        if use.part.kind == "lookup":
            rows = positions(use.inputs[..., None], 1, self._mask).flatten()
            self._add(self._rows, use.part, torch.bincount(rows, minlength=use.part.rows))
        else:
            # Layers often read one after another the same, such as queries, keys and values.
            if self._last is None or self._last[0] != use.key():
                moment = second_moment(inputs_of(use, self._mask))
                self._last = use.key(), use.inputs, *moment
            self._add_moment(use.part, *self._last[2:])
        if read.result.requires_grad:
            self._edges.append((use.part, get_gradient_edge(read.result)))
        elif use.inputs.requires_grad:  # as in a reentrant checkpoint, which has torch say so
            self._edges.append((None, use.inputs))

    def _add_moment(self, part: Part, matrix: torch.Tensor, count: int) -> None:
        self._positions[part] += count
        self._add(self._moments, part, matrix)

    def _add(self, sums: dict[Part, torch.Tensor], part: Part, found: torch.Tensor) -> None:
        squares = found.diagonal(dim1=-2, dim2=-1) if found.ndim > 1 else found
        if not math.isfinite(squares.sum().item()):
            what = "gradient" if part.kind == "lookup" or sums is self._rows else "input"
            raise PruningError(f"the {what} of {part.name!r} is not finite in {self._place}")
        if part in sums:
            sums[part] += found
        else:  # In float64, but on a GPU, which would be slow.
            wide = found.device.type == "cpu" or found.dtype == torch.float64
            sums[part] = found.to(torch.float64 if wide else torch.float32, copy=True)

    def _of_parts(self, parts: Sequence[Part]) -> Measured | None:
        """Return the model of one kind of use; blocks of rows read different inputs."""
        parts = [part for part in parts if part in self._moments and part in self._rows]
        if not parts:
            return None
        first = self._moments[parts[0]]
        of = self.weights[parts[0].name].numel() // first.shape[-1]
        size = math.gcd(of, *(edge for part in parts for edge in (part.first_row, part.rows)))
        moment = first.new_zeros(of // size, *first.shape[1:])
        counts, rows = first.new_zeros(of // size), first.new_zeros(of)
        for part in parts:
            found, start = self._rows[part], part.first_row
            blocks = slice(start // size, (start + len(found)) // size)
            moment[blocks] += self._moments[part].repeat_interleave(part.rows // size, 0)
            counts[blocks] += self._positions[part]
            rows[start : start + len(found)] += found / self._terms
        if not rows.any() or not moment.any():
            return None
        moment /= counts.clamp(min=1)[:, None, None]
        fewest = int(counts[counts > 0].min())
        return Measured((moment + moment.mT) / 2, rows, fewest, parts[0].transposed)


def _tied(sides: Sequence[Measured]) -> Measured:
    """Join the models of a table that is the matrix of the output layer, too.

    Their sum is Σ_r e_r (F_r H + f_r G) e_rᵀ; one moment and a weight of each row have its mean.
    """
    moment = torch.stack([side.row_weight.mean() * side.moment for side in sides]).sum(0)
    rows = torch.stack([side.row_weight * side.moment[0].trace() for side in sides]).sum(0)
    fewest = min(side.positions for side in sides)
    return Measured(moment, rows / moment[0].trace(), fewest, transposed=False)
