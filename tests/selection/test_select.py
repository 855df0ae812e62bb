"""Selection is exact: against sorting everything, for ties, types, scopes and limits."""

import itertools
import math
import tracemalloc
from fractions import Fraction
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.errors import PruningError
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.select import select
from tensorcomp.selection.streaming_scores import StreamingScores

TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def lowest(scores, names, k):
    """Masks that drop the k lowest by (score, index in the concatenation)."""
    flat = np.concatenate([scores[name].reshape(-1).astype(np.float64) for name in names])
    keep = np.ones(flat.size, np.bool_)
    keep[np.argsort(flat, kind="stable")[:k]] = False
    sizes = np.cumsum([scores[name].size for name in names])[:-1]
    parts = np.split(keep, sizes)
    return {n: p.reshape(scores[n].shape) for n, p in zip(names, parts, strict=True)}


def check(selection, masks):
    assert selection.names == tuple(sorted(masks))
    for name, mask in masks.items():
        made = selection.mask(name)
        assert made.dtype == np.bool_
        np.testing.assert_array_equal(made, mask)
        assert selection.pruned[name] == np.count_nonzero(~mask)
        assert selection.sizes[name] == mask.size
    dropped = sum(np.count_nonzero(~mask) for mask in masks.values())
    assert selection.sparsity == dropped / sum(mask.size for mask in masks.values())


@st.composite
def tensors(draw):
    """Up to four tensors of some type, with many equal numbers among them."""
    dtype = draw(st.sampled_from(TYPES))
    few = st.sampled_from([-2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0])
    numbers = st.one_of(few, st.floats(-100, 100, width=16))
    result = {}
    for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)):
        rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 6))
        size = rows * columns
        values = draw(st.lists(numbers, min_size=size, max_size=size))
        result[name] = np.array(values).reshape(rows, columns).astype(dtype)
    return result


@given(tensors(), st.floats(0, 1), st.integers(1, 12), st.integers(1, 3))
@settings(max_examples=150)
def test_global_selection_is_sorting(scores, sparsity, length, threads):
    size = sum(array.size for array in scores.values())
    with (
        mock.patch("tensorcomp.selection.streaming_scores.RUN", length),
        mock.patch("tensorcomp.selection.select._WORTH_THREADS", 1),
    ):
        selection = select(scores, sparsity, scope="global", floor=0, threads=threads)
        check(selection, lowest(scores, sorted(scores), round(sparsity * size)))


@given(tensors(), st.floats(0, 1))
def test_selection_within_tensors(scores, sparsity):
    masks = {}
    for name, array in scores.items():
        masks.update(lowest(scores, [name], round(sparsity * array.size)))
    check(select(scores, sparsity, scope="tensor", floor=0), masks)


@given(tensors(), st.floats(0, 1))
def test_selection_within_groups(scores, sparsity):
    masks = {}
    for group in ([n for n in sorted(scores) if n < "c"], [n for n in sorted(scores) if n >= "c"]):
        size = sum(scores[name].size for name in group)
        if group:
            masks.update(lowest(scores, group, round(sparsity * size)))
    check(select(scores, sparsity, scope=lambda name: name < "c", floor=0), masks)


@given(tensors(), st.floats(0, 1))
def test_selection_within_rows(scores, sparsity):
    selection = select(scores, sparsity, scope="row", floor=0)
    for name, array in scores.items():
        mask = selection.mask(name)
        dropped = np.count_nonzero(~mask, axis=1)
        assert dropped.sum() == round(sparsity * array.size) == selection.pruned[name]
        assert dropped.max() - dropped.min() <= 1
        for row, kept, k in zip(array, mask, dropped, strict=True):
            expected = lowest({"row": row}, ["row"], int(k))["row"]
            np.testing.assert_array_equal(kept, expected)


