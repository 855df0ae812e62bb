"""Rate and distortion of a tensor under every tree that it is offered.

A template is tried on a sample at a few steps, octaves apart; between them bits and the logarithm
of the error are straight lines in the logarithm of the step, which they nearly are for any
quantizer with an entropy coder (Gish & Pierce 1968, "Asymptotically efficient quantizing").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.rounding import scaled_to_unit
from tensorcomp.codecs.tree import Node
from tensorcomp.planning.steps import instantiate, is_free, prototype
from tensorcomp.planning.trials import Trial, can_take, rms, run_trial, with_extreme

OCTAVES = (-7.0, -5.0, -3.0, -1.5, -0.5, 0.5, 1.5)  # of the step over the tensor's scale
DENSE = (-7.0, -5.0, -4.0, -3.0, -2.25, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
_FINER = (-9.0, -11.0)  # what they cost follows from the two before
_MOST = 1000.0  # octaves, of which float64 holds 1,024
_FINE = 256  # points an octave, once interpolated


@dataclass(frozen=True)
class RDCurve:
    """Rates and errors that a tensor may have.

    Parameters
    ----------
    weights : int
        Elements of the tensor.
    scale : float
        Root mean square of the tensor.
    bits, mse : numpy.ndarray
        (M,) per weight, one entry an option; mse is absolute. The unit of `mse` and `scale` is a
        power of two for doubles whose squares leave the range of float64.
    trees : tuple of (str, float or None)
        One a family of options: its template, and None or the log2 of its first step.
    first : tuple of int
        Where each family's options begin.
    gain : float
        The tensor's scale over that of the curve's steps and errors.
    cost : float or None
        Predicted loss of a unit of squared error; None without statistics.
    """

    weights: int
    scale: float
    bits: np.ndarray
    mse: np.ndarray
    trees: tuple[tuple[str, float | None], ...]
    first: tuple[int, ...]
    gain: float = 1.0
    cost: float | None = None

    def loss(self, option: int) -> float | None:
        """Return the predicted loss of an option; None without statistics."""
        if self.cost is None:
            return None
        return self.cost * self.weights * self.gain**2 * float(self.mse[option])

    def tree(self, option: int) -> Node | None:
        """Return the tree of an option; None for the lossless one."""
        family = int(np.searchsorted(self.first, option, "right")) - 1
        template, octave = self.trees[family]
        if not template:
            return None
        if octave is None:
            return prototype(template)
        octave += (option - self.first[family]) / _FINE
        return instantiate(template, 2 ** min(octave, _MOST) * self.gain)

    def rel_l2(self, option: int) -> float:
        """Return the predicted relative error of an option."""
        return self.gain * math.sqrt(self.mse[option]) / self.scale if self.scale else 0.0

    def of_scale(self, scale: float) -> RDCurve:
        """Return the curve of a tensor that is alike, but for its scale."""
        return replace(self, scale=scale, gain=self.gain * scale / self.scale)


def mean_curve(curves: Sequence[RDCurve], added_bits: float) -> RDCurve:
    """Return the mean of curves of tensors that are alike, at a scale of 1.

    Those whose options are not the first one's are left out.

    Parameters
    ----------
    curves : sequence of RDCurve
    added_bits : float
        What a blob takes beside payloads, per weight.
    """
    first = curves[0]
    found = [c for c in curves if (c.first, c.bits.size) == (first.first, first.bits.size)]
    trees = tuple(
        (text, None if octave is None else octave - math.log2(first.scale))
        for text, octave in first.trees
    )
    bits = np.mean([c.bits for c in found], axis=0) + added_bits
    mse = np.mean([c.mse / c.scale**2 for c in found], axis=0)
    return replace(first, scale=1.0, bits=bits, mse=mse, trees=trees)


def measure_curve(
    sample: np.ndarray,
    weights: int,
    templates: Iterable[str],
    lossless_bits: float,
    largest: float = 0.0,
    octaves: Sequence[float] = OCTAVES,
) -> RDCurve:
    """Try templates on a sample of a tensor.

    Parameters
    ----------
    sample : numpy.ndarray
    weights : int
        Elements of the whole tensor.
    templates : iterable of str
        Their quantizers written out.
    lossless_bits : float
        Per weight; always an option.
    largest : float
        Magnitude of the whole tensor's largest element, which every step must be able to take.
    octaves : sequence of float
        Of the steps that are tried, over the sample's scale; rising.
    """
    array, exponent = scaled_to_unit(readable(sample))
    scale = rms(array)
    extreme = with_extreme(array, math.ldexp(largest, -exponent))
    families: list[tuple[tuple[str, float | None], np.ndarray, np.ndarray]] = [
        (("", None), np.array([lossless_bits]), np.zeros(1))
    ]
    rows = weights // max(math.prod(array.shape[1:]), 1)
    for template in templates if exponent < _MOST else ():  # sums of such errors overflow
        if not prototype(template).codec.is_promising(array, rows):
            continue
        if not is_free(template):
            trial = run_trial(prototype(template), array)
            if trial is not None and _mse(trial) < math.inf:
                point = np.array([trial.bits]), np.array([_mse(trial)])
                families.append(((template, None), *point))
        elif scale > 0:
            found = _sweep(template, array, extreme, scale, lossless_bits, octaves)
            if found is not None:
                families.append(((template, found[0] + exponent), *found[1:]))
    trees, bits, mse = zip(*families, strict=True)
    first = np.cumsum([0, *map(len, bits[:-1])])
    return RDCurve(
        weights, scale, np.concatenate(bits), np.concatenate(mse), trees, tuple(first.tolist())
    )


def _sweep(
    template: str,
    array: np.ndarray,
    extreme: np.ndarray | None,
    scale: float,
    most_bits: float,
    tried: Sequence[float],
) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Return the first octave, and bits and mse of fine steps from there on."""
    octaves, bits, errors = [], [], []
    for octave in reversed(tried):
        trial = run_trial(instantiate(template, scale * 2**octave), array)
        mse = 0.0 if trial is None else _mse(trial)
        if trial is None or not 0 < mse < math.inf:
            break
        octaves.append(octave + math.log2(scale))
        bits.append(trial.bits)
        errors.append(math.log2(mse))
        if trial.bits > most_bits:
            break
    if len(octaves) == len(tried) and bits[-1] <= most_bits:
        for octave in _FINER:
            octaves.append(octave + math.log2(scale))
            bits.append(2 * bits[-1] - bits[-2])
            errors.append(2 * errors[-1] - errors[-2])
        extreme = array if extreme is None else extreme
    while extreme is not None and octaves:
        if can_take(instantiate(template, 2 ** octaves[-1]), extreme):
            break
        del octaves[-1], bits[-1], errors[-1]
    if len(octaves) < 2:
        return None
    known = np.array(octaves[::-1])
    fine = np.arange(int((known[-1] - known[0]) * _FINE) + 1) / _FINE + known[0]
    log_mse = np.interp(fine, known, errors[::-1])
    return float(known[0]), np.interp(fine, known, bits[::-1]), 2**log_mse


def _mse(trial: Trial) -> float:
    """Return the mean square error, infinite where float64 overflows."""
    try:
        return trial.errors.l2**2 / max(trial.errors.count, 1)
    except OverflowError:
        return math.inf
