"""Sparsity of each tensor raised to an error: as much as it allows, by trying and by hand."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensorcomp.errors import PruningError
from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.statistics import Statistics
from tensorcomp.selection.adaptive import AdaptiveSelection
from tensorcomp.selection.error_curve import ErrorCurve, most_within
from tensorcomp.selection.scores.measured import Grasp, Taylor
from tensorcomp.selection.scores.weights_alone import Magnitude, Random
from tensorcomp.selection.streaming_scores import StreamingScores


def rel_l2(weights, mask):
    return measure(weights, np.where(mask, weights, weights.dtype.type(0))).rel_l2


def lowest(scores, k):
    """The mask without the k lowest by (score, flat index)."""
    mask = np.ones(scores.size, bool)
    mask[np.argsort(scores.ravel(), kind="stable")[:k]] = False
    return mask.reshape(scores.shape)


def most_by_trying(weights, scores, limit):
    """The largest k whose mask keeps the limit, found by measuring each."""
    kept = [k for k in range(weights.size + 1) if rel_l2(weights, lowest(scores, k)) <= limit]
    return max(kept)


VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3.0]),
    st.floats(-8, 8, width=32),
    st.floats(2**-20, 2**-10, width=32),
)


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=VALUES),
    st.floats(0, 1),
    st.integers(0, 30),
    st.sampled_from(["magnitude", "taylor", "random"]),
)
def test_error_is_the_largest_that_keeps_the_limit(weights, limit, k, kind):
    draws = np.random.default_rng(k).random(weights.shape).astype(np.float32)
    score = {"magnitude": Magnitude(), "taylor": Taylor(), "random": Random(3)}[kind]
    statistics = Statistics({"taylor": {"w": np.round(draws, 1)}})
    scores = StreamingScores({"w": weights}, score, statistics)
    # Limits that some choice meets exactly are the hard ones.
    exact = rel_l2(weights, lowest(scores["w"], min(k, weights.size)))
    for bound in (limit, min(exact, 1.0)):
        selection = AdaptiveSelection(scores, floor=0).within_error(bound)
        assert rel_l2(weights, selection.mask("w")) <= bound
        assert selection.pruned["w"] == most_by_trying(weights, scores["w"], bound)
        assert np.array_equal(selection.mask("w"), lowest(scores["w"], selection.pruned["w"]))


def test_error_whose_last_digits_decide():
    """Weights so small that sums of squares added up in another order may differ by more."""
    weights = np.array([[3, *[1e-5] * 6, 4]], np.float64)
    rising = Statistics({"taylor": {"w": np.arange(8.0).reshape(1, 8)}})
    scores = StreamingScores({"w": weights}, Taylor(), rising)
    for k in range(8):
        exact = rel_l2(weights, lowest(scores["w"], k))
        for bound in (exact, np.nextafter(exact, 0), np.nextafter(exact, 1)):
            if 0 <= bound <= 1:
                selection = AdaptiveSelection(scores, floor=0).within_error(float(bound))
                assert selection.pruned["w"] == most_by_trying(weights, scores["w"], bound)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_error_of_other_dtypes_and_long_tensors(dtype):
    random = np.random.default_rng(0)
    weights = random.standard_normal((130, 300)).astype(dtype)
    scores = StreamingScores({"w": weights}, Magnitude())
    for bound in (0.01, 0.1, 0.3):
        k = AdaptiveSelection(scores).within_error(bound).pruned["w"]
        assert rel_l2(weights, lowest(scores["w"], k)) <= bound
        assert rel_l2(weights, lowest(scores["w"], k + 1)) > bound


def test_error_after_earlier_pruning():
    weights = np.array([[4, 1, 0, 2, 3]], np.float32)
    earlier = {"w": np.array([[False, True, True, True, True]])}
    scores = StreamingScores({"w": weights}, Magnitude(), None, earlier)
    # What is pruned already counts as an error of 4 / sqrt(30) = 0.730; with the one 0.753.
    selection = AdaptiveSelection(scores).within_error(0.74)
    assert selection.mask("w").tolist() == [[False, True, False, True, True]]
    with pytest.raises(PruningError, match="earlier masks, want more pruned"):
        AdaptiveSelection(scores).within_error(0.5)
    filters = np.array([[4.0], [1], [2], [3]])
    earlier = {"w": np.array([[False], [True], [True], [True]])}
    scores = StreamingScores({"w": filters}, Magnitude(), None, earlier)
    selection = AdaptiveSelection(scores, granularity="filter").within_error(0.76)
    assert selection.mask("w").tolist() == [[False], [False], [True], [True]]
    # What was pruned goes first, even before scores below 0.
    below = Statistics({"grasp": {"w": np.array([[1.0], [-5], [1], [1]])}})
    scores = StreamingScores({"w": filters}, Grasp(), below, earlier)
    with pytest.raises(PruningError, match="earlier masks, want more pruned"):
        AdaptiveSelection(scores, granularity="filter").within_error(0.2)
    with pytest.raises(PruningError, match="the ceiling of its density"):
        AdaptiveSelection(StreamingScores({"w": weights}, Magnitude()), ceiling=0.3).within_error(
            0.1
        )


def test_curves():
    curve = ErrorCurve(np.array([0, 3, 4], np.float32))
    assert [curve.error(k) for k in range(4)] == [0, 0, 3 / 5, 1]
    assert [curve.within(x) for x in (0, 0.5, 0.6, 1)] == [1, 1, 2, 3]
    long = np.sort(np.random.default_rng(0).random(70_000).astype(np.float32))
    curve = ErrorCurve(long)
    squares = long.astype(np.float64) ** 2
    for k in (0, 1, 16_383, 16_384, 16_385, 65_536, 69_999, 70_000):
        assert curve.error(k) == pytest.approx(
            math.sqrt(squares[:k].sum() / squares.sum()), abs=1e-12
        )
    units, errors = curve.points()
    assert (units[0], units[-1], errors[0], errors[-1]) == (0, 70_000, 0, 1)
    assert np.all(np.diff(units) > 0)
    errors, amounts = np.array([0, 0, 0.5, 0.5, 1, np.inf]), np.array([0, 2, 4, 6, 8, 10])
    wanted = {0: 2, 0.25: 3, 0.5: 6, 0.75: 7, 1: 8, 5: 8}
    assert {t: most_within(t, errors, amounts) for t in wanted} == wanted
