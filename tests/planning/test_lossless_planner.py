import numpy as np
import pytest

from tensorcomp.codecs import decode, encode, fit, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import byte_count, join
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.dtypes import dtype_name
from tensorcomp.errors import NotRepresentable
from tensorcomp.planning.lossless import EFFORTS, plan_lossless, sample_rows
from tensorcomp.testing import nasty_arrays

ARRAYS = nasty_arrays()


def as_codecs_see(array: np.ndarray) -> np.ndarray:
    """Return an array in the shape in which the pipeline gives it to the planner."""
    array = readable(array)
    grid = chunk_grid(dtype_name(array.dtype), array.shape, array.nbytes)
    return array.reshape(-1).view(np.uint8).view(grid.dtype).reshape(grid.shape)


@pytest.mark.parametrize("effort", EFFORTS)
def test_every_array_gets_a_tree_that_restores_it(effort):
    for name, given in ARRAYS.items():
        array = as_codecs_see(given)
        plan = plan_lossless(array, effort)
        assert plan.reason, name
        assert plan.tree.lossless, name
        for tree in (plan.tree, plan.fallback):
            if tree is None:
                continue
            try:
                payload = join(encode(tree, array))
            except NotRepresentable:
                assert tree is plan.tree, name
                assert plan.fallback is not None, name
                continue
            assert len(payload) <= array.nbytes + 1, name
            assert decode(tree, payload, spec_of(array)).tobytes() == array.tobytes(), name


def _random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _weights(rows: int = 256, columns: int = 256) -> np.ndarray:
    return (_random().standard_normal((rows, columns)) * 0.02).astype(np.float32)


def _bits_a_weight(array: np.ndarray, effort: str = "balanced") -> float:
    tree = plan_lossless(array, effort).tree
    shared = fit(tree, readable(array))
    return 8 * byte_count(encode(tree, array, shared)) / array.size


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(
    ("array", "root"),
    [
        (np.zeros((0, 8), np.float32), "raw"),
        (np.full((90, 90), 1.5, np.float32), "constant"),
        (_weights(), ("groupfloats", "fields")),
        (_weights().astype(np.float16), ("groupfloats", "fields")),
        (np.where(_random(1).random((256, 256)) < 0.5, 0, _weights()).astype(np.float32), "sparse"),
        (np.frombuffer(_random(2).bytes(1 << 16), np.uint8), "raw"),
        (np.frombuffer(_random(2).bytes(1 << 16), np.int64), "raw"),
        ((np.rint(_weights() * 500) / 500).astype(np.float32), ("grid", "palette")),
        (_weights(1, 200)[0][_random(3).integers(0, 200, 60_000)], "palette"),
    ],
    ids=["empty", "constant", "fp32", "fp16", "zeros", "bytes", "int64", "grid", "codebook"],
)
def test_the_tree_fits_the_data(array, root, effort):
    found = plan_lossless(array, effort).tree.codec.id
    assert found in (root if isinstance(root, tuple) else (root,))


def test_sizes_are_near_what_the_data_hold():
    weights = _weights()
    assert _bits_a_weight(weights) < 32 * 0.86
    assert _bits_a_weight(weights.astype(np.float16).astype(np.float32)) < 15.5
    steps = np.abs(weights).max(axis=1, keepdims=True) / 7
    assert _bits_a_weight((np.rint(weights / steps) * steps).astype(np.float32)) < 3.7
    assert _bits_a_weight(np.arange(1 << 15, dtype=np.int64)) < 17
    assert _bits_a_weight(np.repeat(np.arange(100, dtype=np.int32), 500)) < 0.2
    assert _bits_a_weight(_random(4).integers(0, 3, (256, 256)).astype(np.int8)) < 1.8


def test_more_effort_is_never_much_larger():
    for array in (_weights(), _weights().astype(np.float16)):
        fast, balanced, most = (_bits_a_weight(array, effort) for effort in EFFORTS)
        assert most <= balanced * 1.002
        assert balanced <= fast * 1.002


def test_plans_depend_on_the_data_alone():
    array = _weights()
    assert plan_lossless(array, "balanced") == plan_lossless(array.copy(), "balanced")


@pytest.mark.parametrize(
    ("shape", "rows"), [((10, 4), 10), ((100_000,), 65_536), ((1 << 10, 1 << 12), 64), ((3, 0), 3)]
)
def test_samples_are_even_and_enough(shape, rows):
    array = np.broadcast_to(np.float32(0), shape)
    sample = sample_rows(array)
    assert sample.base is not None  # a view
    assert min(rows, shape[0]) <= sample.shape[0] <= 2 * rows
    assert sample.shape[1:] == array.shape[1:]


def test_trees_that_may_fail_on_a_chunk_have_one_that_cannot():
    grid = (np.rint(_weights() * 500) / 500).astype(np.float32)
    for array in (grid, _weights(1, 200)[0][_random(3).integers(0, 200, 60_000)]):
        plan = plan_lossless(array, "balanced")
        assert plan.fallback is not None
        encode(plan.fallback, _weights())
    assert plan_lossless(_weights(), "balanced").fallback is None
    assert parse_tree("grid") != plan_lossless(_weights(), "max").tree
