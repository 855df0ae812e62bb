import hashlib
from typing import Any

import numpy as np
import pytest
from ranks import failed, run
from reductions import Bench, Shapes, draw, several_steps, sums_of_means

from tensorcomp.gradients.base import Payload, State
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.ddp.averaging import reduce_scatter
from tensorcomp.gradients.ddp.shards import MEAN_OF, compressor_of_means, partition
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.packet_loss import PacketLoss
from tensorcomp.gradients.wrappers.reduce_scatter import ReduceScatter

ODD: Shapes = {"a": (61, 83), "b": (7,), "c": (4099,), "d": (), "e": (3, 5, 11), "f": (0,)}


def bench_of(text: str, shapes: Shapes, loss: Any = None, *, skip_unused: bool = False) -> Bench:
    compressor = parse_compressor(text)
    return Bench(shapes, lambda name: compressor, reduce_scatter, loss, skip_unused)


def of_texts(
    texts: list[str], shapes: Shapes, layouts: list[list[list[str]] | None]
) -> dict[str, dict[str, Any]]:
    return {text: several_steps(bench_of(text, shapes), layouts) for text in texts}


def left_over(results: list[dict[str, Any]], shapes: Shapes) -> dict[str, np.ndarray]:
    """Return the mean of the workers' residuals and the owners' residuals of each parameter."""
    world = len(results)
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    bounds = partition(sizes, world)
    left = {name: np.zeros(size) for name, size in sizes.items()}
    for rank, result in enumerate(results):
        for name, residual in result["residuals"].items():
            if name.startswith(MEAN_OF):
                start, stop = bounds[name[len(MEAN_OF) :]][rank : rank + 2]
                left[name[len(MEAN_OF) :]][start:stop] += residual
            else:
                left[name] += residual / world
    return left


def check_nothing_is_lost(results: list[dict[str, Any]], shapes: Shapes, steps: int) -> None:
    world = len(results)
    assert len({result["digest"] for result in results}) == 1
    left = left_over(results, shapes)
    expected = sums_of_means(shapes, steps, world)
    for name, total in results[0]["sums"].items():
        scale = np.abs(expected[name]).sum() + 1e-9
        assert np.abs(total + left[name] - expected[name]).sum() <= 1e-5 * scale


SPARSE = "owners(topk(0.05, values=affine(8), mask=gaps))"
TEXTS = ["raw", SPARSE, "feedback(int4)", "int2", "owners(adaptive_threshold(0.05))"]
REBUILT = [
    None,  # one bucket of all
    [["e", "d", "c"], ["b", "a", "f"]],
    [["f"], ["b", "c", "d"], ["e", "a"]],
    [["e", "d", "c"], ["b", "a", "f"]],
]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_nothing_is_lost_and_ranks_stay_alike_while_buckets_change(world):
    results = run(of_texts, TEXTS, ODD, REBUILT, world=world)
    for text in TEXTS:
        of_text = [result[text] for result in results]
        check_nothing_is_lost(of_text, ODD, len(REBUILT))
        residuals = [np.abs(r).sum() for one in of_text for r in one["residuals"].values()]
        assert (sum(residuals) > 0) == (text != "raw")
        means = [name for one in of_text for name in one["residuals"] if name.startswith(MEAN_OF)]
        assert bool(means) == (text != "raw")


def test_a_rank_sends_no_more_than_two_payloads_whatever_the_ranks():
    texts = ["int8", "qsgd(4)", "owners(topk(0.01, values=affine(8)))", "owners(dgc(0.01))"]
    world = 4
    results = run(of_texts, texts, {"w": (300, 700)}, [None], world=world)
    for text in texts:
        assert len({result[text]["digest"] for result in results}) == 1
        for result in (result[text] for result in results):
            # the slack of a fixed frame, a head and a table of lengths for each other rank
            overhead = (world - 1) * 600
            payloads = 2 * (world - 1) / world * result["payload"]
            assert 0.9 * payloads <= result["sent"] <= 1.03 * payloads + overhead
            assert result["kinds"].count("all_to_all") == 1
            residuals = result["residuals"]
            assert bool(residuals) == (text != "qsgd(4)")  # which is right on average


