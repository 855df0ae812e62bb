import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import CheckpointError
from tensorcomp.pruning.keep_indices import (
    KeptSlices,
    keep_indices,
    kept_slices,
    save_keep_indices,
)


def test_by_hand():
    mask = np.array([[0, 1, 0], [0, 0, 0], [0, 1, 1]], np.bool_)
    found = kept_slices(mask)
    assert found == KeptSlices((3, 3), rows=(0, 2), columns=(1, 2))
    assert (found.dead_rows, found.dead_columns) == (1, 1)


def test_axes_beyond_the_second_belong_to_their_channel():
    array = np.zeros((3, 4, 2, 2), np.float32)
    array[1, 3, 0, 1] = 5
    assert kept_slices(array) == KeptSlices((3, 4, 2, 2), rows=(1,), columns=(3,))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_zeros_have_no_sign_and_nan_is_none(dtype):
    array = np.array([[0.0, -0.0], [np.nan, 0.0]]).astype(dtype)
    assert kept_slices(array) == KeptSlices((2, 2), rows=(1,), columns=(0,))


@given(st.lists(st.integers(0, 6), min_size=2, max_size=4).map(tuple), st.integers(0, 99))
def test_as_numpy_tells(shape, seed):
    mask = np.random.default_rng(seed).random(shape) < 0.15
    found = kept_slices(mask)
    flat = mask.reshape(shape[0], shape[1], int(np.prod(shape[2:])))
    assert found.rows == tuple(np.flatnonzero(flat.any(axis=(1, 2))).tolist())
    assert found.columns == tuple(np.flatnonzero(flat.any(axis=(0, 2))).tolist())


def test_a_large_tensor_is_looked_at_in_pieces():
    mask = np.zeros((9, 1 << 19), np.bool_)
    mask[7, 11] = mask[2, 5] = True
    assert kept_slices(mask) == KeptSlices(mask.shape, rows=(2, 7), columns=(5, 11))


def test_vectors_have_no_slices():
    tensors = {"b.weight": np.eye(2), "a.weight": np.ones((1, 2)), "b.bias": np.zeros(2)}
    assert list(keep_indices(tensors)) == ["a.weight", "b.weight"]


def test_the_file(tmp_path):
    kept = keep_indices({"conv.weight": np.array([[[1.0]], [[0.0]]]), "é": np.zeros((1, 2))})
    path = tmp_path / "keep.json"
    save_keep_indices(kept, path)
    assert json.loads(path.read_text("utf-8")) == {
        "conv.weight": {"shape": [2, 1, 1], "kept_rows": [0], "kept_columns": [0]},
        "é": {"shape": [1, 2], "kept_rows": [], "kept_columns": []},
    }
    assert "é" in path.read_text("utf-8")
    with pytest.raises(CheckpointError, match="exists already"):
        save_keep_indices(kept, path)
    save_keep_indices({}, path, force=True)
    assert path.read_text() == "{}\n"
    with pytest.raises(CheckpointError, match="no folder"):
        save_keep_indices(kept, tmp_path / "none" / "keep.json")