@given(tensors(), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=200)
def test_limits_of_each_tensor_hold(scores, sparsity, one, other):
    floor, ceiling = min(one, other), max(one, other)
    k = round(sparsity * sum(array.size for array in scores.values()))
    low, high = Fraction(repr(floor)), Fraction(repr(ceiling))
    most = {n: a.size - max(math.ceil(low * a.size), floor > 0) for n, a in scores.items()}
    least = {n: min(a.size - math.floor(high * a.size), most[n]) for n, a in scores.items()}
    if not sum(least.values()) <= k <= sum(most.values()):
        with pytest.raises(PruningError):
            select(scores, sparsity, scope="global", floor=floor, ceiling=ceiling)
        return
    selection = select(scores, sparsity, scope="global", floor=floor, ceiling=ceiling)
    assert sum(selection.pruned.values()) == k
    for name in scores:
        assert least[name] <= selection.pruned[name] <= most[name]
        expected = lowest(scores, [name], selection.pruned[name])[name]
        np.testing.assert_array_equal(selection.mask(name), expected)
    for one, other in itertools.permutations(scores, 2):  # no swap would be better
        if selection.pruned[one] < most[one] and selection.pruned[other] > least[other]:
            kept = scores[one].astype(np.float64)[selection.mask(one)].min()
            gone = scores[other].astype(np.float64)[~selection.mask(other)].max()
            assert kept >= gone


