"""Which tree floats get: by rows, or by columns where these differ in scale."""

import ml_dtypes
import numpy as np
import pytest

from tensorcomp.codecs import encode, fit, parse_tree
from tensorcomp.codecs.payload import byte_count
from tensorcomp.planning.lossless import (
    EFFORTS,
    any_floats,
    columns_vary,
    flat_tree,
    plan_lossless,
    usual_tree,
)
from tensorcomp.planning.trials import is_dense_float


def weights(rows: int = 256, columns: int = 512, *, along: str = "") -> np.ndarray:
    """Return weights whose rows, or columns, differ in scale."""
    random = np.random.default_rng(5)
    values = random.standard_normal((rows, columns)) / 32
    if along == "rows":
        values *= np.exp2(random.uniform(-3, 3, (rows, 1)))
    if along == "columns":
        values *= np.exp2(random.uniform(-3, 3, columns))
    return values.astype(np.float32)


def size_of(text: str, array: np.ndarray) -> int:
    tree = parse_tree(text)
    return byte_count(encode(tree, array, fit(tree, array)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("along", ["", "rows", "columns"])
def test_the_usual_tree_takes_about_the_least(dtype, along):
    array = weights(along=along).astype(dtype)
    other = flat_tree(array.dtype), 'groupfloats(2, along="columns")', "groupfloats", "floats"
    least = min(size_of(text, array) for text in other)
    assert size_of(usual_tree(array, "balanced"), array) < 1.01 * least


def test_only_columns_that_vary_are_told_apart():
    assert abs(columns_vary(weights())) < 0.1
    assert abs(columns_vary(weights(along="rows"))) < 0.1
    assert columns_vary(weights(along="columns")) > 0.5


def test_dead_rows_and_columns_do_not_matter():
    array = weights()
    array[::3] = 0
    array[:, ::2] = -0.0
    assert abs(columns_vary(array)) < 0.15


def test_taps_of_kernels_are_columns_that_vary():
    kernels = weights(64, 64 * 64).reshape(64, 64, 64)
    kernels *= np.exp2(np.linspace(-3, 3, 64, dtype=np.float32))
    assert columns_vary(kernels.reshape(64, 64, 64, 1)) > 0.5


@pytest.mark.parametrize("shape", [(1, 5000), (5000,), (5000, 1), (2, 2500), (1, 1)])
def test_a_row_or_a_column_has_nothing_to_tell_apart(shape):
    assert columns_vary(weights(1, int(np.prod(shape))).reshape(shape)) < 0.5


@pytest.mark.parametrize("array", [np.zeros((80, 90), np.float32), np.ones((80, 90), np.float16)])
def test_equal_values_do_not_vary(array):
    assert columns_vary(array) == 0


def test_wide_exponents_keep_contexts():
    array = weights(along="columns").astype(np.float64)
    assert usual_tree(array, "balanced") == any_floats(array.dtype, "balanced") == "floats(2)"
    assert usual_tree(array, "fast") == "floats(2, contexts=1)"


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("along", ["", "columns"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_trees_of_ordinary_floats_are_known_as_such(dtype, along, effort):
    plan = plan_lossless(weights(along=along).astype(dtype), effort)
    assert plan.reason == "ordinary floats"
    assert is_dense_float(plan)
