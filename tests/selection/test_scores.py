"""Every score against numbers worked out by hand."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics
from tensorcomp.selection.scores import SCORES, parse_score
from tensorcomp.selection.scores.weights_alone import Random
from tensorcomp.selection.streaming_scores import StreamingScores

DRAWN = [0.2626054113513977, 0.7303877417375402]  # by Random(1) for layer.weight
WEIGHTS = {"w": np.array([[1.0, -2.0], [0.5, 4.0]], np.float32)}


def scores_of(score: str, statistic: object = None, weights=WEIGHTS) -> np.ndarray:
    parsed = parse_score(score)
    statistics = None
    if parsed.statistic is not None:
        statistics = Statistics({parsed.statistic: {"w": np.asarray(statistic, np.float32)}})
    return StreamingScores(weights, parsed, statistics)["w"]


def test_magnitude():
    np.testing.assert_array_equal(scores_of("magnitude"), [[1, 2], [0.5, 4]])


@pytest.mark.parametrize("score", ["gradient", "taylor", "snip", "grasp", "synflow"])
def test_measured_scores_are_what_was_measured(score):
    measured = [[0.25, -1], [3, 0]]
    np.testing.assert_array_equal(scores_of(score, measured), measured)


def test_obd_is_half_h_w_squared():
    # ½ · h · w²: ½·2·1, ½·1·4, ½·8·0.25, ½·0.5·16
    np.testing.assert_array_equal(scores_of("obd", [[2, 1], [8, 0.5]]), [[1, 2], [1, 4]])


def test_obd_of_tiny_weights_does_not_underflow():
    tiny = {"w": np.full((1, 1), 1e-30, np.float32)}
    assert scores_of("obd", [[1e-30]], tiny)[0, 0] == pytest.approx(5e-91, rel=1e-6)


def test_wanda_multiplies_by_the_norm_of_what_a_weight_reads():
    np.testing.assert_array_equal(scores_of("wanda", [10, 0.5]), [[10, 1], [5, 2]])


def test_wanda_of_a_kernel():
    weights = {"w": np.arange(-4, 4, dtype=np.float32).reshape(2, 1, 2, 2)}
    norms = [[[1, 2], [3, 4]]]
    expected = [[[[4, 6], [6, 4]]], [[[0, 2], [6, 12]]]]
    np.testing.assert_array_equal(scores_of("wanda", norms, weights), expected)


def test_lamp_by_hand():
    # Squares in ascending order: 0.25, 1, 4, 16; sums of those not smaller: 21.25, 21, 20, 16.
    expected = [[1 / 21, 4 / 20], [0.25 / 21.25, 1]]
    np.testing.assert_allclose(scores_of("lamp"), expected, rtol=1e-15)


def test_lamp_of_equal_weights_and_of_zeros():
    ones = {"w": np.ones((1, 4), np.float32)}
    np.testing.assert_allclose(scores_of("lamp", weights=ones), [[1 / 4, 1 / 3, 1 / 2, 1]])
    zeros = {"w": np.zeros((2, 2), np.float32)}
    np.testing.assert_array_equal(scores_of("lamp", weights=zeros), zeros["w"])


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1e30, 1e200])
def test_squares_out_of_range_keep_their_order(size):
    """Float64 holds no square of 1e-200 and none of 1e200."""
    weights = {"w": size * np.array([[1.0, -2.0], [0.5, 4.0]])}
    expected = [[1 / 21, 4 / 20], [0.25 / 21.25, 1]]
    np.testing.assert_allclose(scores_of("lamp", weights=weights), expected, rtol=1e-14)
    parsed = parse_score("obd")
    damage = parsed.score(weights["w"], np.full((2, 2), 1 / size), name="w")
    np.testing.assert_allclose(damage / size, [[0.5, 2], [0.125, 8]], rtol=1e-14)


@pytest.mark.parametrize("score", ["lamp", "obd", "wanda", "magnitude"])
def test_infinite_weights_give_no_warnings(score):
    weights = {"w": np.array([[np.inf, 1.0], [3e38, 2.0]], np.float32)}
    found = scores_of(score, np.full((2, 2), 3e38), weights)
    assert not np.isfinite(found[0, 0])


def test_random_depends_on_seed_name_and_index_only():
    weights = {name: np.zeros((1000, 700), np.float32) for name in ("a", "b")}
    scores = StreamingScores(weights, Random(7))
    whole = scores["a"]
    assert whole.min() >= 0
    assert whole.max() < 1
    assert abs(whole.mean() - 0.5) < 0.002
    assert np.unique(whole).size == whole.size
    part = Random(7).score(np.zeros(5, np.float32), None, name="a", start=123)
    np.testing.assert_array_equal(part, whole.reshape(-1)[123:128])
    assert not np.array_equal(whole, scores["b"])
    assert not np.array_equal(whole, StreamingScores(weights, Random(8))["a"])


def test_random_numbers_are_the_same_for_ever():
    drawn = Random(1).score(np.zeros(2, np.float32), None, name="layer.weight")
    np.testing.assert_array_equal(drawn, DRAWN)


@pytest.mark.parametrize("name", SCORES)
def test_texts_go_both_ways(name):
    assert str(parse_score(name)) == name
    assert parse_score(str(parse_score(name))) == parse_score(name)


def test_the_seed_is_in_the_text():
    assert parse_score("random(7)") == Random(7) == parse_score(str(Random(7)))


@pytest.mark.parametrize(
    "text", ["", "magnitud", "random(-1)", "random(x)", "snip(3)", "random(1.5)"]
)
def test_unknown_scores(text):
    with pytest.raises(PruningError):
        parse_score(text)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_magnitudes_of_every_type_are_exact(dtype):
    values = np.array([[-0.0, 1.5, -3.25e-3, 2.0**-14]]).astype(dtype)
    scores = StreamingScores({"w": values}, parse_score("magnitude"))["w"]
    np.testing.assert_array_equal(scores.astype(np.float64), np.abs(values.astype(np.float64)))


def test_missing_and_foreign_statistics():
    with pytest.raises(PruningError, match="needs the statistic 'snip'"):
        StreamingScores(WEIGHTS, parse_score("snip"))
    with pytest.raises(PruningError, match="expected the statistic"):
        StreamingScores(WEIGHTS, parse_score("snip"), Statistics({"fisher": {}}))
    with pytest.raises(PruningError, match="of tensor 'w', got none"):
        StreamingScores(WEIGHTS, parse_score("snip"), Statistics({"snip": {}}))
    foreign = Statistics({"snip": {"w": np.zeros((3, 3), np.float32)}})
    with pytest.raises(PruningError, match="another model"):
        StreamingScores(WEIGHTS, parse_score("snip"), foreign)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 300), st.sampled_from(sorted(SCORES)))
def test_runs_make_up_the_whole(rows, columns, length, score):
    """Whatever the runs, a tensor's scores are the same."""
    from unittest import mock

    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((rows, columns)).astype(np.float32)}
    parsed = parse_score(score)
    arrays = {"w": rng.random((rows, columns)).astype(np.float32)}
    if parsed.statistic == "input_norm":
        arrays = {"w": arrays["w"][0]}
    statistics = Statistics({parsed.statistic: arrays}) if parsed.statistic else None
    scores = StreamingScores(weights, parsed, statistics)
    whole = scores["w"]
    with mock.patch("tensorcomp.selection.streaming_scores.RUN", length):
        np.testing.assert_array_equal(scores["w"], whole)
