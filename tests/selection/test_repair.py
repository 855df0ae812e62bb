"""Kept weights make up for pruned ones: least squares by second moments."""

import ml_dtypes
import numpy as np
import pytest

from tensorcomp.planning.moments import Moment
from tensorcomp.planning.statistics import Statistics
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.stored.repair import repaired
from tensorcomp.selection.streaming_scores import StreamingScores


def moment_of(inputs, rows, *, groups=1, transposed=False, positions=4000, seed=0):
    """Return a model of correlated inputs."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((groups, 4 * inputs, 6)) @ random.standard_normal(
        (groups, 6, inputs)
    )
    x += 0.3 * random.standard_normal(x.shape) * np.exp(random.standard_normal(inputs))
    second = (x.transpose(0, 2, 1) @ x / x.shape[1]).astype(np.float32)
    return Moment(second, np.ones(rows, np.float32), positions, transposed)


def least_squares(rows, kept, moments):
    """Return the best rows, each solved by itself."""
    found = np.zeros(rows.shape)
    for number, (row, some) in enumerate(zip(rows.astype(np.float64), kept, strict=True)):
        moment = moments[number * len(moments) // len(rows)]
        found[number, some] = np.linalg.solve(moment[np.ix_(some, some)], moment[some] @ row)
    return found


def cost(rows, wanted, moments):
    errors = (rows.astype(np.float64) - wanted).reshape(len(moments), -1, rows.shape[1])
    return float(np.einsum("gri,gij,grj->", errors, moments, errors))


@pytest.mark.parametrize(("groups", "transposed"), [(1, False), (1, True), (4, False)])
def test_kept_weights_are_those_of_least_squares(groups, transposed):
    random = np.random.default_rng(1)
    weights = random.standard_normal((300, 50)).astype(np.float32)
    kept = random.random(weights.shape) < 0.5
    moment = moment_of(50, 300, groups=groups, transposed=transposed)
    given = (weights.T, kept.T) if transposed else (weights, kept)
    found = repaired(np.ascontiguousarray(given[0]), np.ascontiguousarray(given[1]), moment)
    found = found.T if transposed else found
    moments = moment.damped()
    best = cost(least_squares(weights, kept, moments), weights, moments)
    plain = cost(weights * kept, weights, moments)
    assert best < 0.3 * plain
    assert cost(found, weights, moments) < best + 0.01 * (plain - best)
    np.testing.assert_array_equal(found != 0, kept)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_weights_and_moments_is_free(scale):
    weights = np.random.default_rng(2).standard_normal((20, 16)).astype(np.float32)
    kept = np.random.default_rng(3).random(weights.shape) < 0.5
    moment = moment_of(16, 20)
    large = Moment(moment.stored * np.float32(scale), moment.row_weight, moment.positions)
    found = repaired(weights * np.float32(scale), kept, large)
    np.testing.assert_allclose(
        found / np.float32(scale), repaired(weights, kept, moment), 1e-3, 1e-4
    )


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_zeros_are_where_weights_were_pruned_and_zeros_stay(dtype):
    random = np.random.default_rng(4)
    weights = random.standard_normal((64, 4, 3, 3)).astype(dtype)
    weights[weights == 0] = 1
    weights[0, 0] = -0.0
    weights[1, 0] = 2**-6  # near the smallest of some types
    kept = random.random(weights.shape) < 0.6
    before = weights.copy()
    found = repaired(weights, kept, moment_of(36, 64))
    assert weights.tobytes() == before.tobytes()
    assert found.dtype == weights.dtype
    assert np.isfinite(found.astype(np.float64)).all()
    np.testing.assert_array_equal(found != 0, kept & (weights != 0))
    words = found.view(f"u{found.itemsize}")
    assert not words[~kept].any()  # +0.0
    assert (words[0, 0][kept[0, 0]] != 0).all()  # -0.0


def test_what_would_overflow_stays():
    weights = np.full((4, 2), 60000, np.float16)
    kept = np.array([[True, False]] * 4)
    moment = Moment(np.array([[1, 0.99], [0.99, 1]], np.float32), np.ones(4, np.float32), 1000)
    np.testing.assert_array_equal(repaired(weights, kept, moment), weights * kept)
    np.testing.assert_array_equal(repaired(weights / 2, kept, moment)[:, 0] > 40000, True)


def test_nothing_pruned_and_all_pruned():
    weights = np.random.default_rng(5).standard_normal((9, 8)).astype(np.float32)
    moment = moment_of(8, 9)
    assert repaired(weights, weights != 0, moment).tobytes() == weights.tobytes()
    assert not repaired(weights, weights == 0, moment).any()
    unseen = Moment(np.zeros((8, 8), np.float32), np.ones(9, np.float32), 0)
    kept = weights > 0
    np.testing.assert_array_equal(repaired(weights, kept, unseen), weights * kept)


def test_scores_follow_from_second_moments():
    weights = np.random.default_rng(6).standard_normal((6, 2, 5)).astype(np.float32)
    moment = moment_of(10, 6)
    arrays = {"second_moment": {"w": moment.stored[0]}, "row_weight": {"w": moment.row_weight}}
    statistics = Statistics(arrays, positions={"w": 4000})

    def scores(name):
        return StreamingScores({"w": weights}, parse_score(name), statistics)["w"]

    norms = np.sqrt(4000 * np.diagonal(moment.stored[0])).reshape(2, 5)
    np.testing.assert_allclose(scores("wanda"), np.abs(weights) * norms, 1e-5)
    damped = moment.damped()
    left = np.empty(weights.shape)
    for place in np.ndindex(weights.shape):
        kept = np.ones((6, 10), bool)
        kept.reshape(weights.shape)[place] = False
        row = slice(place[0], place[0] + 1)
        rows = weights.reshape(6, 10)[row]
        left[place] = cost(least_squares(rows, kept[row], damped), rows, damped)
    np.testing.assert_allclose(scores("obs") ** 2 / 4000, left, 1e-3)


@pytest.mark.parametrize(("groups", "transposed"), [(3, False), (1, True)])
def test_scores_of_groups_and_of_inputs_by_outputs(groups, transposed):
    moment = moment_of(10, 6, groups=groups, transposed=transposed)
    arrays = {"second_moment": {"w": moment.stored}, "row_weight": {"w": moment.row_weight}}
    statistics = Statistics(arrays, transposed=("w",) if transposed else ())
    weights = np.ones((10, 6) if transposed else (6, 10), np.float32)
    found = StreamingScores({"w": weights}, parse_score("wanda"), statistics)["w"]
    found = found.T if transposed else found
    for row in range(6):
        own = moment.stored[row * groups // 6]
        np.testing.assert_allclose(found[row], np.sqrt(np.diagonal(own)), 1e-6)
