"""Which tree codes a tensor that has a reference."""

import ml_dtypes
import numpy as np
import pytest

from tensorcomp.planning.lossless import plan_lossless
from tensorcomp.planning.reference_trees import plan_with_reference

BF16 = np.dtype(ml_dtypes.bfloat16)


def plan(array, base, effort="balanced"):
    return plan_with_reference(array, base, plan_lossless(array, effort))


def weights(seed, rows=600, columns=400):
    random = np.random.default_rng(seed)
    return random.normal(0, 0.05, (rows, columns)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", BF16])
def test_an_equal_tensor_is_known_from_its_base(dtype):
    array = (100 * weights(0)).astype(dtype)
    found = plan(array, array.copy())
    assert found.reason == "equal to the base"
    assert found.tree.codec.uses_reference


@pytest.mark.parametrize("effort", ["fast", "balanced", "max"])
@pytest.mark.parametrize("moved", [1e-5, 1e-3])
def test_a_relative_is_coded_by_its_difference(effort, moved):
    base = weights(0)
    array = base + moved * weights(1)
    assert plan(array, base, effort).tree.codec.uses_reference


def test_a_stranger_is_coded_alone():
    array = weights(0)
    alone = plan_lossless(array, "balanced")
    assert plan_with_reference(array, weights(1), alone) == alone


def test_doubles_that_changed_are_coded_alone():
    base = weights(0).astype(np.float64)
    assert not plan(base + 1e-9, base).tree.codec.uses_reference


def test_rows_have_levels_where_few_of_them_moved():
    base = weights(0, 4000, 128).astype(BF16)
    array = base.copy()
    array[::9] = (base[::9].astype("f4") + 1e-3 * weights(1, 445, 128)).astype(BF16)
    assert plan(array, base).tree.codec.levels


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5,), (40,), (3, 3)])
def test_small_tensors_have_a_plan(shape):
    base = np.zeros(shape, np.float32)
    plan(base + np.float32(1e-3), base)


@pytest.mark.parametrize("dtype", ["f4", BF16])
@pytest.mark.parametrize("rank", [1, 8])
def test_the_rank_of_a_merged_adapter_is_found(dtype, rank):
    random = np.random.default_rng(0)
    base = random.normal(0, 0.02, (300, 500)).astype(np.float32).astype(dtype)
    change = random.normal(0, 0.02, (300, rank)) @ random.normal(0, 0.02, (rank, 500))
    found = plan((base.astype("f8") + change).astype("f4").astype(dtype), base)
    assert found.tree.codec.rank == rank


def test_single_precision_weights_that_decay_are_predicted():
    base = weights(0)
    array = base * np.float32(1 - 3e-5)
    array[::50] += 1e-4
    assert plan(array, base).tree.codec.decay
