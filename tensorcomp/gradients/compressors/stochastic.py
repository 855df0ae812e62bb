"""Quantize gradients by stochastic rounding (QSGD)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.quantize.groups import MAX_GROUP, Groups
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.text import parse_tree
from tensorcomp.codecs.tree import Node
from tensorcomp.gradients.base import (
    Compressor,
    CountedState,
    Payload,
    Reduction,
    State,
)
from tensorcomp.gradients.draws import MAX_SEED, own_key
from tensorcomp.gradients.payload.blobs import parts_blob
from tensorcomp.gradients.payload.receive import TreeCoded
from tensorcomp.kernels import native

_SCALE_BITS = 11


@dataclass(frozen=True)
class Qsgd(TreeCoded, Compressor):
    """Round each element at random to one of 2**bits − 1 even steps.

    An element x of a group of greatest magnitude M lies between two multiples of the step
    s = M / (2**(bits − 1) − 1), s rounded up to 11 significant bits; it becomes the upper one with
    the probability (x mod s) / s, so that its expected value is x, and its variance at most s² / 4.
    A payload is one of the tree ``affine(bits, group)``, whose rounding to nearest has a third of
    the mean square error, but a bias.

    The numbers drawn depend on the seed, the tensor's name, the worker and the count of steps: they
    are the same whatever the machine, and after a resume.

    Parameters
    ----------
    bits : int
        2 to 8.
    group : int
        As of `codecs.Affine`.
    seed : int
        From 0 to 2**64 − 1.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    Cost: O(n), 2 ns an element to encode and 1 ns to decode. For many workers, whose errors
    average out, without error feedback. Not for two bits and groups of thousands: the variance
    grows with the square of a group's greatest magnitude.

    References
    ----------
    Alistarh et al. 2017, "QSGD: Communication-efficient SGD via gradient quantization and
    encoding"; scales by the greatest magnitude: Wen et al. 2017, "TernGrad".
    """

    id: ClassVar[str] = "qsgd"
    state: ClassVar[type[State]] = CountedState
    reduction: ClassVar[Reduction] = "reduce_scatter"
    unbiased: ClassVar[bool] = True
    bits: int = argument(4, least=2, most=8)
    group: int = argument(128, least=-1, most=MAX_GROUP)
    seed: int = argument(0, least=0, most=MAX_SEED)

    @property
    def tree(self) -> Node:
        """The tree that decodes a payload."""
        return parse_tree(f"affine({self.bits}, {self.group})")

    def step(self, gradient: np.ndarray, state: Any) -> tuple[Payload, CountedState]:
        """Round at random."""
        key = own_key(state.spec, self.seed, state.count)
        rounding = functools.partial(_rounded, self, int(key))
        payload = parts_blob(self.tree, gradient, state.spec, rounding)
        return payload, replace(state, count=state.count + 1)


def _rounded(grid: Qsgd, key: int, chunk: np.ndarray, start: int) -> dict[str, np.ndarray]:
    """Return the parts of a chunk; numbers are drawn for its elements' places in the tensor."""
    values = widened(chunk, "qsgd")
    groups = Groups.of(chunk.shape, grid.group)
    top = (1 << (grid.bits - 1)) - 1
    scales = _steps(groups.greatest(values), top)
    codes = np.empty((groups.rows, groups.columns), np.int8)
    first = start * math.prod(chunk.shape[1:])
    native.stochastic_round(
        values.reshape(codes.shape), groups.length, scales, top, key, first, codes
    )
    return {"scales": scales, "codes": codes.reshape(chunk.shape)}


def _steps(reach: np.ndarray, top: int) -> np.ndarray:
    """Return steps of 11 significant bits, the least of which `top` cover what groups reach."""
    dtype = reach.dtype
    mantissas, exponents = np.frexp(reach.astype(np.float64) / top)
    unit = 1 << _SCALE_BITS
    most = np.where(exponents >= np.finfo(dtype).maxexp, unit - 1, unit)
    rounded = np.minimum(np.ceil(mantissas * unit), most) / unit
    steps = np.ldexp(rounded, exponents).astype(dtype)
    covered = steps.astype(np.float64) * top
    # Subnormal numbers have fewer bits, and were rounded once more.
    covering: np.ndarray = np.where(covered < reach, np.nextafter(steps, dtype.type(np.inf)), steps)
    return covering
