"""Selection of whole units: filters, channels, blocks, rows and patterns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_select import check

from tensorcomp.errors import PruningError
from tensorcomp.selection.granularity import parse_granularity
from tensorcomp.selection.select import select


@pytest.mark.parametrize("granularity", ["filter", "channel", "block(2, 2)", "row"])
@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_units_go_as_a_whole(granularity, scope):
    rng = np.random.default_rng(1)
    scores = {name: rng.random((8, 6)) for name in "ab"}
    selection = select(scores, 0.5, granularity=granularity, scope=scope)
    assert selection.sparsity == 0.5
    unit = selection.granularity
    sums, kept = [], []
    for name in scores:
        mask = selection.mask(name)
        whole = unit.sums(mask.astype(np.float32)).reshape(-1)
        assert set(whole) <= {0, mask.size / whole.size}
        assert selection.pruned[name] == np.count_nonzero(~mask)
        sums.append(unit.sums(scores[name]).reshape(-1))
        kept.append(whole > 0)
        if scope == "tensor":
            assert sums[-1][kept[-1]].min() > sums[-1][~kept[-1]].max()
    if scope == "global":
        values, mask = np.concatenate(sums), np.concatenate(kept)
        assert values[mask].min() > values[~mask].max()


def test_units_of_unlike_size_come_nearest_to_the_aim():
    scores = {"a": np.full((4, 10), 0.1), "b": np.full((3, 7), 1.0)}
    # 61 weights: after 3 units of `a` 30 are gone, after all four 40; half is 30 (30.5, to even).
    assert select(scores, 0.5, granularity="filter", scope="global", floor=0).pruned == {
        "a": 30,
        "b": 0,
    }
    assert select(scores, 0.6, granularity="filter", scope="global", floor=0).pruned == {
        "a": 40,
        "b": 0,
    }
    assert select(scores, 0.6, granularity="filter", scope="global").pruned == {"a": 30, "b": 7}
    # Left alone, each tensor loses its part: whole units are no match across tensors.
    by_tensor = select(scores, 0.6, granularity="filter", scope="tensor").pruned
    assert select(scores, 0.6, granularity="filter").pruned == by_tensor != {"a": 30, "b": 7}


def test_units_obey_limits():
    scores = {"a": np.arange(8.0)[:, None] * np.ones((8, 4)), "b": 100 + np.ones((8, 4))}
    selection = select(scores, 0.5, granularity="filter", scope="global", floor=0.25, ceiling=0.9)
    assert selection.pruned == {"a": 24, "b": 8}


def test_units_that_come_nearest_within_a_floor_are_enough():
    # 90 % of 32 weights are 29: nearest are 7 filters, 28, which is what the floor allows.
    scores = {"w": np.arange(8.0)[:, None] * np.ones((8, 4))}
    assert select(scores, 0.9, granularity="filter").pruned == {"w": 28}
    with pytest.raises(PruningError, match="31 of 32 weights cannot be pruned, only 0 to 28"):
        select(scores, 0.96, granularity="filter")


def test_units_too_large_for_floor_and_ceiling_keep_the_floor():
    scores = {"w": np.arange(4.0)[:, None] * np.ones((4, 4))}
    selection = select(scores, 0.3, granularity="filter", scope="global", floor=0.6, ceiling=0.7)
    assert selection.pruned == {"w": 4}


@given(
    st.integers(0, 999),
    st.floats(0, 1),
    st.sampled_from([0.1, 0.5, 1]),
    st.sampled_from(["filter", "channel", "block(2, 3)"]),
)
@settings(max_examples=150)
def test_units_of_weights_pruned_before_come_nearest_to_the_aim(seed, aim, density, granularity):
    """What single weights lost before counts, in the units that stay too."""
    rng = np.random.default_rng(seed)
    unit = parse_granularity(granularity)
    scores = {name: rng.integers(-3, 9, (4, 6)).astype(np.float32) for name in "ab"}
    before = {name: rng.random((4, 6)) < density for name in "ab"}
    dropped = sum(np.count_nonzero(~mask) for mask in before.values())
    k = max(round(aim * 48), dropped)
    sums = np.concatenate([unit.sums(scores[n] * before[n]).reshape(-1) for n in "ab"])
    left = np.concatenate([unit.sums(before[n]).reshape(-1) for n in "ab"]).astype(int)
    order = np.argsort(np.where(left > 0, sums, -np.inf), kind="stable")
    totals = dropped + np.cumsum([0, *left[order]])
    gone = np.zeros(sums.size, np.bool_)
    gone[order[: np.argmin(np.abs(totals - k))]] = True
    parts = dict(zip("ab", np.split(gone, 2), strict=True))
    masks = {name: before[name] & ~unit.spread(part, (4, 6)) for name, part in parts.items()}
    check(select(scores, k / 48, granularity=unit, scope="global", floor=0, previous=before), masks)


def test_a_pattern_says_its_sparsity():
    scores = {"w": np.arange(16.0).reshape(2, 8)}
    selection = select(scores, granularity="nm(1, 4)")
    assert selection.sparsity == 0.75
    assert np.count_nonzero(selection.mask("w")) == 4
    assert select(scores, 0.75, granularity="nm(1, 4)").sparsity == 0.75
    with pytest.raises(PruningError, match="by itself"):
        select(scores, 0.5, granularity="nm(1, 4)")
    with pytest.raises(PruningError, match="by itself"):
        select(scores, granularity="nm(1, 4)", scope="tensor")


def test_a_sparsity_for_each_tensor():
    scores = {name: np.arange(10.0) for name in "ab"}
    assert select(scores, {"a": 0.2, "b": 0.7}).pruned == {"a": 2, "b": 7}
    with pytest.raises(PruningError, match="no tensor is called 'c'"):
        select(scores, {"a": 0.2, "b": 0.7, "c": 0})
    with pytest.raises(PruningError, match="none for 'b'"):
        select(scores, {"a": 0.2})
    with pytest.raises(PruningError, match="goes with the scope"):
        select(scores, {"a": 0.2, "b": 0.7}, scope="global")
