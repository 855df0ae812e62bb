"""Allocate bits: choose an option of each tensor so that all together keep a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tensorcomp.planning.rate_distortion import RDCurve

# Weights of a tensor, and bits per weight and weighted error of its options.
Curve: TypeAlias = tuple[int, np.ndarray, np.ndarray]

_FLATTEST, _STEEPEST = -500.0, 500.0  # log2 of a slope
_HALVINGS, _WIDE = 80, 10  # after the first ones, few options can still win
_ROUNDING = 1e-12  # far above that of a cost, relative


def allocate(
    options: Sequence[RDCurve], importance: Sequence[float], most_bits: float
) -> list[int]:
    """Return the option of each tensor that gives the least weighted error in so many bits.

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
    """Return the options with the bits that are left given to the tensors that come next.

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
    """Return the bits of all tensors together where each takes its cheapest option."""
    return sum(item.weights * float(item.bits.min()) for item in options)
