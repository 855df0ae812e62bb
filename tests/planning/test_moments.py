"""Quadratic models in statistics files: what is read, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

from tensorcomp.errors import CheckpointError
from tensorcomp.planning.statistics import Statistics, weight_digest

H = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
ROWS = np.arange(4, dtype=np.float32)


def statistics(moment=H, rows=ROWS, **fields):
    arrays = {"second_moment": {"w": moment}, "row_weight": {"w": rows, "v": rows[:2]}}
    return Statistics(arrays, 1, 2, **fields)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_files_give_back_models(tmp_path, dtype):
    before = statistics(
        H.astype(dtype),
        positions={"w": 9, "v": 8},
        transposed=("w",),
        shared={"v": "w"},
        tied={"u": "w"},
        digests={"w": weight_digest(H)},
    )
    before.save(tmp_path / "s.safetensors")
    found = Statistics.load(tmp_path / "s.safetensors")
    for name, rows, positions, transposed in (("w", 4, 9, True), ("v", 2, 8, False)):
        moment = found.moment(name)
        assert moment.matrix.dtype == np.float32
        np.testing.assert_array_equal(moment.matrix, H[None])
        np.testing.assert_array_equal(moment.row_weight, ROWS[:rows])
        assert (moment.positions, moment.transposed) == (positions, transposed)
    np.testing.assert_array_equal(found.moment("u").row_weight, ROWS)
    assert found.moment("other") is None
    found.check_weights("u", H)
    with pytest.raises(
        CheckpointError, match=r"s\.safetensors: statistics of another model: tensor 'u'"
    ):
        found.check_weights("u", H + 1)
    found.check_weights("other", H)


def test_another_shape_is_refused():
    for shape in ((4, 2), (2, 4), (2, 1, 4)):
        assert statistics().moment("w", shape).row_weight.shape == (4,)
    with pytest.raises(CheckpointError, match=r"of shape \(4, 3\), got 4 rows of 2"):
        statistics().moment("w", (4, 3))


def test_a_tensor_without_weights_of_rows_has_no_model():
    assert Statistics({"second_moment": {"w": H}}).moment("w") is None


def test_digests_are_those_of_values():
    values = np.array([[1.5, -2.0], [0.25, 3.0]])
    narrow = {
        weight_digest(values.astype(dtype))
        for dtype in (np.float16, ml_dtypes.bfloat16, "f4", "f8")
    }
    assert len(narrow) == 1
    assert weight_digest(values.T) not in narrow
    assert weight_digest(np.asfortranarray(values)) in narrow


def test_a_copy_in_bfloat16_has_the_same_digest():
    values = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    values[0, :5] = 0.0, -0.0, 1e-45, 3.3e38, 1 + 2**-8  # the last one is halfway
    copy = values.astype(ml_dtypes.bfloat16)
    assert weight_digest(values) == weight_digest(copy) == weight_digest(copy.astype("f8"))
    other = copy.copy()
    other[3, 3] = np.nextafter(other[3, 3], ml_dtypes.bfloat16(9))
    assert weight_digest(other) != weight_digest(copy)


def test_digests_of_what_is_not_finite_do_not_warn(recwarn):
    values = np.array([[np.nan, np.inf, -np.inf, 1e300]])
    assert weight_digest(values) == weight_digest(np.array([[np.nan, np.inf, -np.inf, np.inf]]))
    assert not recwarn.list


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (np.full((2, 2), np.nan, np.float32), "finite"),
        (np.array([[1, 0], [0, np.inf]], np.float32), "finite"),
        (np.array([[1, 0.5], [0.4, 1]], np.float32), "symmetric"),
        (np.array([[1, 0], [0, -1e-3]], np.float32), "non-negative diagonal"),
        (np.ones(2, np.float32), r"\(groups, n, n\)"),
        (np.ones((2, 3), np.float32), r"\(groups, n, n\)"),
        (np.ones((3, 2, 2), np.float32), "among 3 groups"),
        (np.ones((0, 2, 2), np.float32), "among 0 groups"),
    ],
)
def test_moments_that_are_none_are_refused(tmp_path, moment, words):
    statistics(moment).save(tmp_path / "s.safetensors")
    with pytest.raises(CheckpointError, match=rf"s\.safetensors: tensor 'w': .*{words}"):
        _ = Statistics.load(tmp_path / "s.safetensors").moment("w").matrix


@pytest.mark.parametrize("row", [np.nan, np.inf, -1e-9])
def test_weights_of_rows_that_are_none_are_refused(row):
    with pytest.raises(CheckpointError, match="tensor 'w': expected weights of rows"):
        statistics(rows=np.array([1, row], np.float32)).moment("w")


def test_a_little_asymmetry_is_rounding():
    assert statistics(H + np.array([[0, 1e-3], [0, 0]], np.float32)).moment("w").matrix.any()
