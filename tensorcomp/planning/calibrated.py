"""Statistics of tensors: feedback for encoders, and what errors cost.

The loss of an error is predicted as ½ Σᵣ wᵣ eᵣ H eᵣᵀ (see `codecs.feedback`), in nats a sample or
position. Rounding with feedback, in steps that `codecs.quantize.scales` makes of the statistics,
leaves errors that are independent and cost the same everywhere: so a tensor's rate and distortion
are measured on its scaled values.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from tensorcomp._formatting import listed
from tensorcomp._names import match_names
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.codecs.feedback import Feedback, FeedbackEncoder, encoder_with
from tensorcomp.codecs.quantize.scales import factors, row_and_column_exponents
from tensorcomp.codecs.rounding import work_dtype
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import CheckpointError, CodecError, NotRepresentable, PlanError
from tensorcomp.metrics.distortion import ErrorSums
from tensorcomp.metrics.output_error import output_energy
from tensorcomp.planning.moments import Moment
from tensorcomp.planning.rate_distortion import RDCurve, measure_curve
from tensorcomp.planning.statistics import Statistics
from tensorcomp.planning.steps import STEP, is_free, prototype

_FLOOR = 1.0  # of the mean weight of rows: what rare tokens and outputs count at least
_SAMPLE = 1 << 17  # elements
ALWAYS = f"uniform({STEP})"  # offered beside a profile's trees: the best where rates are low


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Statistics of one tensor.

    Parameters
    ----------
    moment : Moment
    check_weights : callable
        Raises `CheckpointError` where an array is not the tensor that was measured.
    """

    moment: Moment
    check_weights: Callable[[np.ndarray], None]

    def is_stack(self, shape: Sequence[int]) -> bool:
        """Return whether a tensor is a stack of matrices, such as experts."""
        rows, inputs = len(self.moment.row_weight), self.moment.stored.shape[-1]
        if len(shape) != 3 or shape[0] == (inputs if self.moment.transposed else rows):
            return False  # a kernel of single channels, say
        outputs, read = reversed(shape[1:]) if self.moment.transposed else shape[1:]
        return shape[0] * outputs == rows and read == inputs

    def check(self, array: np.ndarray) -> None:
        """Require that an array is the tensor that was measured.

        Raises
        ------
        CheckpointError
            If it is another.
        """
        rows, inputs = len(self.moment.row_weight), self.moment.matrix.shape[-1]  # checked
        if self.moment.transposed:
            rows, inputs = inputs, rows
        if array.ndim < 2 or array.shape[0] != rows or array.size != rows * inputs:
            raise CheckpointError(
                f"{self.moment.place}: statistics of another model: expected a tensor of "
                f"{rows} x {inputs}, got {list(array.shape)}; run calibrate on this one"
            )
        if array.dtype == np.float64:
            largest, limits = float(np.abs(array).max(initial=0)), np.finfo(np.float32)
            if 0 < largest < float(limits.tiny) or float(limits.max) < largest < np.inf:
                raise CheckpointError(
                    f"{self.moment.place}: expected weights in the range of float32, got up to "
                    f"{largest:.3g}; leave it out by calibrate --where"
                )
        self.check_weights(array)

    def check_data(self, info: TensorInfo, data: np.ndarray) -> None:
        """Require that the bytes of a tensor are those of the one that was measured."""
        dtype = numpy_dtype(info.dtype)
        self.check(data if dtype is None else data.view(dtype).reshape(info.shape))

    def every(self, step: int) -> Calibrated | None:
        """Return the statistics of every so many rows; None if those need the others."""
        moment = self.moment
        if step == 1:
            return self
        if moment.transposed or len(moment.matrix) > 1:
            return None
        return replace(self, moment=replace(moment, row_weight=moment.row_weight[::step]))

    @property
    def along(self) -> int:
        """The axis along which columns are counted, see `Feedback`."""
        return 0 if self.moment.transposed else 1

    def feedback(self, start: int = 0, stop: int | None = None) -> Feedback:
        """Return the feedback of the tensor, or of a part of its first axis.

        The factors of a tensor take O(n³) time; those of the last ones are kept.
        """
        whole = _feedback_of(self)
        return whole if stop is None else whole.of_chunk(start, stop)

    def measures(self, chunks: int) -> bool:
        """Return whether the output error follows from those of so many chunks."""
        return chunks == 1 or not self.moment.transposed

    def measured(
        self, errors: ErrorSums, array: np.ndarray, decoded: np.ndarray, start: int
    ) -> ErrorSums:
        """Return the errors of rows from `start` on, with that of the output."""
        wide = work_dtype(array.dtype)
        error = array.astype(wide, copy=False) - decoded.astype(wide, copy=False)
        return errors.with_output(
            self.output_energy(error, start), self.output_energy(array, start)
        )

    def loss(self, error: np.ndarray, start: int = 0) -> float:
        """Return the loss that errors of rows from `start` on add, in nats a term."""
        weights = np.sqrt(self.moment.row_weight)
        largest = float(weights.max(initial=0)) or 1.0
        weights /= largest  # so that products stay in the range of float32
        matrix = error.reshape(error.shape[0], -1)
        if not self.moment.transposed:
            weights = weights[start : start + len(matrix), None]
        return 0.5 * largest**2 * self.output_energy(matrix * weights, start)

    def output_energy(self, array: np.ndarray, start: int = 0) -> float:
        """Return the mean squared norm of the output of rows from `start` on."""
        matrix, moments = array.reshape(array.shape[0], -1), self.moment.matrix
        if self.moment.transposed:
            return output_energy(matrix.T, moments)
        if len(moments) > 1 and len(matrix) < len(self.moment.row_weight):
            length = len(self.moment.row_weight) // len(moments)
            moments = moments[np.arange(start, start + len(matrix)) // length]
        return output_energy(matrix, moments)


@functools.lru_cache(maxsize=2)  # a tensor is planned, and perhaps encoded several times
def _feedback_of(calibrated: Calibrated) -> Feedback:
    moment = calibrated.moment
    weights = np.maximum(moment.row_weight, 0).astype(np.float64)
    weights = np.maximum(weights, _FLOOR * (weights.mean() or 1.0))
    try:
        return Feedback.of(moment.matrix, weights, moment.damping, calibrated.along)
    except CodecError as error:
        raise CheckpointError(f"{moment.place}: {error}; measure anew") from error


def calibrated_curve(
    array: np.ndarray,
    calibrated: Calibrated,
    templates: Sequence[str],
    lossless_bits: float,
    largest: float,
) -> RDCurve:
    """Return rates and errors of a tensor's scaled values.

    Parameters
    ----------
    array : numpy.ndarray
    calibrated : Calibrated
    templates : sequence of str
        Of those, quantizers of single elements are tried.
    lossless_bits : float
        Per weight.
    largest : float
        Magnitude of the array's largest element.
    """
    feedback = calibrated.feedback()
    rows, inputs = row_and_column_exponents(feedback)
    matrix = array.reshape(array.shape[0], -1)
    matrix = matrix.T if feedback.along else matrix  # columns × rows
    every = max(matrix.size // _SAMPLE, 1)
    scales = factors(inputs)[:, None] * factors(rows[::every])
    sample = np.ascontiguousarray(matrix[:, ::every] * scales, np.float32)
    trees = dict.fromkeys(
        text
        for text in (*templates, ALWAYS)
        if is_free(text) and takes_feedback(scaled(text, feedback.along), feedback.along)
    )
    curve = measure_curve(sample, array.size, trees, lossless_bits, largest * float(scales.max()))
    wrapped = tuple(
        (scaled(text, feedback.along) if text else text, octave) for text, octave in curve.trees
    )
    squares = (np.square(feedback.scales) / factors(2 * inputs)).mean(axis=1)  # of each group
    of_rows = np.repeat(squares, len(rows) // len(squares)) * feedback.weights
    cost = 0.5 * float((of_rows / factors(2 * rows)).mean())
    return replace(curve, trees=wrapped, cost=cost)


def scaled(template: str, along: int) -> str:
    """Return a template whose values are scaled, stored along an axis of inputs."""
    return f"scales({'' if along else 'axis=0, '}values={template})"


@functools.lru_cache(maxsize=256)
def takes_feedback(template: str, along: int) -> bool:
    """Return whether a tree, or a template, can round columns in turn."""
    tree, one = prototype(template), np.ones((1, 1))
    if tree.lossless or not tree.codec.is_transform:
        return False
    feedback = Feedback.of(one[None], one[0], along=along)
    root = encoder_with(tree, lambda: feedback).codec
    try:
        cast(FeedbackEncoder, root).encode(np.zeros((1, 1), np.float32))  # fits any step
    except NotRepresentable:
        return False
    return True


def closest_option(
    array: np.ndarray, calibrated: Calibrated, curve: RDCurve, output_error: float
) -> int:
    """Return the option of fewest bits within a predicted output error."""
    energy = calibrated.output_energy(array)
    most = 0.5 * float(np.mean(calibrated.moment.row_weight)) * output_error**2 * energy
    assert curve.cost is not None
    within = curve.cost * curve.weights * curve.gain**2 * curve.mse <= most
    return int(np.argmin(np.where(within, curve.bits, np.inf)))


def calibrated_tensors(
    statistics: str | os.PathLike[str] | Statistics, shapes: Mapping[str, Sequence[int]]
) -> dict[str, Calibrated]:
    """Return the statistics of the tensors of a model that were measured.

    Names may differ by a prefix. Stacks of matrices, such as experts, are left out: their rounding
    has no feedback.

    Raises
    ------
    PlanError
        If there are no second moments in the statistics, or of none of these.
    CheckpointError
        If statistics of a tensor are not those of any data.
    """
    statistics = Statistics.load(statistics)
    known = statistics.arrays.get("row_weight", {}).keys() | statistics.tied.keys()
    if not known or "second_moment" not in statistics.arrays:
        raise PlanError(
            f"{statistics.path}: expected second moments, got "
            f"{', '.join(statistics.arrays) or 'none'}; run calibrate with --statistics "
            "second_moment,row_weight"
        )
    found = {}
    try:
        pairs = match_names({name: [name] for name in shapes}, known)
    except CheckpointError as error:
        raise PlanError(f"{statistics.path}: statistics of another model: {error}") from error
    for name, other in pairs.items():
        moment = statistics.moment(other)
        if moment is not None:
            found[name] = Calibrated(moment, partial(statistics.check_weights, other))
    if not found:
        raise PlanError(
            f"{statistics.path}: statistics of another model: of {listed(sorted(known))}, not of "
            f"{listed(list(shapes))}; run calibrate on this one"
        )
    return {name: own for name, own in found.items() if not own.is_stack(shapes[name])}
