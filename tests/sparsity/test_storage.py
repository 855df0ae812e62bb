"""Bytes under each storage: those of a file, and near what zeros are worth."""

import math

import ml_dtypes
import numpy as np
import pytest

import tensorcomp
from tensorcomp.codecs import encode, parse_tree
from tensorcomp.codecs.payload import byte_count
from tensorcomp.container.reader import CompressedFile
from tensorcomp.sparsity.storage import STORAGES, storage_bytes
from tensorcomp.testing import nasty_arrays


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pruned(density: float, *shape: int, seed: int = 1) -> np.ndarray:
    keep = np.random.default_rng(seed).random(shape) < density
    return np.where(keep, weights(*shape), np.float32(0))


def entropy(density: float) -> float:
    return -density * math.log2(density) - (1 - density) * math.log2(1 - density)


def test_masks_cost_what_they_tell():
    array = pruned(0.1, 500, 400)
    found = storage_bytes(array)
    bits = {name: 8 * size / array.size for name, size in found.sizes.items()}
    assert list(bits) == ["dense", "bitmap", "gaps", "entropy"]
    assert bits["bitmap"] - bits["gaps"] == pytest.approx(1 - entropy(0.1), abs=0.01)
    coded = 8 * byte_count(encode(parse_tree("floats"), array[array != 0]))
    assert bits["bitmap"] == pytest.approx(1 + coded / array.size, rel=0.001)
    assert bits["entropy"] <= bits["gaps"] + 1e-3
    assert found.best in ("gaps", "entropy")


def test_dense_is_best_without_zeros():
    found = storage_bytes(weights(100, 100))
    assert found.best == "dense"
    assert found.sizes["bitmap"] - found.sizes["dense"] > 0
    assert found.pattern is None


@pytest.mark.parametrize(("keep", "group"), [(1, 4), (2, 4), (4, 8)])
def test_groups_are_packed(keep, group):
    groups = weights(512, 64, group)
    order = np.argsort(np.abs(groups), axis=2)
    np.put_along_axis(groups, order[:, :, : group - keep], 0, axis=2)
    array = groups.reshape(512, -1)
    found = storage_bytes(array)
    assert found.pattern == (keep, group)
    saved = 8 * (found.sizes["bitmap"] - found.sizes["packed"]) / array.size
    assert saved == pytest.approx(1 - math.log2(math.comb(group, keep)) / group, abs=0.02)
    assert found.best in ("packed", "entropy")


def test_one_group_too_full_is_no_pattern():
    array = np.zeros((32, 32), np.float32)
    array[:, ::2] = weights(32, 16)
    assert storage_bytes(array).pattern == (2, 4)
    array[31, 29] = 1
    assert storage_bytes(array).pattern is None


def test_dead_rows_and_columns_are_dropped():
    array = weights(200, 300)
    array[::2] = 0
    array[:, 100:] = 0
    found = storage_bytes(array)
    left = storage_bytes(np.ascontiguousarray(array[1::2, :100])).sizes["dense"]
    assert left < found.sizes["live"] < left + 250
    assert found.best in ("live", "entropy")
    for dead in (np.s_[3], np.s_[:, 3]):
        array = weights(50, 40)
        array[dead] = 0
        assert "live" in storage_bytes(array).sizes
    filters = weights(8, 4, 3, 3)
    filters[:, 2] = 0
    assert "live" in storage_bytes(filters).sizes


def test_what_is_left_of_dead_columns_may_be_sparse():
    array = pruned(0.2, 200, 300)
    array[:, :150] = 0
    found = storage_bytes(array)
    # A bit an element that is left, not of each.
    saved = found.sizes["bitmap"] - found.sizes["live"]
    assert saved == pytest.approx(array.size / 16, rel=0.02)


def test_few_values_have_a_table():
    keep = np.random.default_rng(0).random((200, 200)) < 0.1
    codes = np.random.default_rng(1).integers(0, 16, (200, 200))
    array = np.where(keep, weights(16)[codes], np.float32(0))
    found = storage_bytes(array)
    assert found.values.startswith("palette")
    assert 8 * found.sizes["gaps"] / array.size == pytest.approx(entropy(0.1) + 0.4, rel=0.08)


def test_signs_of_zeros_take_a_bit_each_everywhere():
    array = pruned(0.1, 300, 200)
    multiplied = np.where(array == 0, np.copysign(np.float32(0), weights(300, 200)), array)
    plain, signed = storage_bytes(array), storage_bytes(multiplied)
    zeros = (array == 0).sum()
    for name in ("bitmap", "gaps", "entropy"):
        assert 8 * (signed.sizes[name] - plain.sizes[name]) / zeros == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int8])
def test_other_types(dtype):
    array = (20 * pruned(0.1, 100, 100)).astype(dtype)
    sizes = storage_bytes(array).sizes
    assert sizes["gaps"] < sizes["bitmap"] < array.nbytes
    assert sizes["entropy"] <= sizes["gaps"] + 40


def test_it_is_what_the_file_has(tmp_path):
    arrays = {"a": pruned(0.1, 300, 400), "b": weights(70, 60), "c": pruned(0.3, 1100, 1000)}
    path = tmp_path / "x.tc.safetensors"
    tensorcomp.save_file(arrays, path)
    with CompressedFile(path) as file:
        for name, array in arrays.items():
            assert storage_bytes(array).sizes["entropy"] == file.blob_bytes(name)


def test_every_array_has_a_size():
    for name, array in nasty_arrays().items():
        found = storage_bytes(array)
        assert set(found.sizes) <= set(STORAGES), name
        assert found.sizes[found.best] == min(found.sizes.values()), name
        assert found.sizes[found.best] <= array.nbytes + 64, name


def test_types_that_no_file_holds_are_refused():
    with pytest.raises(TypeError, match="safetensors"):
        storage_bytes(np.zeros(3, np.longdouble))
