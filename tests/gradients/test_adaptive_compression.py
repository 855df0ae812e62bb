from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import GradientError
from tensorcomp.gradients.autotune.adaptive import Adaptive
from tensorcomp.gradients.autotune.decisions import decide
from tensorcomp.gradients.autotune.measurements import Measurement, Speed, Trial, measure
from tensorcomp.gradients.base import GradientSpec, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.cost_model.model import Link
from tensorcomp.gradients.recipes import parse_compressor
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback

A, B = GradientSpec("a", (1000, 1000)), GradientSpec("b", (1000, 500))
CANDIDATES = {"sparse": "gather", "int8": "reduce_scatter"}
# 4 MB and 2 MB of gradients; sparse codes 1 MB in 10 ms, int8 in 1 ms.
SLOW_LINK = Measurement(
    bandwidth=1e7,
    latency=1e-4,
    encode={"sparse": Speed(0.0, 0.008), "int8": Speed(0.0, 0.0005)},
    decode={"sparse": Speed(0.0, 0.001), "int8": Speed(0.0, 0.0002)},
    trials={
        "sparse": {"a": Trial(40e3, 0.9), "b": Trial(20e3, 0.4)},
        "int8": {"a": Trial(1e6, 0.01), "b": Trial(0.5e6, 0.01)},
    },
)


def on_link(bandwidth, latency=1e-4):
    return replace(SLOW_LINK, bandwidth=bandwidth, latency=latency)


def chosen(measurements, **options):
    return decide(measurements, [A, B], CANDIDATES, len(measurements), **options)


@pytest.mark.parametrize(
    ("bandwidth", "expected"), [(1e7, "sparse"), (5e8, "int8"), (1e11, "dense")]
)
def test_the_fastest_for_the_link_is_chosen(bandwidth, expected):
    assert chosen([on_link(bandwidth)] * 2) == {"a": expected, "b": expected}


def test_choices_are_the_fastest_by_hand():
    # At 1e7 B/s and 2 ranks, for a of 4 MB: dense 0.4 s; sparse 0.032 + 2 · 0.004 + 0.004 = 0.044;
    # int8 0.002 · 1.5 + 0.0008 · 2 + 0.1 = 0.1046.
    world = [SLOW_LINK] * 2
    without = [replace(m, trials={**m.trials, "sparse": {}}) for m in world]
    assert chosen(without) == {"a": "int8", "b": "int8"}
    only_b = [replace(m, trials={**m.trials, "sparse": {"b": Trial(20e3, 0.4)}}) for m in world]
    assert chosen(only_b) == {"a": "int8", "b": "sparse"}


def test_an_error_budget_is_kept_by_every_ranks_tensors():
    assert chosen([SLOW_LINK] * 2, max_rel_l2=0.5) == {"a": "int8", "b": "sparse"}
    worse = replace(SLOW_LINK, trials={**SLOW_LINK.trials, "sparse": {"b": Trial(20e3, 0.6)}})
    assert chosen([SLOW_LINK, worse], max_rel_l2=0.5) == {"a": "int8", "b": "int8"}
    assert chosen([SLOW_LINK] * 2, max_rel_l2=0.001) == {"a": "dense", "b": "dense"}


def test_latency_decides_against_more_rounds():
    # All of a is better sparse, b hardly differs; on a line of long latency a second kind of
    # collectives costs more than it gains.
    near = on_link(1e9, latency=0.0)
    near = replace(
        near, trials={"sparse": {"a": Trial(40e3, 0.1)}, "int8": SLOW_LINK.trials["int8"]}
    )
    near = replace(near, encode={"sparse": Speed(0, 1e-4), "int8": Speed(0, 1e-4)}, decode={})
    assert chosen([near] * 2) == {"a": "sparse", "b": "int8"}
    assert chosen([replace(near, latency=0.1)] * 2)["a"] in ("dense", "int8")
    assert len(set(chosen([replace(near, latency=0.1)] * 2).values())) == 1


def test_small_dense_tensors_ride_with_gathered_ones():
    small = GradientSpec("bias", (64,))
    link = replace(on_link(1e9, latency=0.05), encode={}, decode={})
    found = decide([link] * 2, [A, B, small], CANDIDATES, 2)
    assert found == {"a": "sparse", "b": "sparse", "bias": "dense"}
    large = GradientSpec("bias", (64_000,))
    assert decide([link] * 2, [A, B, large], CANDIDATES, 2)["bias"] == "dense"
    assert "sparse" not in decide([link] * 2, [A, B, large], CANDIDATES, 2).values()


def test_the_rank_that_waits_least_tells_the_link():
    waited = on_link(1e6)
    assert chosen([waited, on_link(1e11)]) == {"a": "dense", "b": "dense"}


