"""Find the threshold that a wanted number of elements reach."""

from __future__ import annotations

import math

import numpy as np

from tensorcomp.gradients.draws import drawn_numbers

_STEEPEST = 8.0  # of what a threshold's tail is taken for: a Gaussian's at a density of 1e-4
_FARTHEST = 4.0  # times that a threshold changes in a step
_SAMPLED_KEPT = 64  # elements that a sample should hold above a threshold
_LOST = 8.0  # times too few elements: the threshold is sampled anew


def above_zero(threshold: float, dtype: np.dtype) -> float:
    """Raise a threshold of zero to the least positive number."""
    return max(float(threshold), float(np.nextafter(dtype.type(0), dtype.type(1))))


def sampled_threshold(flat: np.ndarray, density: float, part: float, key: np.uint64) -> float:
    """Estimate the magnitude that a part of the elements reach by a sample.

    Parameters
    ----------
    flat : numpy.ndarray
        (n,) float32 or float64.
    density : float
        The part of the elements, above 0 and up to 1.
    part : float
        Of the elements, to be sampled; more, where less than 64 of the sample would reach it.
    key : numpy.uint64
        Of what is drawn: one element from each of as many stretches of equal length.
    """
    size = min(max(math.ceil(part * flat.size), math.ceil(_SAMPLED_KEPT / density)), flat.size)
    if size == 0 or density == 1:
        return 0.0
    bounds = np.arange(size + 1) * flat.size // size
    drawn = drawn_numbers(int(key), size) % np.diff(bounds).astype(np.uint64)
    sample = np.abs(flat[bounds[:-1] + drawn.astype(np.int64)])
    return smallest_of_largest(sample, min(max(round(density * size), 1), size))


def smallest_of_largest(magnitudes: np.ndarray, wanted: int) -> float:
    """Return the `wanted`-th largest magnitude, counted from 1."""
    at = magnitudes.size - wanted
    return float(np.partition(magnitudes, at)[at])


def corrected_threshold(threshold: float, kept: np.ndarray, wanted: int) -> float:
    """Estimate the threshold of another count from the elements above one.

    Parameters
    ----------
    threshold : float
        Above 0.
    kept : numpy.ndarray
        The magnitudes (c,) that are at least the threshold.
    wanted : int

    Returns
    -------
    float
        By the Hill estimate of the tail; within a factor of four of the old one. 0 where there are
        too few of them for an estimate.
    """
    if not kept.size or kept.size * _LOST < wanted:
        return 0.0
    logarithms = np.log(kept, dtype=np.float64)
    mean = max(float(logarithms.mean()) - math.log(threshold), 1 / _STEEPEST)
    factor = math.pow(kept.size / wanted, min(mean, 1.0))
    return threshold * min(max(factor, 1 / _FARTHEST), _FARTHEST)