@pytest.mark.parametrize("size", [100, 1000, 12_300])
def test_limits_are_the_decimal_numbers_that_were_written(size):
    """0.07 · 100 is 7.000000000000001 in floats, and 0.58 · 100 is 57.99999999999999."""
    scores = {"w": np.arange(float(size))}
    for percent in range(1, 100):
        density, sparsity = percent / 100, (100 - percent) / 100
        expected = {"w": size - size * percent // 100}
        assert select(scores, sparsity, floor=density).pruned == expected
        assert select(scores, sparsity, floor=0, ceiling=density).pruned == expected


def test_a_floor_moves_pruning_to_other_tensors():
    scores = {"a": np.arange(10.0), "b": np.arange(10.0, 20.0), "c": np.arange(20.0, 30.0)}
    selection = select(scores, 0.5, floor=0.3)
    assert selection.pruned == {"a": 7, "b": 7, "c": 1}


def test_floor_and_ceiling_that_pull_against_each_other():
    """Holding the wrong side first would leave the other out of reach."""
    scores = {"a": np.arange(100.0), "b": np.arange(100.0, 200.0), "c": np.arange(1000.0, 1100.0)}
    selection = select(scores, 1 / 3, floor=0.5, ceiling=0.75)
    assert selection.pruned == {"a": 50, "b": 25, "c": 25}


def test_no_tensor_is_cut_off_unless_asked():
    scores = {"a": np.zeros((3, 3)), "b": np.ones((30, 30))}
    assert select(scores, 0.5).pruned == {"a": 8, "b": 446}
    assert select(scores, 0.5, floor=0).pruned == {"a": 9, "b": 445}


def test_everything_can_go_if_asked():
    scores = {"a": np.ones((3, 3))}
    with pytest.raises(PruningError, match=r"9 of 9 weights cannot be pruned, only 0 to 8"):
        select(scores, 1.0)
    assert select(scores, 1.0, floor=0).sparsity == 1


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("values", ["ties", "grid", "normal"])
def test_900_of_1000(dtype, values):
    rng = np.random.default_rng(0)
    made = {
        "ties": np.full((20, 50), 0.5),
        "grid": rng.integers(-7, 8, (20, 50)) * 0.125,
        "normal": rng.standard_normal((20, 50)),
    }[values].astype(dtype)
    selection = select(StreamingScores({"w": made}, parse_score("magnitude")), 0.9)
    assert np.count_nonzero(~selection.mask("w")) == 900


def test_equal_scores_go_first_come_first():
    selection = select({"b": np.ones(4), "a": np.ones(4)}, 0.75, floor=0)
    np.testing.assert_array_equal(selection.mask("a"), [False] * 4)
    np.testing.assert_array_equal(selection.mask("b"), [False, False, True, True])


def test_zeros_of_either_sign_are_equal():
    for dtype in (np.float32, np.float64):
        selection = select({"w": np.array([0.0, -0.0, 0.0, -0.0, -1.0], dtype)}, 0.6)
        np.testing.assert_array_equal(selection.mask("w"), [False, False, True, True, False])


def test_the_order_of_the_tensors_does_not_matter():
    rng = np.random.default_rng(0)
    scores = {name: rng.integers(0, 3, (7, 9)).astype(np.float32) for name in "dcab"}
    there = select(scores, 0.37)
    back = select(dict(sorted(scores.items())), 0.37)
    for name in scores:
        np.testing.assert_array_equal(there.mask(name), back.mask(name))


@given(
    tensors(), st.floats(0, 0.9), st.floats(0, 0.9), st.sampled_from(["global", "tensor", "row"])
)
def test_later_rounds_contain_earlier_ones(scores, one, other, scope):
    first = select(scores, min(one, other), scope=scope, floor=0)
    masks = {name: first.mask(name) for name in first.names}
    again = {name: -array.astype(np.float64) for name, array in scores.items()}
    second = select(again, max(one, other), scope=scope, floor=0, previous=masks)
    for name in scores:
        assert not (second.mask(name) & ~masks[name]).any()
        assert np.count_nonzero(~second.mask(name)) == second.pruned[name]
    if scope != "tensor":
        size = sum(array.size for array in scores.values())
        k = round(max(one, other) * size)
        assert sum(second.pruned.values()) == k or scope == "row"


@pytest.mark.parametrize("scope", ["global", "tensor", "row"])
def test_fewer_than_before_is_refused(scope):
    scores = {"a": np.arange(20.0).reshape(2, 10)}
    masks = {"a": np.arange(20).reshape(2, 10) % 10 > 4}
    with pytest.raises(PruningError, match="earlier masks"):
        select(scores, 0.3, scope=scope, previous=masks)


def test_masks_of_other_tensors_are_refused():
    with pytest.raises(PruningError, match="not one of the tensors"):
        select({"a": np.ones(3)}, 0.5, previous={"b": np.ones(3, np.bool_)})
    with pytest.raises(PruningError, match="the mask of 'a'"):
        select({"a": np.ones(3)}, 0.5, previous={"a": np.ones(4, np.bool_)})
    with pytest.raises(PruningError, match="the mask of 'a'"):
        select({"a": np.ones(3)}, 0.5, previous={"a": np.ones(3)})


@pytest.mark.parametrize("granularity", ["element", "filter", "nm(1, 2)"])
@pytest.mark.parametrize("scope", ["global", "tensor", "row"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_is_an_error_that_names_the_tensor(granularity, scope, dtype):
    bad = np.ones((4, 4), dtype)
    bad[2, 3] = -np.nan
    scores = {"fine": np.ones((4, 4), dtype), "broken": bad}
    pattern = granularity.startswith("nm")
    if granularity == "filter" and scope == "row":
        pytest.skip("rows are for single weights")
    with pytest.raises(PruningError, match="'broken': a score is NaN"):
        select(
            scores,
            None if pattern else 0.5,
            granularity=granularity,
            scope=None if pattern else scope,
        )


@pytest.mark.parametrize("scope", ["global", "tensor", "row"])
@pytest.mark.parametrize("granularity", ["element", "filter"])
def test_nan_is_an_error_even_if_nothing_is_to_go(granularity, scope):
    if granularity == "filter" and scope == "row":
        pytest.skip("rows are for single weights")
    scores = {"broken": np.array([[1, np.nan], [1, 1]]), "none": np.zeros((0, 2))}
    with pytest.raises(PruningError, match="'broken': a score is NaN"):
        select(scores, 0, granularity=granularity, scope=scope)
    assert select({"none": scores["none"]}, 0, scope=scope).sparsity == 0


def test_infinite_scores_of_a_unit_that_cancel_are_no_number():
    scores = {"w": np.array([[np.inf, -np.inf], [1, 1]])}
    with pytest.raises(PruningError, match="'w': a score is NaN"):
        select(scores, 0.5, granularity="filter")


def test_the_lowest_scores_are_not_taken_for_pruned_ones():
    lowest = {"w": np.full((2, 2), -np.inf)}
    assert select(lowest, 0.0, granularity="filter").pruned == {"w": 0}
    before = {"w": np.array([[True, True], [True, False]])}
    for granularity in ("element", "filter"):
        selection = select(lowest, 0.25, granularity=granularity, floor=0, previous=before)
        np.testing.assert_array_equal(selection.mask("w"), before["w"])


@pytest.mark.parametrize(
    "scores",
    [
        np.arange(2**24, 2**24 + 9),  # float32 would hold half of them
        np.ones(3, np.bool_),
        np.ones(3, np.complex128),
        np.ones(3, np.longdouble),
        np.ones(3, ">f8"),
        [1.0, 2.0],
        None,
    ],
)
def test_scores_are_arrays_of_floats(scores):
    with pytest.raises(PruningError, match=r"the scores of 'w' are a .*; give a NumPy array"):
        select({"w": scores}, 0.5)


@pytest.mark.parametrize("half", [0.5, np.float32(0.5), np.float64(0.5), Fraction(1, 2)])
def test_numbers_of_any_kind(half):
    assert select({"w": np.arange(4.0)}, half, floor=half, ceiling=half).pruned == {"w": 2}
    assert select({"w": np.arange(4.0)}, np.int64(1), floor=0).pruned == {"w": 4}


def test_infinite_scores_are_the_highest():
    selection = select({"w": np.array([np.inf, 1, 2, np.inf], np.float32)}, 0.5)
    np.testing.assert_array_equal(selection.mask("w"), [True, False, False, True])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sparsity": 1.5}, "expected sparsity to be a number from 0 to 1"),
        ({"sparsity": -0.1}, "expected sparsity to be a number from 0 to 1"),
        ({"sparsity": float("nan")}, "expected sparsity to be a number from 0 to 1"),
        ({"sparsity": True}, "expected sparsity to be a number from 0 to 1"),
        ({"sparsity": "0.5"}, "expected sparsity to be a number from 0 to 1"),
        ({"sparsity": None}, "how much is to be pruned"),
        ({"sparsity": 0.5, "floor": 2}, "expected floor to be a number"),
        ({"sparsity": 0.5, "floor": 0.5, "ceiling": 0.1}, "above the ceiling"),
        ({"sparsity": 0.5, "scope": "layer"}, "expected scope to be one of"),
        ({"sparsity": 0.5, "scope": "row", "granularity": "filter"}, "for single weights"),
        ({"sparsity": 0.5, "granularity": "block(3, 3)"}, "does not divide"),
        ({"sparsity": 0.1, "ceiling": 0.5}, "2 of 16 weights cannot be pruned, only 8 to 15"),
        ({"granularity": "nm(1, 4)", "floor": 0.5}, r"keeps 0.25 of each tensor, not 0.5 to 1"),
        ({"granularity": "nm(2, 4)", "ceiling": 0.25}, "keeps 0.5 of each tensor"),
        ({"sparsity": 0.5, "previous": {"w": [[True] * 4] * 4}}, "to be an array, got a list"),
    ],
)
def test_what_cannot_be_done_is_said(arguments, words):
    with pytest.raises(PruningError, match=words):
        select({"w": np.ones((4, 4))}, **arguments)


def test_nothing_to_prune():
    with pytest.raises(PruningError, match="no tensor"):
        select({}, 0.5)


def test_empty_tensors_are_no_trouble():
    scores = {"none": np.zeros((0, 3), np.float32), "some": np.arange(4, dtype=np.float32)}
    selection = select(scores, 0.5)
    assert selection.mask("none").shape == (0, 3)
    assert selection.sparsity == 0.5


def test_memory_stays_far_below_a_copy():
    weights = {f"w{i}": np.ones((1024, 1024), np.float32) for i in range(8)}
    weights["w3"][:] = np.random.default_rng(0).random((1024, 1024))
    scores = StreamingScores(weights, parse_score("magnitude"))
    select(scores, 0.9)
    tracemalloc.start()
    select(scores, 0.9)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20  # of 32 MiB
