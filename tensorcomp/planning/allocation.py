"""Which option each tensor takes, so that all of them together keep a size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorcomp.planning.rate_distortion import RDCurve

_FLATTEST, _STEEPEST = -500.0, 500.0  # log2 of a slope
_HALVINGS, _WIDE = 80, 10  # in the first ones, options are compared tensor by tensor
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
        What a unit of squared error costs in each tensor.
    most_bits : float
        For all tensors together.

    Returns
    -------
    list of int
        One option a tensor; their bits are near `most_bits`, and above it only where even those of
        the cheapest options are.
    """
    if not options:
        return []
    errors = [weight * item.mse for item, weight in zip(options, importance, strict=True)]
    low, high = _FLATTEST, _STEEPEST  # a steep slope spends few bits
    for _ in range(_WIDE):
        middle = (low + high) / 2
        if _total(options, _choose(options, errors, middle)) > most_bits:
            low = middle
        else:
            high = middle
    near = _Near(options, errors, low, high)
    for _ in range(_WIDE, _HALVINGS):
        middle = (low + high) / 2
        if near.total(middle) > most_bits:
            low = middle
        else:
            high = middle
    chosen = near.choose(high)
    return _spend(options, chosen, near.choose(low), most_bits - _total(options, chosen))


def _choose(options: Sequence[RDCurve], errors: Sequence[np.ndarray], slope: float) -> list[int]:
    factor = 2.0**slope
    return [
        int((error + factor * item.bits).argmin())
        for item, error in zip(options, errors, strict=True)
    ]


class _Near:
    """The options that any slope between two may choose, those of all tensors in a row."""

    def __init__(
        self, options: Sequence[RDCurve], errors: Sequence[np.ndarray], low: float, high: float
    ) -> None:
        kept = [
            np.flatnonzero(_may_win(item.bits, error, 2.0**low, 2.0**high))
            for item, error in zip(options, errors, strict=True)
        ]
        self._options = np.concatenate(kept)
        self._bits = np.concatenate([item.bits[k] for item, k in zip(options, kept, strict=True)])
        self._errors = np.concatenate([error[k] for error, k in zip(errors, kept, strict=True)])
        self._counts = np.array([near.size for near in kept])
        self._starts = np.cumsum(self._counts) - self._counts
        self._weights = np.array([item.weights for item in options], np.float64)

    def choose(self, slope: float) -> list[int]:
        """Return the first of the best options of each tensor."""
        chosen: list[int] = self._options[self._best(slope)].tolist()
        return chosen

    def total(self, slope: float) -> float:
        """Return the bits of all of them together."""
        bits: list[float] = (self._weights * self._bits[self._best(slope)]).tolist()
        return sum(bits)

    def _best(self, slope: float) -> np.ndarray:
        cost = self._errors + 2.0**slope * self._bits
        least = np.minimum.reduceat(cost, self._starts)
        best = np.flatnonzero(cost == np.repeat(least, self._counts))
        first: np.ndarray = best[np.searchsorted(best, self._starts)]
        return first


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


def _total(options: Sequence[RDCurve], chosen: Sequence[int]) -> float:
    return sum(
        item.weights * float(item.bits[option])
        for item, option in zip(options, chosen, strict=True)
    )


def least_bits(options: Sequence[RDCurve]) -> float:
    """Return the bits of all tensors together where each takes its cheapest option."""
    return sum(item.weights * float(item.bits.min()) for item in options)
