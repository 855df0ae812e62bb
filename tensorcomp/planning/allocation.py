"""Allocate bits: choose an option of each tensor so that all keep a size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tensorcomp.errors import InfeasibleBudgetError
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.plan import Plan, TensorPlan
from tensorcomp.planning.profiles import Rule
from tensorcomp.planning.rate_distortion import RDCurve

# Weights of a tensor, and bits per weight and weighted error of its options.
Curve: TypeAlias = tuple[int, np.ndarray, np.ndarray]

_FLATTEST, _STEEPEST = -500.0, 500.0  # log2 of a slope
_HALVINGS, _WIDE = 80, 10  # after the first ones, few options can still win
_ROUNDING = 1e-12  # far above that of a cost, relative
_ROOM = 0.998  # of a size that is aimed at: samples are not the whole
_CAUTION = 1.03  # times a size predicted by samples, to be possible indeed
_MUCH = 0.1  # of the smallest file: bytes of lossless tensors that are reported
_DOUBT = 1.1  # times a size, before a prediction beyond it counts as impossible


@dataclass
class AllocationProblem:
    """Plans that are made, and tensors over which a size is still to be spread.

    Parameters
    ----------
    budget : Budget
    effort : str
    overhead : int
        Bytes of the file beside blobs.
    fixed : mapping of str to TensorPlan
    fixed_bytes : float
        Bytes of the tensors whose plans are made.
    options : mapping of str to RDCurve
        Choices of the other tensors.
    importance : mapping of str to float
        Cost of a unit of squared error in each of them.
    copies : mapping of str to str
        Tensors that share another's plan, and its bytes.
    weights : int
        Elements of all tensors.
    used : set of Rule and str
        Rules that select a tensor, and tensors that have a bound of their own.
    protected : Counter of str
        Bytes of the tensors that stay lossless, by the first word of their role.
    measured : bool
        Whether rates are corrected by the bytes that tensors really took.
    input_bytes : int
        Of all files; from `max_bytes`.
    profile : str
        Name of one that offers options, for messages; empty for a user's own.
    """

    budget: Budget
    effort: str
    overhead: int = 0
    fixed: dict[str, TensorPlan] = field(default_factory=dict)
    fixed_bytes: float = 0
    options: dict[str, RDCurve] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    weights: int = 0
    used: set[Rule | str] = field(default_factory=set, repr=False)
    protected: Counter[str] = field(default_factory=Counter)
    measured: bool = False
    input_bytes: int = 0
    profile: str = ""

    def add(self, other: AllocationProblem, keys: Mapping[str, str]) -> None:
        """Add the problem of a file; `keys` are the names of its tensors in this one."""
        self.fixed |= {keys[name]: plan for name, plan in other.fixed.items()}
        self.options |= {keys[name]: item for name, item in other.options.items()}
        self.importance |= {keys[name]: value for name, value in other.importance.items()}
        self.copies |= {keys[name]: keys[first] for name, first in other.copies.items()}
        self.overhead += other.overhead
        self.fixed_bytes += other.fixed_bytes
        self.weights += other.weights
        self.used |= other.used
        self.protected += other.protected
        self.profile = other.profile

    def max_bytes(self, input_bytes: int) -> int | None:
        """Return the bytes that the file may have; None if the budget is not a size."""
        self.input_bytes = input_bytes
        return self.budget.size(input_bytes, self.weights)

    def least_bytes(self) -> int:
        """Return the bytes of the smallest file that the options allow, about."""
        open_bytes = int(least_bits(list(self.options.values())) / 8)
        return self.overhead + int(self.fixed_bytes) + open_bytes

    def allocate(self, max_bytes: int | None, order: Iterable[str]) -> Plan:
        """Return the plan whose file samples predict to keep a size.

        Parameters
        ----------
        max_bytes : int or None
            None allocates nothing: without a size, every plan is made already.
        order : iterable of str
            Names of all tensors, as they stand in the plan.

        Raises
        ------
        InfeasibleBudgetError
            If samples predict that even the cheapest options take far more.
        """
        if max_bytes is None:
            return self._plan([], order)
        least = self.least_bytes()
        if least > max_bytes * _DOUBT and not self.measured:
            raise self.impossible(int(least * _CAUTION), max_bytes)
        available = _ROOM * max_bytes - self.overhead - self.fixed_bytes
        items = list(self.options.values())
        chosen = allocate(items, list(self.importance.values()), 8 * available)
        return self._plan(chosen, order)

    def cheapest(self, order: Iterable[str]) -> Plan:
        """Return the plan in which every tensor takes as few bits as it can."""
        return self._plan([int(np.argmin(item.bits)) for item in self.options.values()], order)

    def _plan(self, chosen: Sequence[int], order: Iterable[str]) -> Plan:
        plans = dict(self.fixed)
        for option, (name, item) in zip(chosen, self.options.items(), strict=True):
            tree = item.tree(option)
            reason = "there is room for every bit" if tree is None else f"best for {self.budget}"
            bits = float(item.bits[option])
            plans[name] = TensorPlan(tree, reason, bits=bits, rel_l2=item.rel_l2(option))
        for name, first in self.copies.items():
            plans[name] = plans[first]
        return Plan({name: plans[name] for name in order}, self.budget, self.effort)

    def impossible(self, least: int, max_bytes: int) -> InfeasibleBudgetError:
        """Return the error that says which size is possible, if not the budget's."""
        nearest = self.budget.nearest(least, self.input_bytes, self.weights)
        return InfeasibleBudgetError(
            f"a file of {max_bytes:,} bytes is not possible; the smallest one takes about "
            f"{nearest}{self._kept_lossless(least)}",
            requested_bytes=max_bytes,
            least_bytes=least,
            protected_bytes=self._protected_bytes(),
        )

    def _protected_bytes(self) -> int:
        """Return the bytes of the file that no smaller budget changes."""
        return self.overhead + int(self.fixed_bytes)

    def _kept_lossless(self, least: int) -> str:
        """Return the largest role kept lossless, and how to let it lose something."""
        role, nbytes = max(self.protected.items(), key=lambda item: item[1], default=("", 0))
        if nbytes < _MUCH * least:
            return ""
        return (
            f"; no budget changes {self._protected_bytes():,} of them, above all tensors of "
            f"role {role}, {nbytes:,} bytes kept lossless: let them lose something by a tree of "
            f"their own, codecs='{role}=$quantizer'"
            + (f" and profile='{self.profile}'" if self.profile else "")
        )

    def corrected(
        self, plan: Plan, sizes: Mapping[str, int], refused: Collection[str], overhead: int
    ) -> AllocationProblem:
        """Return the problem with rates corrected by the bytes tensors really took.

        Parameters
        ----------
        plan : Plan
        sizes : mapping of str to int
            Bytes of each tensor's blob.
        refused : collection of str
            Tensors of which the tree could not represent every chunk.
        overhead : int
            Bytes of the file beside blobs.
        """
        moved = {}
        for name, item in self.options.items():
            planned = plan.tensors[name].bits or 0.0
            if name in refused:  # nor could a finer step, nor perhaps one a bit coarser
                bits = np.where((item.bits < planned - 1) | (item.mse == 0), item.bits, math.inf)
            else:
                bits = np.maximum(item.bits + 8 * sizes[name] / item.weights - planned, 0.0)
            moved[name] = replace(item, bits=bits)
        fixed = sum(sizes.values()) - sum(sizes[name] for name in moved)
        return replace(self, options=moved, overhead=overhead, fixed_bytes=fixed, measured=True)


