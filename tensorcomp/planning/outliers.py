"""Plan tensors of which a few elements are far larger than all others.

One element of 10,000 deviations is out of reach of the codes of a fine step, and dominates what is
measured of a tensor: its root mean square, and with it the steps that are tried. The trees of such
a tensor are planned on a sample without outliers, and put into `codecs.sparse.outliers`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.rounding import widened
from tensorcomp.codecs.sparse.outliers import Outliers
from tensorcomp.codecs.text import parse_tree
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.plan import TensorPlan
from tensorcomp.planning.rate_distortion import RDCurve, measure_curve
from tensorcomp.planning.trials import (
    BEYOND,
    FAR,
    bound_of_sample,
    can_take,
    guess_step,
    plan_within,
    with_extreme,
)

_USUAL = 0.95  # share of elements whose magnitude is not looked at
_REACHED = 30_000.0  # steps that the codes of every quantizer reach
_FEW = 1 / 64  # share of outliers at most
_PIECE = 1 << 20  # elements looked at together


class _Apart(NamedTuple):
    """Sample without outliers, the tree's text around that of the others, bits a weight."""

    sample: np.ndarray
    text: str
    limit: float
    bits: float

    def around(self, values: str) -> str:
        return self.text.replace("$values", values)


def plan_with_outliers(
    array: np.ndarray,
    sample: np.ndarray,
    templates: tuple[str, ...],
    bound: Bound,
    effort: str,
    reason: str,
    largest: float,
) -> TensorPlan:
    """Return the plan that takes the fewest bits of a sample within a bound.

    It keeps outliers apart where that takes fewer, or where no other tree reaches them. `largest`
    is the magnitude of the tensor's largest element.
    """
    plain = plan_within(array, sample, templates, bound, effort, reason)
    apart = _apart(array, sample, largest, guess_step(sample, bound))
    if apart is None:
        return plain
    inner = bound_of_sample(array, apart.sample, bound)
    found = plan_within(array, apart.sample, templates, inner, effort, reason)
    if found.tree is None:
        return plain
    bits = apart.bits + (found.bits or 0.0)
    extreme = with_extreme(sample, largest)
    reached = plain.tree is not None and (extreme is None or can_take(plain.tree, extreme))
    if reached and (plain.bits or 0.0) <= bits:
        return plain
    rel_l2 = found.rel_l2 * bound.max_rel_l2 / inner.max_rel_l2 if found.rel_l2 else 0.0
    tree = parse_tree(apart.around(found.tree.text))
    return replace(found, tree=tree, bound=bound, bits=bits, rel_l2=rel_l2)


def curve_with_outliers(
    array: np.ndarray,
    sample: np.ndarray,
    templates: Sequence[str],
    lossless_bits: float,
    largest: float,
) -> RDCurve:
    """Return what `measure_curve` does, of a tensor that may have outliers.

    Where they are kept apart the scale is that of the others, and errors are relative to it.
    """
    apart = _apart(array, sample, largest)
    if apart is None:
        return measure_curve(sample, array.size, templates, lossless_bits, largest)
    found = measure_curve(apart.sample, array.size, templates, lossless_bits, apart.limit)
    trees = tuple((apart.around(text) if text else "", octave) for text, octave in found.trees)
    return replace(found, trees=trees, bits=found.bits + apart.bits * (found.mse > 0))


def _apart(
    array: np.ndarray, sample: np.ndarray, largest: float, step: float = math.inf
) -> _Apart | None:
    """Return how outliers are kept apart; None if there are none, or too many."""
    sample = readable(sample)
    magnitudes = np.abs(widened(sample, Outliers.id)).reshape(-1)
    if not magnitudes.any():
        return None
    magnitudes = magnitudes[magnitudes > 0]
    rank = int(_USUAL * magnitudes.size)
    far = FAR * float(np.partition(magnitudes, rank)[rank])
    limit = float(f"{min(far, _REACHED * step):.4g}")
    if largest <= min(2 * far, BEYOND * step) or limit == 0:
        return None
    codec, flat = Outliers(limit), array.reshape(-1)
    pieces = (readable(flat[i : i + _PIECE]) for i in range(0, flat.size, _PIECE))
    count = sum(codec.encode(piece)["exact"].size for piece in pieces)
    if not 0 < count <= _FEW * flat.size:
        return None
    bits = count / flat.size * (8 * array.itemsize + math.log2(flat.size / count) + 2)
    values = codec.encode(sample)["values"]
    return _Apart(values, f"outliers({limit!r}, values=$values)", limit, bits)
