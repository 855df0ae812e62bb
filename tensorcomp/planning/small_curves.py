"""Rate-error curves that small tensors share.

Measuring one takes longer than coding the tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.lossless import plan_lossless
from tensorcomp.planning.rate_distortion import (
    DENSE,
    OCTAVES,
    RDCurve,
    mean_curve,
    measure_curve,
)
from tensorcomp.planning.steps import prototype
from tensorcomp.planning.trials import rate_of

_LARGEST = 1 << 14  # elements
_SINGLE = 4  # bytes of floats whose squares float64 holds
_OWN, _MEAN = 4, 8  # how many are measured as larger ones are, and for the mean that follows
_CHECKSUM = 64  # bits that a blob of one chunk takes beside its payload
_KINDS = 16  # of distributions, by mean magnitude over root mean square, an octave


@dataclass(frozen=True)
class SmallCurves:
    """Curves of small tensors under a size, by what those that share must have.

    Tensors are looked at one after the other, so which come first does not depend on threads.

    Attributes
    ----------
    alike : dict
        The curves that were measured, and as the last one their mean, which others share.
    """

    alike: dict[tuple[object, ...], list[RDCurve]] = field(default_factory=dict)

    @staticmethod
    def suits(array: np.ndarray) -> bool:
        """Return whether an array is small."""
        return array.size < _LARGEST and array.itemsize <= _SINGLE

    def curve(
        self,
        array: np.ndarray,
        sample: np.ndarray,
        templates: tuple[str, ...],
        largest: float,
        effort: str,
    ) -> RDCurve:
        """Return the curve of a small tensor: that of others, if enough are alike.

        Parameters
        ----------
        array, sample : numpy.ndarray
            Floats, and the part of them that trials code.
        templates : tuple of str
        largest : float
            Magnitude of the array.
        effort : str
        """
        offered = tuple(t for t in templates if prototype(t).codec.is_promising(sample, len(array)))
        exact = plan_lossless(array, effort)
        sums = measure(np.zeros_like(sample), sample)
        scale = math.sqrt(sums.y_squared / sums.count)
        peakiness = round(_KINDS * math.log2(sums.abs_error / sums.count / scale)) if scale else 0
        alike = self.alike.setdefault((offered, array.dtype, array.shape, exact, peakiness), [])
        if len(alike) > _OWN + _MEAN:
            return alike[-1].of_scale(scale)
        octaves = OCTAVES if len(alike) < _OWN else DENSE
        bits = rate_of(exact, array, effort)
        found = measure_curve(sample, array.size, offered, bits, largest, octaves)
        if scale:
            alike.append(found)
        if len(alike) == _OWN + _MEAN:
            alike.append(mean_curve(alike[_OWN:], _CHECKSUM / array.size))
        return found