def allocate(
    options: Sequence[RDCurve], importance: Sequence[float], most_bits: float
) -> list[int]:
    """Return the options of least weighted error that `most_bits` suffice for.

    All tensors get the same slope of weighted error over rate, the one at which their bits add up
    (Shoham & Gersho 1988, "Efficient bit allocation for an arbitrary set of quantizers").

    Parameters
    ----------
    options : sequence of RDCurve
    importance : sequence of float
        Cost of a unit of squared error in each tensor.
    most_bits : float
        For all tensors together; more only where even the cheapest options take more.
    """
    curves = [
        (item.weights, item.bits, weight * item.mse)
        for item, weight in zip(options, importance, strict=True)
    ]
    kept: list[np.ndarray] = []
    low, high = _FLATTEST, _STEEPEST  # a steep slope spends few bits
    for number in range(_HALVINGS):
        if number == _WIDE:
            kept = [np.flatnonzero(_may_win(*curve[1:], 2.0**low, 2.0**high)) for curve in curves]
            curves = [
                (weights, bits[near], errors[near])
                for (weights, bits, errors), near in zip(curves, kept, strict=True)
            ]
        middle = (low + high) / 2
        if _total(curves, _choose(curves, middle)) > most_bits:
            low = middle
        else:
            high = middle
    chosen, dearer = _choose(curves, high), _choose(curves, low)
    left = most_bits - _total(curves, chosen)
    chosen, dearer = (
        [int(near[option]) for near, option in zip(kept, found, strict=True)]
        for found in (chosen, dearer)
    )
    return _spend(options, chosen, dearer, left)


def _choose(curves: Sequence[Curve], slope: float) -> list[int]:
    """Return the first of the best options of each tensor."""
    factor = 2.0**slope
    return [int((errors + factor * bits).argmin()) for _, bits, errors in curves]


def _total(curves: Sequence[Curve], chosen: Sequence[int]) -> float:
    """Return the bits of all tensors together."""
    return sum(
        weights * float(bits[option])
        for (weights, bits, _), option in zip(curves, chosen, strict=True)
    )


def _may_win(bits: np.ndarray, errors: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return which options may cost least at a slope between two.

    An option that costs more than the best one at the low slope, and has more bits, costs more at
    all higher slopes; one that costs more than the best at the high slope, and has a larger error,
    at all lower ones. Both by more than rounding can hide.
    """
    more = 1 + _ROUNDING
    at_low, at_high = errors + low * bits, errors + high * bits
    first, last = int(at_low.argmin()), int(at_high.argmin())
    beaten: np.ndarray = (bits >= more * bits[first]) & (at_low >= more * at_low[first])
    beaten |= (errors >= more * errors[last]) & (at_high >= more * at_high[last])
    beaten[[first, last]] = False
    return ~beaten


def _spend(
    options: Sequence[RDCurve], chosen: Sequence[int], dearer: Sequence[int], left: float
) -> list[int]:
    """Return the options with the bits left over spent on the next tensors.

    Those are the ones whose options change at the slope that was found. The first of them for
    which the bits do not suffice gets part of the way, wherever between two slopes that is.
    """
    spent = list(chosen)
    for number, (item, now, then) in enumerate(zip(options, chosen, dearer, strict=True)):
        if now == then:
            continue
        most = item.bits[now] + left / max(item.weights, 1)
        option = then
        if item.bits[then] > most:
            fits = np.flatnonzero((item.bits > item.bits[now]) & (item.bits <= most))
            if not fits.size:
                continue
            option = int(fits[np.argmin(item.mse[fits])])
        if item.mse[option] < item.mse[now]:
            left -= item.weights * float(item.bits[option] - item.bits[now])
            spent[number] = option
    return spent


def least_bits(options: Sequence[RDCurve]) -> float:
    """Return the bits of all tensors where each takes its cheapest option."""
    return sum(item.weights * float(item.bits.min()) for item in options)
