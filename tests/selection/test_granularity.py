import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import PruningError
from tensorcomp.selection.granularity import (
    NM,
    Block,
    Channel,
    Element,
    Filter,
    Row,
    parse_granularity,
)
from tensorcomp.selection.scores import parse_score

ALL = [Element(), Row(), Filter(), Channel(), Block(2, 3), NM(2, 4), NM(1, 4, axis=0)]


@pytest.mark.parametrize("unit", ALL, ids=str)
def test_text_goes_both_ways(unit):
    assert parse_granularity(str(unit)) == unit
    assert parse_granularity(unit) is unit


def test_texts_as_users_write_them():
    assert parse_granularity("nm(2, 4)") == NM(2, 4)
    assert parse_granularity(" nm( 2,4 , axis = 0 ) ") == NM(2, 4, axis=0)
    assert parse_granularity("block(4,4)") == Block(4, 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("column", "no granularity is called"),
        ("nm", "got no keep"),
        ("nm(0, 4)", "keep"),
        ("nm(5, 4)", "keep"),
        ("nm(2, 1000)", "group"),
        ("nm(2.0, 4)", "keep"),
        ("block(0, 4)", "expected height to be an integer from 1, got 0"),
        ("block(a, 4)", "expected a number, true"),
        ("nm(keep=2, 4)", "got 'keep' twice"),
        ("nm(2, 4) nm", "expected the end, got 'nm'"),
        ("filter(3)", "filter: expected at most 0 arguments"),
        ("", "expected a granularity's name"),
    ],
)
def test_bad_texts(text, words):
    with pytest.raises(PruningError, match=words):
        parse_granularity(text)


@pytest.mark.parametrize(
    ("unit", "shape", "words"),
    [
        (Row(), (2, 3, 4), "expected a matrix"),
        (Filter(), (5,), "less than two axes"),
        (Channel(), (), "less than two axes"),
        (Block(2, 3), (4, 4), "does not divide"),
        (Block(2, 3), (6,), "less than two axes"),
        (NM(2, 4), (3, 6), "does not divide"),
        (NM(2, 4, axis=2), (4, 4), "no such axis"),
        (NM(2, 4, axis=-2), (4, 4), "no such axis"),
    ],
)
def test_shapes_that_do_not_suit(unit, shape, words):
    with pytest.raises(PruningError, match=words) as error:
        unit.tile(shape, "layer.weight")
    assert "layer.weight" in str(error.value)


def test_errors_say_what_arguments_there_are():
    for text, words in [
        ("nm(2)", "nm: expected arguments keep, group, axis, got no group, in 'nm(2)'"),
        ("nm(2, 4, axes=0)", "expected arguments among keep, group, axis, got 'axes'"),
        (3, "a granularity is a text"),
    ]:
        with pytest.raises(PruningError, match=re.escape(words)):
            parse_granularity(text)
    with pytest.raises(PruningError, match="snip: expected at most 0 arguments"):
        parse_score("snip(3)")


def test_sums_by_hand():
    scores = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    np.testing.assert_array_equal(Filter().sums(scores), [15, 51])
    np.testing.assert_array_equal(Channel().sums(scores), [24, 42])
    np.testing.assert_array_equal(Block(1, 3).sums(scores), [3, 12, 21, 30])
    np.testing.assert_array_equal(Block(2, 2).sums(scores), [14, 22, 30])


@pytest.mark.parametrize("unit", [Filter(), Channel(), Block(2, 3)], ids=str)
def test_spread_undoes_sums(unit):
    shape = (4, 3, 2)
    weights = np.prod(unit.tile(shape, "w"))
    units = np.arange(24 // weights, dtype=np.float64)
    spread = unit.spread(units, shape)
    assert spread.shape == shape
    np.testing.assert_allclose(unit.sums(spread), units * weights)


def test_pattern_keeps_the_highest_and_drops_the_first_of_equals():
    scores = np.array([[4, 1, 3, 2], [1, 1, 1, 1]], np.float32)
    np.testing.assert_array_equal(
        NM(2, 4).keeps(scores), [[True, False, True, False], [False, False, True, True]]
    )


def test_pattern_along_the_first_axis():
    scores = np.array([[1, 8], [2, 7], [3, 6], [4, 5]], np.float32)
    np.testing.assert_array_equal(
        NM(1, 4, axis=0).keeps(scores),
        [[False, True], [False, False], [False, False], [True, False]],
    )


@given(st.integers(1, 4), st.sampled_from([4, 8]), st.integers(1, 5), st.integers(1, 3), st.data())
def test_every_group_keeps_exactly(keep, group, rows, groups, data):
    numbers = st.floats(-2, 2, width=16)
    count = rows * groups * group
    values = data.draw(st.lists(numbers, min_size=count, max_size=count))
    scores = np.array(values, np.float32).reshape(rows, groups * group)
    kept = NM(keep, group).keeps(scores).reshape(-1, group)
    assert (kept.sum(axis=1) == keep).all()
    flat = scores.reshape(-1, group)
    for mask, row in zip(kept, flat, strict=True):
        if keep < group:
            assert row[mask].min() >= row[~mask].max()
