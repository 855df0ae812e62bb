"""Allocate bits: choose an option of each tensor so that all keep a size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from tensorcomp.errors import InfeasibleBudgetError, PlanError
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.plan import Plan, TensorPlan
from tensorcomp.planning.profiles import Rule
from tensorcomp.planning.rate_distortion import RDCurve

_FLATTEST, _STEEPEST = -500.0, 500.0  # log2 of a slope
_HALVINGS = 80
_UNSPENT = 0.005  # share of a budget that may be left
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

    def balance(self) -> None:
        """Make the importance of tensors without statistics like that of the others.

        A squared error then counts 1 / root mean square, times the geometric mean of what it costs
        times the root mean square where that is known.
        """
        known = [c.cost * c.scale for c in self.options.values() if c.cost and c.scale]
        if not known:
            return
        level = math.exp(sum(map(math.log, known)) / len(known))
        for name, curve in self.options.items():
            if curve.cost is None:
                self.importance[name] *= level

    def max_bytes(self, input_bytes: int) -> int | None:
        """Return the bytes that the file may have; None if the budget is not a size."""
        self.input_bytes = input_bytes
        if self.budget.bits_per_weight is not None and not self.weights:
            raise PlanError(
                "a budget of bits per weight is not possible for a checkpoint without weights; "
                "give another, or none"
            )
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
            loss = item.loss(option)  # with statistics, errors are those of scaled values
            losses = bits, item.rel_l2(option) if loss is None else 0.0, loss
            plans[name] = TensorPlan(tree, reason, None, False, *losses)
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
        planned = {name: plan.tensors[name].bits or 0.0 for name in self.options}
        taken: dict[int, np.ndarray] = {}  # bits, planned bits and weights by curve
        for name, item in self.options.items():
            if name not in refused:
                found = np.array([8 * sizes[name], item.weights * planned[name], item.weights])
                taken[id(item.bits)] = taken.get(id(item.bits), 0) + found
        curves: dict[int, np.ndarray] = {}
        moved = {}
        for name, item in self.options.items():
            if name in refused:  # nor could a finer step, nor perhaps one a bit coarser
                kept = (item.bits < planned[name] - 1) | (item.mse == 0)
                bits = np.where(kept, item.bits, math.inf)
            elif (key := id(item.bits)) in curves:
                bits = curves[key]
            else:
                real, expected, weights = taken[key]
                bits = curves[key] = np.maximum(item.bits + (real - expected) / weights, 0.0)
            moved[name] = replace(item, bits=bits)
        fixed = sum(sizes.values()) - sum(sizes[name] for name in moved)
        return replace(self, options=moved, overhead=overhead, fixed_bytes=fixed, measured=True)


def allocate(
    options: Sequence[RDCurve], importance: Sequence[float], most_bits: float
) -> list[int]:
    """Return the options of least weighted error that `most_bits` suffice for.

    All tensors get the same slope of weighted error over rate, the one at which their bits add up
    (Shoham & Gersho 1988, "Efficient bit allocation for an arbitrary set of quantizers"). Where the
    next option of a tensor takes more bits than are left, the others get those.

    Parameters
    ----------
    options : sequence of RDCurve
    importance : sequence of float
        Cost of a unit of squared error in each tensor.
    most_bits : float
        For all tensors together; more only where even the cheapest options take more.
    """
    chosen, blocked = _at_one_slope(options, importance, most_bits)
    taken = [o.weights * float(o.bits[n]) for o, n in zip(options, chosen, strict=True)]
    others = [number for number in range(len(options)) if number not in blocked]
    if not blocked or not others or most_bits - sum(taken) <= _UNSPENT * most_bits:
        return chosen
    left = most_bits - sum(taken[number] for number in blocked)
    again = allocate([options[n] for n in others], [importance[n] for n in others], left)
    for number, option in zip(others, again, strict=True):
        chosen[number] = option
    return chosen


def _at_one_slope(
    options: Sequence[RDCurve], importance: Sequence[float], most_bits: float
) -> tuple[list[int], set[int]]:
    """Return the options, and the tensors of which the next one takes more bits than are left."""
    alike: dict[tuple[int, int], list[int]] = {}  # tensors that share a curve
    for number, item in enumerate(options):
        alike.setdefault((id(item.bits), id(item.mse)), []).append(number)
    curves = []
    for numbers in alike.values():
        first = options[numbers[0]]
        near, slopes = _hull(first.bits, first.mse)
        weights = np.array([float(options[number].weights) for number in numbers])
        costs = np.array([importance[number] * options[number].gain ** 2 for number in numbers])
        curves.append(_Curve(numbers, near, slopes, first.bits[near], weights, costs))
    low, high = _FLATTEST, _STEEPEST  # a steep slope spends few bits
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if sum(curve.total(middle) for curve in curves) > most_bits:
            low = middle
        else:
            high = middle
    chosen, dearer = [0] * len(options), [0] * len(options)
    for curve in curves:
        for found, slope in ((chosen, high), (dearer, low)):
            for number, place in zip(curve.numbers, curve.choose(slope), strict=True):
                found[number] = int(curve.near[place])
    left = most_bits - sum(curve.total(high) for curve in curves)
    spent = _spend(options, chosen, dearer, left)
    return spent, {n for n, found in enumerate(spent) if dearer[n] not in (chosen[n], found)}


class _Curve(NamedTuple):
    """The convex hull of some tensors' common options, cheapest first.

    `slopes` are those between the options `near`, whose rates are `bits`; `costs` those of a unit
    of squared error.
    """

    numbers: Sequence[int]
    near: np.ndarray
    slopes: np.ndarray
    bits: np.ndarray
    weights: np.ndarray
    costs: np.ndarray

    def choose(self, slope: float) -> np.ndarray:
        """Return each tensor's best place on the hull, where slopes are to be steeper."""
        with np.errstate(divide="ignore", over="ignore"):
            found: np.ndarray = np.searchsorted(-self.slopes, -(2.0**slope) / self.costs)
        return found

    def total(self, slope: float) -> float:
        """Return the bits of all tensors together."""
        return float((self.weights * self.bits[self.choose(slope)]).sum())


def _hull(bits: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the options that some slope chooses, cheapest first, and their slopes.

    An option above the line through two others is never chosen.
    """
    kept = np.lexsort((errors, bits))
    kept = kept[: max(int(np.count_nonzero(bits < math.inf)), 1)]
    least = np.minimum.accumulate(errors[kept])
    kept = kept[np.append(True, errors[kept][1:] < least[:-1])]
    while True:
        slopes = -np.diff(errors[kept]) / np.diff(bits[kept])
        above = np.flatnonzero(slopes[1:] >= slopes[:-1])
        if not above.size:
            return kept, slopes
        kept = np.delete(kept, above + 1)


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
