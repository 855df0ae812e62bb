import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.ddp.coding_groups import CodingGroup
from tensorcomp.gradients.ddp.shards import (
    ALIGNMENT,
    MEAN_OF,
    Shard,
    ShardedGradient,
    partition,
    shards_of,
)
from tensorcomp.gradients.payload.decoded import DenseGradient, SparseGradient


def test_a_small_case_by_hand():
    bounds = partition({"big": 5000, "bias": 10, "norm": 300}, 3)
    # 40 blocks of 128 are 14 + 13 + 13; rank 2 has 5000 - 27 * 128 = 1544, so it owns least.
    assert bounds["big"] == (0, 1792, 3456, 5000)
    assert bounds["bias"] == (0, 0, 0, 10)
    assert bounds["norm"] == (0, 0, 0, 300)
    assert [loads(bounds, owner) for owner in range(3)] == [1792, 1664, 1854]


def loads(bounds: dict[str, tuple[int, ...]], owner: int) -> int:
    """Return how many elements a rank owns."""
    return sum(ends[owner + 1] - ends[owner] for ends in bounds.values())


@settings(deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 9000), st.integers(0, 10**7)), max_size=30),
    world=st.integers(1, 17),
)
def test_every_element_has_one_owner_and_loads_are_even(sizes, world):
    owned = partition({str(i): size for i, size in enumerate(sizes)}, world)
    for i, size in enumerate(sizes):
        bounds = owned[str(i)]
        assert len(bounds) == world + 1
        assert bounds[0] == 0
        assert bounds[-1] == size
        assert list(bounds) == sorted(bounds)
        assert all(bound % ALIGNMENT == 0 or bound == size for bound in bounds)
        if size < 4096:
            assert len(set(bounds)) <= 2  # one owner
    found = [loads(owned, owner) for owner in range(world)]
    assert max(found) - min(found) <= 4096 + 2 * ALIGNMENT


def test_small_parameters_go_to_all_owners_by_turns():
    owned = partition({str(i): 100 for i in range(8)}, 4)
    owners = [owned[str(i)].index(100) - 1 for i in range(8)]
    assert owners == [0, 1, 2, 3, 0, 1, 2, 3]


def test_no_rank_is_refused():
    with pytest.raises(GradientError, match="at least 1 rank"):
        partition({"w": 3}, 0)


def joined_group() -> tuple[CodingGroup, tuple[Shard, ...]]:
    """Return a group of three small parameters, cut for two ranks."""
    sizes = {"a": 5, "b": 3, "c": 4}
    parts = tuple(GradientSpec(name, (size,), worker=1) for name, size in sizes.items())
    group = CodingGroup(GradientSpec("a and 2 more", (12,), worker=1), Dense(), parts)
    return group, shards_of(group, partition(sizes, 2))


def test_shards_of_joined_parameters():
    _, (first, second) = joined_group()
    assert first.owner == 0
    assert first.where == slice(0, 5)  # "a"; then rank 1 owns less until it has "b" and "c"
    assert second.where == slice(5, 12)
    assert second.spec == GradientSpec("a and 2 more, part 1", (7,), worker=1)
    assert second.mean.key == (MEAN_OF + "b", MEAN_OF + "c")
    assert [(one.size, one.worker) for one in second.mean.parts] == [(3, 1), (4, 1)]
    assert first.mean.spec == GradientSpec(MEAN_OF + "a", (5,), worker=0)


def test_what_is_sent_in_shards_is_where_the_shards_are():
    _, (first, second) = joined_group()
    values = np.arange(12, dtype=np.float32)
    sparse = SparseGradient(np.array([1, 6]), np.array([10, 20], np.float32))
    sent = ShardedGradient(((first, DenseGradient(np.ones(5, np.float32))), (second, sparse)))
    assert sent.count == 7
    out = np.zeros(12, np.float32)
    sent.add_to(out, 2.0)
    assert out.tolist() == [2] * 5 + [0, 20, 0, 0, 0, 0, 40]
    left = values.copy()
    sent.subtract_from(left)
    assert left.tolist() == [-1, 0, 1, 2, 3, 5, -4, 7, 8, 9, 10, -9]
    sent.clear(values)
    assert values.tolist() == [0] * 5 + [5, 0, 7, 8, 9, 10, 0]


def test_shards_that_lie_apart_are_put_back():
    parts = tuple(GradientSpec(name, (2,)) for name in "abc")
    group = CodingGroup(GradientSpec("x", (6,)), Dense(), parts)
    first, second = shards_of(group, {"a": (0, 2, 2), "b": (0, 0, 2), "c": (0, 2, 2)})
    assert first.spec.shape == (4,)
    assert isinstance(first.where, np.ndarray)
    assert first.where.tolist() == [0, 1, 4, 5]
    assert second.where == slice(2, 4)
    out = np.zeros(6, np.float32)
    sent = DenseGradient(np.array([1, 2, 3, 4], np.float32))
    ShardedGradient(((first, sent),)).add_to(out, 1.0)
    assert out.tolist() == [1, 2, 0, 0, 3, 4]