def test_the_slowest_encoder_counts():
    slow = replace(SLOW_LINK, encode={"sparse": Speed(0, 1.0), "int8": Speed(0, 0.0005)})
    assert chosen([SLOW_LINK, slow]) == {"a": "int8", "b": "int8"}


def test_each_tensor_costs_a_call():
    # At 5e8 B/s dense takes 8 ms for a, 4 ms for b; int8 6.6 ms and 3.3 ms without its calls:
    # parts of two owners, then the mean of one.
    world = [on_link(5e8, latency=0.0)] * 2
    assert chosen(world) == {"a": "int8", "b": "int8"}
    slower = [replace(m, encode={**m.encode, "int8": Speed(1e-3, 0.0005)}) for m in world]
    assert chosen(slower) == {"a": "dense", "b": "dense"}


@given(st.floats(0, 1e-2), st.floats(1e-9, 1e-7))
def test_speeds_are_told_from_tensors_of_all_sizes(call, per_byte):
    sizes = np.array([4e3, 2e4, 2e5, 2e5, 1e6])
    found = Speed.of([(size, call + per_byte * size) for size in sizes])
    expected = call + per_byte * sizes
    np.testing.assert_allclose([found.seconds(size) for size in sizes], expected, rtol=0.05)
    assert Speed.of([]) == Speed()
    assert Speed(1.0, 2.0).seconds(3e6, 4) == 10.0


def test_speeds_and_errors_are_used_again():
    adaptive = Adaptive(candidates=("affine(8, 128)",))
    gradients = [(GradientSpec("w", (64, 64)), np.ones((64, 64), np.float32))]
    first = adaptive.measured(gradients, Link(1e8))
    found, ages = first, []
    for _ in range(6):
        found = adaptive.measured(gradients, Link(1e6, 0.1), previous=found)
        ages.append(found.age)
    assert ages == [1, 2, 3, 4, 0, 1]
    second = adaptive.measured([], Link(1e6, 0.1), previous=first)
    assert second == replace(first, bandwidth=1e6, latency=0.1, age=1)


def test_choices_stay_for_a_small_gain():
    world = [on_link(1e8)] * 2
    best = chosen(world)
    assert best == {"a": "int8", "b": "int8"}
    others = {"a": "sparse", "b": "sparse"}
    # int8: 15.5 ms, sparse: 60.9 ms; only a hysteresis of 2.9 or more makes sparse stay
    assert chosen(world, current=others, hysteresis=0.1) == best
    assert chosen(world, current=others, hysteresis=5.0) == others
    assert chosen(world, current=others, hysteresis=5.0, max_rel_l2=0.5) == best
    assert chosen(world, current={}, hysteresis=0.1) == best
    assert chosen(world, current={"a": "gone", "b": "int8"}, hysteresis=5.0) == best


def test_a_bandwidth_that_changes_changes_the_choices_once():
    current, changes = {}, 0
    for step in range(40):
        bandwidth = 1e11 if step < 20 else 1e7
        found = chosen([on_link(bandwidth * (1 + 0.05 * (step % 3)))] * 2, current=current)
        changes += found != current
        current = found
    assert changes == 2  # from nothing to dense, then to sparse
    assert current == {"a": "sparse", "b": "sparse"}


@given(
    st.lists(st.floats(1e5, 1e11), min_size=1, max_size=4),
    st.floats(0, 0.1),
    st.one_of(st.none(), st.floats(0, 1)),
)
def test_all_ranks_agree_and_keep_the_budget(bandwidths, latency, budget):
    measurements = [on_link(bandwidth, latency) for bandwidth in bandwidths]
    gathered = [m.to_bytes() for m in measurements]
    answers = [
        chosen([Measurement.from_bytes(data) for data in gathered], max_rel_l2=budget)
        for _ in measurements
    ]
    assert all(answer == answers[0] for answer in answers)
    assert list(answers[0]) == ["a", "b"]
    for name, text in answers[0].items():
        if budget is not None and text != "dense":
            assert SLOW_LINK.trials[text][name].error <= budget


def test_nothing_measured_is_refused():
    with pytest.raises(GradientError, match="no rank measured anything"):
        decide([], [A], CANDIDATES, 2)


def test_measurements_as_bytes():
    assert Measurement.from_bytes(SLOW_LINK.to_bytes()) == SLOW_LINK
    unlimited = Measurement(math.inf)
    assert Measurement.from_bytes(unlimited.to_bytes()) == unlimited
    value = json.loads(SLOW_LINK.to_bytes())
    for damage in (
        {"bandwidth": 0.0},
        {"bandwidth": "fast"},
        {"latency": -1},
        {"latency": True},
        {"encode": {"sparse": [0.0, math.nan]}},
        {"encode": {"sparse": 1.0}},
        {"age": -1},
        {"trials": {"sparse": {"a": [1.0]}}},
        {"trials": {"sparse": {"a": [1.0, 2.0, 3.0]}}},
        {"trials": 3},
    ):
        with pytest.raises(GradientError, match="no measurement of a rank"):
            Measurement.from_bytes(json.dumps({**value, **damage}).encode())
    for data in (b"", b"\xff\xfe", b"[]", b"null", b"[" * 100_000):
        with pytest.raises(GradientError, match="no measurement of a rank"):
            Measurement.from_bytes(data)


