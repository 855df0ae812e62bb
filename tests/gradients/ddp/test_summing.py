import hashlib
from typing import Any

import numpy as np
from ranks import run
from reductions import Bench, Shapes, draw, several_steps, sums_of_means

from tensorcomp.gradients.ddp.summing import reduce_sum
from tensorcomp.gradients.text import parse_compressor

SHAPES: Shapes = {"a": (61, 83), "b": (7,), "c": (4099,), "d": (), "e": (12, 5, 11), "f": (0,)}
BUCKETS = [["e", "d"], ["c"], ["b", "a", "f"]]


def compressor_of(text: str, name: str) -> Any:
    # As a model has it: what has no two axes is sent dense by low rank.
    from tensorcomp.gradients.base import GradientSpec, StepInfo

    return parse_compressor(text).at(StepInfo(), GradientSpec(name, SHAPES[name]))


def bench_of(text: str, *, skip_unused: bool = False) -> Bench:
    return Bench(
        SHAPES, lambda name: compressor_of(text, name), reduce_sum, skip_unused=skip_unused
    )


def several(steps: int) -> dict[str, Any]:
    texts = ("dense", "powersgd(2)", "randomk(0.1)", "randomk(0.1, scale=false)")
    return {text: several_steps(bench_of(text), [BUCKETS] * steps) for text in texts}


def test_what_is_summed_is_the_mean_and_loses_nothing():
    steps, world = 3, 3
    results = run(several, steps, world=world)
    expected = sums_of_means(SHAPES, steps, world)
    for text, first in results[0].items():
        assert len({result[text]["digest"] for result in results}) == 1
        for name, total in first["sums"].items():
            left = sum(r[text]["residuals"].get(name, np.zeros(1)) for r in results) / world
            scale = np.abs(expected[name]).sum() + 1e-9
            if text != "randomk(0.1)":  # right on average only
                assert np.abs(total + left - expected[name]).sum() <= 1e-5 * scale
        phases = 2 if "powersgd" in text else 1
        buckets = len(BUCKETS) if phases == 1 else len(BUCKETS) + 2  # "c" has dense gradients only
        assert first["kinds"] == ["all_reduce"] * buckets * steps
        # the last step's payload, and of each bucket's first phase a number that tells of NaN
        wire = 2 * (world - 1) / world * steps
        assert np.isclose(first["sent"], wire * (first["payload"] + 4 * len(BUCKETS)))


def with_nan() -> list[Any]:
    bench = bench_of("powersgd(2)")
    rank = bench.comm.rank
    bench.step(draw(SHAPES, 0, rank), 0, BUCKETS)
    before = bench.residuals()
    gradients = draw(SHAPES, 1, rank)
    if rank == 0:
        gradients["a"][3, 3] = np.nan
    refused = bench.step(gradients, 1, BUCKETS) is None
    after = bench.residuals()
    same = all(np.array_equal(before[name], after[name]) for name in before)
    means = bench.step(draw(SHAPES, 2, rank), 2, BUCKETS)
    assert means is not None
    return [refused, same, all(np.isfinite(mean).all() for mean in means.values())]


def test_a_nan_on_one_rank_leaves_all_states_as_they_were():
    assert run(with_nan, world=2) == [[True, True, True]] * 2


def unused() -> list[Any]:
    found = []
    for text in ("powersgd(2)", "randomk(0.1, scale=false)"):
        bench = bench_of(text, skip_unused=True)
        rank = bench.comm.rank
        bench.step(draw(SHAPES, 0, rank), 0)
        before = bench.residuals()["a"]
        gradients = draw(SHAPES, 1, rank)
        if rank:
            gradients["a"][:] = 0
        means = bench.step(gradients, 1)
        assert means is not None
        after = bench.residuals()["a"]
        again = bench.step(draw(SHAPES, 2, rank), 2)  # ranks are still in step
        assert again is not None
        found.append(
            [
                np.array_equal(before, after),
                bool(means["a"].any()),
                hashlib.sha256(means["a"].tobytes() + again["a"].tobytes()).hexdigest(),
            ]
        )
    return found


def test_an_unused_parameter_keeps_its_residual_and_stays_in_step():
    first, second = run(unused, world=2)
    for one, other in zip(first, second, strict=True):
        assert one[:2] == [False, True]
        assert other[:2] == [True, True]
        assert one[2] == other[2]
