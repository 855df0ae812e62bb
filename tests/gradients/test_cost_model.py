import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import GradientError
from tensorcomp.gradients.cost_model.model import (
    TCP_OVERHEAD,
    Cost,
    Link,
    break_even_bandwidth,
    bucket_count,
    step_seconds,
)

N = 2**20
HUNDRED_MBIT = 100e6
costs = st.builds(
    Cost,
    st.sampled_from(["sum", "gather", "reduce_scatter"]),
    st.floats(1, 1e9),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 20),
)


@pytest.mark.parametrize(
    ("reduction", "world", "sent", "messages"),
    [
        ("sum", 1, 0, 0),
        ("sum", 2, 1200, 2),
        ("sum", 3, 1600, 4),
        ("gather", 1, 0, 0),
        ("gather", 2, 1200, 1),
        ("gather", 3, 2400, 2),
        ("reduce_scatter", 2, 1200, 3),
        ("reduce_scatter", 4, 1800, 9),
    ],
)
def test_bytes_and_messages(reduction, world, sent, messages):
    cost = Cost(reduction, 1200)
    assert cost.bytes_sent(world) == pytest.approx(sent)
    assert cost.messages(world) == messages


@pytest.mark.parametrize(
    ("reduction", "payload", "world", "wire_share", "milliseconds"),
    [
        # Bytes on interfaces over bytes of the payload, and ms, of gloo on lines of 100 Mbit/s.
        ("sum", 4 * N, 2, 1.05, 364),
        ("sum", 4 * N, 4, 1.55, 554),
        ("sum", 2 * N, 2, 1.05, 175),
        ("sum", 2 * N, 4, 1.54, 270),
        ("gather", 838_856, 4, 3.09, 213),
        ("reduce_scatter", N, 4, 1.58, 188),
    ],
)
def test_the_model_is_near_what_was_measured(reduction, payload, world, wire_share, milliseconds):
    cost = Cost(reduction, payload)
    wire = TCP_OVERHEAD * cost.bytes_sent(world) / payload
    assert wire == pytest.approx(wire_share, rel=0.03)
    link = Link.of_line(HUNDRED_MBIT, latency=0.5e-3)
    assert 1e3 * cost.communication(world, link) == pytest.approx(milliseconds, rel=0.3)


def test_seconds_are_latency_and_bytes_over_bandwidth():
    link = Link(bandwidth=1000.0, latency=0.25)
    assert Cost("gather", 500).communication(3, link) == 2 * 0.25 + 1.0
    assert Cost("gather", 500, collectives=4).communication(3, link) == 8 * 0.25 + 1.0
    assert Cost("sum", 500).communication(1, link) == 0.0


def test_what_a_rank_codes():
    assert Cost("sum", 1, 3.0, 1.0).coding(4) == (3.0, 1.0)
    assert Cost("gather", 1, 3.0, 1.0).coding(4) == (3.0, 4.0)
    assert Cost("reduce_scatter", 1, 4.0, 1.0).coding(4) == (5.0, 2.0)


@given(costs, st.integers(2, 64), st.floats(0, 0.01), st.floats(0, 2))
def test_below_the_break_even_bandwidth_it_is_faster(cost, world, latency, backward):
    dense = Cost("sum", 4 * N, collectives=3)
    limit = break_even_bandwidth(cost, dense, world, latency)
    for factor in (0.5, 0.99, 1.01, 2.0):
        bandwidth = 1e9 * factor if limit in (0.0, math.inf) else limit * factor
        link = Link(bandwidth, latency)
        saved = dense.work(world, link) - cost.work(world, link)
        if limit == math.inf or (limit and factor < 1):
            assert saved > 0
        elif limit:
            assert saved < 0
        else:
            assert cost.bytes_sent(world) >= dense.bytes_sent(world)
        # What runs beside it changes nothing of which one is faster.
        steps = (
            step_seconds(backward, dense.work(world, link), 3),
            step_seconds(backward, cost.work(world, link), 3),
        )
        assert (steps[0] > steps[1]) == (saved > 0) or math.isclose(*steps, rel_tol=1e-9)


def test_break_even_by_hand():
    # 3 MB less in 10 ms more: 300 MB/s.
    cost = Cost("sum", 1e6, encode=0.006, decode=0.004)
    assert break_even_bandwidth(cost, Cost("sum", 4e6), 2) == pytest.approx(3e8)
    assert break_even_bandwidth(Cost("sum", 1e6), Cost("sum", 4e6), 2) == math.inf
    assert break_even_bandwidth(Cost("gather", 4e6), Cost("sum", 4e6), 3) == 0.0
    # Fewer messages make up for the time of coding.
    gathered = Cost("gather", 1e6, encode=0.0005)
    assert break_even_bandwidth(gathered, Cost("sum", 4e6), 2, latency=0.001) == math.inf


@pytest.mark.parametrize(
    ("backward", "work", "buckets", "expected"),
    [(1.0, 2.0, 1, 3.0), (1.0, 0.5, 1, 1.5), (1.0, 0.5, 5, 1.1), (1.0, 2.0, 4, 2.25), (0, 2, 4, 2)],
)
def test_exchanges_hide_behind_the_backward_pass(backward, work, buckets, expected):
    assert step_seconds(backward, work, buckets) == pytest.approx(expected)
    ready, free = 0.0, 0.0  # the same, bucket by bucket
    for _ in range(buckets):
        ready += backward / buckets
        free = max(free, ready) + work / buckets
    assert free == pytest.approx(expected)


def test_buckets():
    assert [bucket_count(n) for n in (0, 1, 25 * N, 25 * N + 1)] == [1, 1, 1, 2]


def test_costs_at_1024_ranks():
    link = Link(1e8, 1e-4)
    cost, dense = Cost("gather", 1e5, 0.01, 0.001), Cost("sum", 4e7)
    assert cost.bytes_sent(1024) == 1023e5
    assert cost.work(1024, link) == pytest.approx(0.01 + 1.024 + 1023 * 1e-4 + 1.023)
    assert dense.work(2, link) < dense.work(1024, link) < 2.6 * dense.work(2, link)


def test_refusals():
    with pytest.raises(GradientError, match="expected a reduction of sum"):
        Cost("ring", 1)


def test_lines_and_links():
    assert Link.of_line(1e9).bandwidth == pytest.approx(1e9 / 8 / 1.05)