def with_infinity(text: str) -> tuple[bool, bool, str, str]:
    bench = bench_of(text, ODD)
    rank = bench.comm.rank
    bench.step(draw(ODD, 0, rank), 0)

    def digest() -> str:
        residuals = bench.residuals()
        return hashlib.sha256(
            b"".join(residuals[n].tobytes() for n in sorted(residuals))
        ).hexdigest()

    before = digest()
    gradients = draw(ODD, 1, rank)
    if rank == 1:
        gradients["c"][17] = np.inf
    refused = bench.step(gradients, 1) is None
    after = digest()
    went_on = bench.step(draw(ODD, 2, rank), 2) is not None
    return refused, went_on, before, after


def test_an_infinity_on_one_rank_leaves_all_states_as_they_were():
    for refused, went_on, before, after in run(with_infinity, "feedback(int4)", world=3):
        assert refused
        assert went_on
        assert before == after


class Failing(TreeCompressor):
    """Fails on rank 1, as a worker or as an owner."""

    def step(self, gradient: np.ndarray, state: State) -> tuple[Payload, State]:
        as_owner = state.spec.name.startswith(MEAN_OF)
        if state.spec.worker == 1 and as_owner == self.tree.codec.id.startswith("affine"):
            raise ValueError("no more memory")
        return super().step(gradient, state)


def failing(text: str) -> None:
    bench = Bench({"w": (9000,)}, lambda name: Failing.of(text), reduce_scatter)
    bench.step(draw(bench.shapes, 0, bench.comm.rank), 0)


@pytest.mark.parametrize("text", ["raw", "affine(8)"])
def test_a_failure_is_told_to_all(text):
    for failure in failed(failing, text, world=3).failures.values():
        assert failure.kind == "GradientError"
        assert "rank 1 could not compress" in failure.message
        assert "w: ValueError: no more memory" in failure.message


def unused(text: str) -> list[Any]:
    shapes: Shapes = {"everywhere": (5000,), "here": (4500,), "nowhere": (300,)}
    bench = bench_of(text, shapes, skip_unused=True)
    rank = bench.comm.rank
    bench.step(draw(shapes, 0, rank), 0)
    before = bench.residuals()
    gradients = draw(shapes, 1, rank)
    gradients["nowhere"][:] = 0
    if rank:
        gradients["here"][:] = 0
    means = bench.step(gradients, 1)
    assert means is not None
    after = bench.residuals()
    kept = [name for name in before if np.array_equal(before[name], after[name])]
    return [sorted(kept), means["here"].any(), means["nowhere"].any()]


def test_unused_parameters_keep_their_residuals():
    first, second = run(unused, "owners(topk(0.05))")
    assert first[1:] == [True, False]
    assert second[1:] == [True, False]
    nowhere = {"nowhere", MEAN_OF + "nowhere"}  # its only owner is rank 0 or rank 1
    assert set(first[0]) <= nowhere
    assert "nowhere" in first[0]
    assert set(second[0]) - nowhere == {"here"}
    assert len(nowhere & (set(first[0]) | set(second[0]))) == 2


def lossy(shapes: Shapes, layouts: list[list[list[str]] | None]) -> list[dict[str, Any]]:
    simulators = [None, PacketLoss(0.5, 0.5, 64), PacketLoss(0.5, 0.5, 64, acknowledged=False)]
    benches = [bench_of("owners(topk(0.2))", shapes, one) for one in simulators]
    return [several_steps(bench, layouts) for bench in benches]


def test_lost_chunks_come_back_where_they_are_acknowledged():
    results = run(lossy, {"w": (90, 100), "v": (700,)}, [None], world=3)
    assert [result["digest"] for result in results[0]] == [r["digest"] for r in results[1]]
    assert len({result["digest"] for result in results[0]}) == 2  # of one step, so by loss only
    for result in results:
        without, told, untold = (np.abs(one["residuals"]["w"]).sum() for one in result)
        assert told > 1.1 * without
        assert untold == without


def test_what_owners_compress_with():
    topk = parse_compressor("topk(0.01)")
    assert compressor_of_means(topk) == topk
    assert compressor_of_means(ReduceScatter(topk)) == topk
    biased = TreeCompressor.of("affine(8)")
    assert compressor_of_means(biased) == ErrorFeedback(biased)
    half = ErrorFeedback(biased, dtype="bfloat16", decay=0.9)
    assert compressor_of_means(half) == half
    unbiased = parse_compressor("qsgd(4)")
    assert compressor_of_means(unbiased) == unbiased
    dense = parse_compressor("feedback(dense)")
    assert compressor_of_means(dense) == parse_compressor("dense")