def test_measuring_candidates():
    random = np.random.default_rng(0)
    gradients = [
        (spec, random.standard_t(3, spec.shape).astype(np.float32))
        for spec in (GradientSpec("w", (300, 400)), GradientSpec("b", (70_000,)))
    ]
    others = {"e": np.zeros((0, 5)), "small": np.ones(4095), "n": np.full(5000, np.nan)}
    for name, array in others.items():
        gradients.append((GradientSpec(name, array.shape), array.astype(np.float32)))
    texts = ("topk(0.01, values=raw)", "affine(8, 128)", "powersgd(2)", "qsgd(4)")
    candidates = {text: parse_compressor(text, feedback=False) for text in texts}
    found = measure(candidates, gradients, Link(1e8, 1e-3))
    assert found.link == Link(1e8, 1e-3)
    for text in texts[:2]:
        assert set(found.trials[text]) == {"w", "b"}
        assert found.encode[text].seconds(120_000) > 0
        assert found.decode[text].seconds(120_000) > 0
    sparse, int8 = (found.trials[text]["w"] for text in texts[:2])
    assert sparse.nbytes == pytest.approx(1200 * 5, rel=0.1)
    assert int8.nbytes == pytest.approx(120_000 * 8.1 / 8, rel=0.02)
    assert 0.5 < sparse.error < 0.9
    assert 0 < int8.error < 0.03
    low_rank = found.trials["powersgd(2)"]["w"]
    assert 0.9 < low_rank.error < 1
    assert Measurement.from_bytes(found.to_bytes()) == found


def test_zero_gradients_have_no_error():
    spec = GradientSpec("w", (64, 64))
    candidates = {"affine(8, 128)": parse_compressor("affine(8, 128)", feedback=False)}
    found = measure(candidates, [(spec, np.zeros(spec.shape, np.float32))], Link(1e8))
    assert found.trials["affine(8, 128)"]["w"].error == 0.0


def test_adaptive_uses_what_was_agreed_on():
    adaptive = Adaptive(candidates=("topk(0.01)", "affine(8, 128)"))
    assert adaptive.at(StepInfo(), A) == Dense()
    info = StepInfo(5, choices={"a": "topk(0.01)", "b": "dense"})
    assert adaptive.at(info, A).text().startswith("topk(")
    assert adaptive.at(info, B) == Dense()
    assert ErrorFeedback(adaptive).at(info, A).inner == adaptive.at(info, A)
    assert adaptive.at(info, A) is adaptive.at(info, A)


def test_adaptive_decides_from_gradients_to_choices():
    adaptive = Adaptive(candidates=("topk(0.01, values=affine(8))", "affine(8, 128)"))
    random = np.random.default_rng(0)
    specs = [GradientSpec("w", (512, 512)), GradientSpec("bias", (16,))]
    gradients = [(s, random.standard_t(3, s.shape).astype(np.float32)) for s in specs]
    slow = adaptive.measured(gradients, Link(1e5, 1e-4))
    choices = adaptive.agreed([slow, slow], specs, 2)
    assert choices["w"] == "topk(0.01, values=affine(8))"
    fast = replace(slow, bandwidth=1e12, latency=1e-6)
    assert set(adaptive.agreed([fast] * 2, specs, 2, current=choices).values()) == {"dense"}
    bounded = replace(adaptive, max_rel_l2=0.1)
    assert bounded.agreed([slow] * 2, specs, 2)["w"] == "affine(8, 128)"


def test_when_a_decision_is_due():
    adaptive = Adaptive(every=5)
    assert [step for step in range(20) if adaptive.is_due(step)] == [8, 13, 18]


@pytest.mark.parametrize("text", ["adaptive(int8, max_rel_l2=0.1)", "adaptive(topk(0.1), fp16)"])
def test_texts_are_read_back(text):
    found = parse_compressor(text)
    assert isinstance(found, ErrorFeedback)
    assert parse_compressor(found.text()) == found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_rel_l2": -1.0}, "max_rel_l2"),
        ({"every": 0}, "every"),
        ({"hysteresis": 1.0}, "hysteresis"),
        ({"candidates": ("warmup(topk(0.1), steps=3)",)}, "decides itself"),
        ({"candidates": ("randomk(0.1)",)}, "scale=false"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(ValueError, match=words):
        Adaptive(**arguments)
    with pytest.raises(GradientError, match="nonesuch"):
        Adaptive(candidates=("nonesuch(3)",))
