"""Tensors of many runs: masks are made run by run, and are those of the tensor as a whole."""

import tracemalloc

import numpy as np
import pytest

from tensorcomp.errors import PruningError
from tensorcomp.selection import streaming_scores as scored
from tensorcomp.selection.checks import pruned
from tensorcomp.selection.granularity import NM
from tensorcomp.selection.scores import parse_score
from tensorcomp.selection.select import select
from tensorcomp.selection.streaming_scores import StreamingScores

WITHIN = [
    {"sparsity": 0.5, "scope": "row"},
    {"granularity": "nm(2, 4)"},
    {"granularity": "nm(1, 8)"},
]


def weights_of(shape: tuple[int, ...], dtype: str = "f4") -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(0).integers(-9, 9, shape)
    return {"layer.weight": numbers.astype(dtype), "other.weight": numbers[::-1].astype(dtype)}


@pytest.mark.parametrize("arguments", WITHIN, ids=str)
@pytest.mark.parametrize("shape", [(7, 24), (5, 2, 3, 4), (1, 64), (64,), (24, 8)])
@pytest.mark.parametrize("score", ["magnitude", "random", "lamp"])
def test_runs_do_not_show(monkeypatch, arguments, shape, score):
    weights = weights_of(shape)
    whole = select(StreamingScores(weights, parse_score(score)), floor=0, **arguments)
    monkeypatch.setattr(scored, "RUN", 10)
    cut = select(StreamingScores(weights, parse_score(score)), floor=0, **arguments)
    assert cut.pruned == whole.pruned
    for name in weights:
        np.testing.assert_array_equal(cut.mask(name), whole.mask(name))
        assert np.count_nonzero(~cut.mask(name)) == cut.pruned[name]


@pytest.mark.parametrize("keep_and_group", [(1, 2), (2, 4), (3, 5), (4, 8), (30, 60)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_groups_are_those_of_sorting(keep_and_group, dtype):
    keep, group = keep_and_group
    scores = np.random.default_rng(1).integers(-3, 3, (8, 2 * group)).astype(dtype)
    scores[0, :3] = [-0.0, 0.0, -np.inf]
    scores[1, :2] = np.inf
    order = np.argsort(scores.reshape(-1, group), axis=1, kind="stable")
    expected = np.zeros(order.shape, np.bool_)
    np.put_along_axis(expected, order[:, group - keep :], values=True, axis=1)
    np.testing.assert_array_equal(NM(keep, group).keeps(scores).reshape(-1, group), expected)
    np.testing.assert_array_equal(
        NM(keep, group, axis=0).keeps(np.ascontiguousarray(scores.T)).T.reshape(-1, group), expected
    )


@pytest.mark.parametrize("arguments", WITHIN, ids=str)
def test_no_scores_of_a_whole_matrix_are_held(arguments):
    weights = {"layer.weight": np.ones((1024, 4096), np.float32)}
    for _ in range(2):
        tracemalloc.start()
        select(StreamingScores(weights, parse_score("magnitude")), **arguments).mask("layer.weight")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 << 20  # the mask takes 4 MiB, scores would take 16


@pytest.mark.parametrize("arguments", WITHIN, ids=str)
def test_nan_in_any_run_is_an_error(monkeypatch, arguments):
    monkeypatch.setattr(scored, "RUN", 10)
    weights = weights_of((7, 24))
    weights["layer.weight"][6, 23] = np.nan
    with pytest.raises(PruningError, match=r"'layer\.weight': a score is NaN"):
        select(StreamingScores(weights, parse_score("magnitude")), floor=0, **arguments)


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_what_is_left_has_all_its_bits(dtype, shape):
    size = int(np.prod(shape))
    bits = np.random.default_rng(2).integers(0, 256, size * np.dtype(dtype).itemsize, np.uint8)
    weights = bits.view(dtype).reshape(shape)
    mask = np.random.default_rng(3).random(shape) < 0.5
    left = pruned(weights, np.asarray(mask))
    assert isinstance(left, np.ndarray)
    assert (left.shape, left.dtype) == (shape, weights.dtype)
    for place in np.ndindex(shape):
        expected = weights[place].tobytes() if mask[place] else bytes(left.itemsize)
        assert left[place].tobytes() == expected
