"""Statistics of tensors of any scale and shape."""

from dataclasses import replace

import numpy as np
import pytest

from tensorcomp.errors import CheckpointError
from tensorcomp.metrics.distortion import ErrorSums
from tensorcomp.planning.calibrated import Calibrated, takes_feedback
from tensorcomp.planning.moments import Moment

GENERATOR = np.random.default_rng(0)
WEIGHTS = GENERATOR.normal(size=(16, 8)).astype(np.float32)


def calibrated(matrix=None, rows=16, of_rows=1.0) -> Calibrated:
    matrix = np.eye(8, dtype=np.float32)[None] if matrix is None else matrix
    weights = np.full(rows, of_rows, np.float32)
    return Calibrated(Moment(matrix, weights, 100, place="s: tensor 'w'"), lambda array: None)


@pytest.mark.parametrize("step", ["1e-30", "1", "1e30"])
@pytest.mark.parametrize("tree", ["scales(values=trellis({}))", "scales(values=uniform({}))"])
def test_trees_take_feedback_whatever_their_step(tree, step):
    assert takes_feedback(tree.format(step), 1)


def test_errors_of_doubles_are_not_rounded():
    array = WEIGHTS.astype(np.float64)
    found = calibrated().measured(ErrorSums(), array, array * (1 + 1e-9), 0)
    assert found.output_error == pytest.approx(1e-9, rel=1e-3)


@pytest.mark.parametrize("scale", [1e-50, 1e50])
def test_doubles_beyond_float32_are_refused(scale):
    calibrated().check(np.zeros((16, 8)))
    with pytest.raises(CheckpointError, match="'w': expected weights in the range of float32"):
        calibrated().check(WEIGHTS.astype(np.float64) * scale)


@pytest.mark.parametrize(("of_rows", "scale"), [(1e-36, 1e-25), (1e38, 1e25)])
def test_losses_of_any_scale(of_rows, scale):
    expected = 0.5 * of_rows * scale**2 * float(np.square(WEIGHTS, dtype=np.float64).sum())
    found = calibrated(of_rows=of_rows).loss(WEIGHTS * np.float32(scale))
    assert found / expected == pytest.approx(1, rel=1e-5)


def test_moments_of_no_data_are_refused_by_name():
    matrix = np.full((1, 8, 8), -1, np.float32) + 2 * np.eye(8, dtype=np.float32)
    with pytest.raises(CheckpointError, match=r"s: tensor 'w': .*positive definite.*measure anew"):
        calibrated(matrix).feedback()


@pytest.mark.parametrize(
    ("shape", "transposed", "stack"),
    [
        ((4, 4, 8), False, True),
        ((1, 16, 8), False, True),
        ((4, 8, 4), True, True),
        ((1, 8, 16), True, True),
        ((16, 1, 8), False, False),
        ((16, 8), False, False),
        ((8, 16), True, False),
    ],
)
def test_kernels_of_single_channels_are_no_stacks(shape, transposed, stack):
    moment = replace(calibrated().moment, transposed=transposed)
    known = Calibrated(moment, lambda array: None)
    assert known.is_stack(shape) == stack
    if not stack:
        known.check(np.ones(shape, np.float32))
