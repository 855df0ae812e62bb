"""Tell which rows of a weight an operation uses, and on which inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from tensorcomp.calibration.derivatives import widened
from tensorcomp.calibration.weight_reads import Read

_MAX_PATCHES = 1 << 24  # elements that are unfolded at a time


class Part(NamedTuple):
    """Rows of a weight: blocks of rows × inputs, or inputs × rows."""

    name: str
    first_row: int
    rows: int  # of each block
    blocks: int = 1
    transposed: bool = False
    kind: str = "product"  # or convolution, or lookup


class Use(NamedTuple):
    """A product, convolution or lookup of a part of a weight.

    Parameters
    ----------
    at : int
        Where the weight stands among the arguments.
    part : Part
    inputs : torch.Tensor
        (…, n) of a product, (blocks, …, n) where there are several; (N, C, …) of a convolution;
        the indices of a lookup.
    convolution : sequence
        Kernel sizes, strides, paddings, dilations and groups; empty of others.
    """

    at: int
    part: Part
    inputs: torch.Tensor
    convolution: Sequence[Any] = ()

    def key(self) -> tuple[Any, ...]:
        """Return what equal inputs have in common while they are kept in memory."""
        x = self.inputs
        where = x.untyped_storage()._cdata, x.storage_offset(), x._version
        return (*where, x.shape, x.stride(), self.part.blocks, self.convolution)


def use_of(read: Read, weights: Mapping[str, torch.Tensor]) -> Use | None:
    """Return an operation as a use of whole rows of a weight, if it is one."""
    (kind, at), args = read.use(), read.args
    if not kind or (kind == "product" and read.options):
        return None
    name, matrix = read.names[at], args[at]
    if kind == "product":
        part = _part(name, weights[name], matrix, read.offsets[at])
        return None if part is None else Use(at, part, args[at - 1])
    if matrix.shape != weights[name].shape:
        return None
    if kind == "lookup":
        return Use(at, Part(name, 0, len(matrix), kind=kind), args[1])
    part = Part(name, 0, len(matrix) // args[8], args[8], kind=kind)
    return Use(at, part, args[0], (matrix.shape[2:], *args[3:6], args[8]))


def _part(name: str, weight: torch.Tensor, matrix: torch.Tensor, offset: int) -> Part | None:
    """Return which whole rows ``inputs @ matrix`` reads; None if it does not read whole rows."""
    if weight.ndim < 2 or (weight.ndim > 2 and not weight.is_contiguous()):
        return None
    step = weight.shape[-2] * weight.shape[-1]
    block, within = divmod(offset, step) if weight.ndim > 2 else (0, offset)
    read, count = matrix.mT, matrix.shape[-1]
    for turned, transposed in ((weight, False), (weight.mT, True)):
        rows = turned.shape[-2]
        first, rest = divmod(within, max(turned.stride(-2), 1))
        axes = zip(read.shape[-2:], read.stride()[-2:], turned.stride()[-2:], strict=True)
        same = all(own == its or size == 1 for size, own, its in axes)
        if same and not rest and read.shape[-1] == turned.shape[-1] and first + count <= rows:
            blocks = len(matrix) if matrix.ndim == 3 and matrix.stride(0) else 1
            if blocks > 1 and (count != rows or matrix.stride(0) != step):
                return None
            return Part(name, block * rows + first, count, blocks, transposed)
    return None


def positions(values: torch.Tensor, blocks: int, mask: torch.Tensor | None) -> torch.Tensor:
    """Return what products read or gave, where a mask is true.

    It is (blocks, positions, n). A mask of another number of positions does not matter.
    """
    rows = values.reshape(blocks, -1, values.shape[-1])
    if mask is not None and blocks == 1 and rows.shape[1] == mask.numel():
        rows = rows[:, mask.flatten().to(rows.device)]
    return rows


def second_moment(pieces: Iterable[torch.Tensor]) -> tuple[torch.Tensor, int]:
    """Return the sum of x xᵀ of pieces (blocks, positions, n), and of positions."""
    sums: list[torch.Tensor] = []
    count = 0
    for piece in pieces:
        rows = widened(piece.detach())
        with torch._C._DisableAutocast():
            sums = [sum(sums, start=rows.mT @ rows)]
        count += rows.shape[1]
    return sums[0], count


def inputs_of(use: Use, mask: torch.Tensor | None) -> Iterator[torch.Tensor]:
    """Yield what a product or convolution reads: (blocks, positions, n)."""
    if use.part.kind == "product":
        yield positions(use.inputs, use.part.blocks, mask)
        return
    of_sample = use.inputs[:1].numel() * math.prod(use.convolution[0])
    for images in torch.split(use.inputs, max(1, _MAX_PATCHES // max(of_sample, 1))):
        yield unfolded(images, use.convolution)


def unfolded(images: torch.Tensor, convolution: Sequence[Any]) -> torch.Tensor:
    """Return what a convolution reads at all places of all samples.

    It is (groups, samples and places, n). See `Use` for the convolution.
    """
    kernel, strides, paddings, dilations, groups = convolution
    patches = F.pad(images, [side for one in reversed(paddings) for side in (one, one)])
    for axis, size in enumerate(kernel):
        span = dilations[axis] * (size - 1) + 1
        patches = patches.unfold(axis + 2, span, strides[axis])[..., :: dilations[axis]]
    split = torch.unflatten(patches, 1, (groups, -1)).movedim(1, 0)  # groups, samples, inputs, …
    n = split.shape[2] * math.prod(kernel)
    return split.movedim(2, 2 + len(kernel)).reshape(groups, -1, n)
