"""Dividing shards among parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import OptionError
from tensorcomp.pipeline.parts import deal, parse_part

SIZES = st.dictionaries(st.text("abc", min_size=1), st.integers(0, 1 << 40), max_size=40)


def test_the_largest_goes_first_to_the_part_that_has_least():
    sizes = {"a": 5, "b": 9, "c": 4, "d": 4}
    assert deal(sizes, 2) == [["b", "d"], ["a", "c"]]


@given(SIZES, st.integers(1, 50) | st.just(10**12))
def test_every_shard_is_in_one_part_however_they_are_listed(sizes: dict[str, int], count: int):
    parts = deal(sizes, count)
    assert len(parts) == min(count, max(len(sizes), 1))
    assert sorted(shard for part in parts for shard in part) == sorted(sizes)
    assert deal(dict(reversed(sizes.items())), count) == parts


@given(SIZES, st.integers(1, 50))
def test_no_part_has_more_than_its_share_and_a_shard(sizes: dict[str, int], count: int):
    most = max(sum(sizes[shard] for shard in part) for part in deal(sizes, count))
    assert most <= sum(sizes.values()) / count + max(sizes.values(), default=0)


@pytest.mark.parametrize(("part", "parsed"), [("3/8", (3, 8)), ((0, 1), (0, 1))])
def test_parts_are_understood(part, parsed):
    assert parse_part(part) == parsed


@pytest.mark.parametrize("part", ["8/8", "-1/8", "0/0", (1, 1)])
def test_parts_count_from_0(part):
    with pytest.raises(OptionError, match="parts count from 0"):
        parse_part(part)


@pytest.mark.parametrize("part", ["", "3", "1/2/3", "a/b", (1, 2, 3), None, 4])
def test_other_words_are_no_part(part):
    with pytest.raises(OptionError, match="expected a part such as 0/8"):
        parse_part(part)
