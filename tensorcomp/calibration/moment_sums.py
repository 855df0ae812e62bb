"""Sum second moments of inputs, and squared gradients of outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from tensorcomp.calibration.derivatives import sum_of_squares, widened
from tensorcomp.calibration.weight_uses import Part, Use
from tensorcomp.errors import PruningError

_MAX_PATCHES = 1 << 24  # elements that are unfolded at a time


@dataclass
class _Total:
    """A sum of x xᵀ over positions: (blocks, n, n)."""

    matrix: torch.Tensor | None = None
    positions: int = 0

    def add(self, matrix: torch.Tensor, positions: int) -> None:
        # In float64, but on a GPU, which would be slow.
        self.positions += positions
        if self.matrix is None:
            wide = matrix.device.type == "cpu" or matrix.dtype == torch.float64
            self.matrix = matrix.double() if wide else matrix
        else:
            self.matrix += matrix

    def copy(self) -> _Total:
        return _Total(None if self.matrix is None else self.matrix.clone(), self.positions)


@dataclass(frozen=True)
class Measured:
    """Second moments and row weights of one weight.

    Parameters
    ----------
    moment : torch.Tensor
        (groups, n, n), the mean over positions.
    row_weight : torch.Tensor, optional
        Of each row; none where no gradient arrives.
    positions : int
        Samples of the mean, of the group that has fewest.
    transposed : bool
        Whether the weight is of inputs × outputs.
    source : tuple
        Equal for two weights that always read the same.
    """

    moment: torch.Tensor
    row_weight: torch.Tensor | None
    positions: int
    transposed: bool
    source: tuple[object, ...]


class MomentSums:
    """Sums over the uses of weights, and the quadratic models that follow.

    Weights that always read the same tensors share one sum.

    Attributes
    ----------
    terms : int
        Terms of the loss, such as tokens or samples: add to it.
    others : set of str
        Weights that are left out, since other operations read them: add to it.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self.weights = weights
        self.terms = 0
        self.others: set[str] = set()
        self._inputs: dict[Part, _Total] = {}
        self._gradients: dict[Part, _Total] = {}  # of the results of lookups
        self._rows: dict[Part, torch.Tensor] = {}
        self._counts: dict[Part, torch.Tensor] = {}

    def add(self, uses: Sequence[Use], mask: torch.Tensor | None, place: str) -> None:
        """Count the inputs of a minibatch, at positions where a mask is true."""
        by_part: dict[Part, list[Use]] = {}
        for use in uses:
            if use.part.is_lookup:
                length = len(self.weights[use.part.name])
                found = torch.bincount(_kept(use.inputs, mask).flatten(), minlength=length)
                self._counts[use.part] = self._counts.get(use.part, 0) + found
            else:
                by_part.setdefault(use.part, []).append(use)
        slots: dict[tuple[object, ...], list[Part]] = {}
        for part in {**self._inputs, **by_part}:
            read = tuple(use.key() for use in by_part.get(part, ()))
            slots.setdefault((id(self._inputs.get(part)), part.blocks, read), []).append(part)
        # All parts that had one sum may have several from here on.
        before, self._inputs = self._inputs, {}
        kept: set[int] = set()
        for parts in slots.values():
            old = before.get(parts[0], _Total())
            total = old.copy() if id(old) in kept else old
            kept.add(id(old))
            self._inputs.update(dict.fromkeys(parts, total))
        for parts in slots.values():
            for use in by_part.get(parts[0], ()):
                for matrix, positions in _moments(use, mask):
                    _require_finite(matrix.diagonal(dim1=1, dim2=2), "input", parts[0], place)
                    self._inputs[parts[0]].add(matrix, positions)

    def add_gradient(
        self, use: Use, gradient: torch.Tensor, *, mask: torch.Tensor | None, place: str
    ) -> None:
        """Count the gradient of the loss by the result of a use."""
        part = use.part
        if part.is_lookup:
            rows = widened(_kept(gradient, mask).reshape(-1, gradient.shape[-1]))
            moment = (rows.mT @ rows)[None]
            _require_finite(moment.diagonal(dim1=1, dim2=2), "gradient", part, place)
            self._gradients.setdefault(part, _Total()).add(moment, len(rows))
            return
        if use.convolution:
            found = sum_of_squares(gradient.movedim(1, 0).flatten(1), 1)
        else:
            found = sum_of_squares(_positions(gradient, part.blocks, mask), 1).flatten()
        _require_finite(found, "gradient", part, place)
        before = self._rows.get(part)
        found = found.double() if found.device.type == "cpu" else found
        self._rows[part] = found if before is None else before + found

    def measured(self, name: str) -> Measured | None:
        """Return what was measured of a weight; None if nothing reads it."""
        if name in self.others:
            return None
        product = self._of_products(name)
        lookup = self._of_lookups(name)
        if product is None or lookup is None:
            return product or lookup
        if product.transposed or len(product.moment) != 1:
            self.others.add(name)
            return None
        return _tied(product, lookup)

    def _of_lookups(self, name: str) -> Measured | None:
        part = next((part for part in self._counts if part.name == name), None)
        if part is None:
            return None
        total = self._gradients.get(part, _Total())
        counts = self._counts[part] / self.terms
        if total.matrix is None:
            width = self.weights[name].shape[-1]
            return Measured(counts.new_zeros(1, width, width), None, 0, False, (name,))
        moment = total.matrix / max(total.positions, 1)
        return Measured(moment, counts if moment.any() else None, total.positions, False, (name,))

    def _of_products(self, name: str) -> Measured | None:
        parts = {part: total for part, total in self._inputs.items() if part.name == name}
        if not any(total.positions for total in parts.values()):
            return None
        transposed = next(iter(parts)).transposed
        if any(part.transposed != transposed for part in parts):
            self.others.add(name)  # rows of one use are columns of another
            return None
        of = next(iter(parts)).of
        sizes = {part.rows for part in parts if part.rows * part.blocks == of}
        size = math.gcd(of, *itertools.chain(*((part.first_row, part.rows) for part in parts)))
        if len(parts) == len(sizes) == 1:
            size = next(iter(sizes))
        read: list[list[tuple[_Total, int]]] = [[] for _ in range(of // size)]
        for part, total in parts.items():
            for at in range(part.rows * part.blocks // size):
                read[part.first_row // size + at].append((total, at * size // part.rows))
        blocks = [_mean(totals) for totals in read]
        rows = [(part, self._rows[part]) for part in parts if part in self._rows]
        fisher = rows[0][1].new_zeros(of) if rows else None
        for part, found in rows:
            assert fisher is not None
            fisher[part.first_row : part.first_row + len(found)] += found / self.terms
        if fisher is not None and not fisher.any():
            fisher = None
        width = max(matrix.shape[-1] for matrix, _ in blocks)
        stack = [matrix if len(matrix) else matrix.new_zeros(width, width) for matrix, _ in blocks]
        return Measured(
            torch.stack(stack),
            fisher,
            min(positions for _, positions in blocks if positions),
            transposed,
            tuple(tuple((id(total), at) for total, at in totals) for totals in read),
        )


def _mean(totals: Sequence[tuple[_Total, int]]) -> tuple[torch.Tensor, int]:
    """Return the mean second moment of a block of rows, by all of its uses; empty without any."""
    found = [(total, at) for total, at in totals if total.matrix is not None]
    positions = sum(total.positions for total, _ in found)
    if not positions:
        return torch.zeros(0, 0), 0
    matrix = sum(total.matrix[at] for total, at in found if total.matrix is not None) / positions
    assert isinstance(matrix, torch.Tensor)
    return (matrix + matrix.mT) / 2, positions


def _tied(product: Measured, lookup: Measured) -> Measured:
    """Join the models of a table that is the matrix of the output layer, too.

    Their sum is Σ_r e_r (F_r H + f_r G) e_rᵀ; one moment and a weight of each row have its mean.
    """
    if product.row_weight is None or lookup.row_weight is None:
        return replace(product, row_weight=None)
    sides = [(side.row_weight, side.moment[0]) for side in (product, lookup)]
    moment = sum(rows.mean() * matrix for rows, matrix in sides if rows is not None)
    rows = sum(rows * matrix.trace() for rows, matrix in sides if rows is not None)
    assert isinstance(moment, torch.Tensor)
    return Measured(
        moment[None],
        rows / moment.trace(),
        min(product.positions, lookup.positions),
        transposed=False,
        source=(product.source, lookup.source),
    )


def _kept(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return values by position without those that a mask excludes, if it is of their positions."""
    if mask is None or values.shape[: mask.ndim] != mask.shape:
        return values
    return values[mask.to(values.device)]


def _positions(values: torch.Tensor, blocks: int, mask: torch.Tensor | None) -> torch.Tensor:
    """Return what products read or gave, as (blocks, positions, n)."""
    rows = values.reshape(blocks, -1, values.shape[-1])
    if mask is not None and blocks == 1 and rows.shape[1] == mask.numel():
        rows = rows[:, mask.flatten().to(rows.device)]
    return rows


def _moments(use: Use, mask: torch.Tensor | None) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield sums of x xᵀ, and how many positions are in them."""
    pieces = _patches(use) if use.convolution else [_positions(use.inputs, use.part.blocks, mask)]
    for piece in pieces:
        rows = widened(piece.detach())
        yield rows.mT @ rows, rows.shape[1]


def _patches(use: Use) -> Iterator[torch.Tensor]:
    """Yield what the kernel of a convolution reads: (groups, samples and places, n)."""
    kernel, strides, paddings, dilations, groups = use.convolution
    padding = [side for one in reversed(paddings) for side in (one, one)]
    of_sample = use.inputs[0].numel() * math.prod(kernel)
    for images in torch.split(use.inputs, max(1, _MAX_PATCHES // max(of_sample, 1))):
        patches = F.pad(images, padding)
        for axis, (size, stride, dilation) in enumerate(
            zip(kernel, strides, dilations, strict=True), 2
        ):
            windows = patches.unfold(axis, dilation * (size - 1) + 1, stride)
            patches = windows[..., ::dilation]
        inputs = patches.shape[1] // groups * math.prod(kernel)
        split = torch.unflatten(patches, 1, (groups, -1)).movedim(1, 0)  # groups, samples, …
        yield split.movedim(2, 2 + len(kernel)).reshape(groups, -1, inputs)


def _require_finite(values: torch.Tensor, what: str, part: Part, place: str) -> None:
    if not bool(values.isfinite().all()):
        raise PruningError(f"the {what} of {part.name!r} is not finite in {place}")
