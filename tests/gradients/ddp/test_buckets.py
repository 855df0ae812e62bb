import numpy as np
import pytest
import torch

from tensorcomp.gradients.ddp.buckets import coded_dtype, is_finite, load, store
from tensorcomp.gradients.ddp.communicator import Scratch


def test_single_and_double_precision_are_coded_in_place():
    for dtype in (torch.float32, torch.float64):
        buffer = torch.tensor([1.0, -2.0, 4.0], dtype=dtype)
        values = load(buffer, 0.5, Scratch(), "b")
        assert values.dtype == coded_dtype(dtype)
        assert buffer.tolist() == [0.5, -1.0, 2.0]
        values[:] = [8, 9, 10]
        assert store(values, 2.0, buffer)
        assert buffer.tolist() == [16, 18, 20]


def test_half_precision_is_widened_and_rounded_once():
    buffer = torch.tensor([2.0**-14, 3.0, -1.0], dtype=torch.float16)
    scratch = Scratch()
    values = load(buffer, 2.0**-10, scratch, "b")
    assert values.dtype == np.float32
    assert values.tolist() == [2.0**-24, 3 * 2.0**-10, -(2.0**-10)]  # below float16's smallest
    assert load(buffer, 1.0, scratch, "b") is not values
    assert np.shares_memory(load(buffer, 1.0, scratch, "b"), values)
    assert store(values, 2.0, buffer)
    assert buffer.tolist() == [2.0**-13, 6.0, -2.0]


def test_overflow_on_the_way_back_is_found():
    half = torch.zeros(2, dtype=torch.float16)
    assert not store(np.array([1.0, 7e4], np.float32), 1.0, half)
    single = torch.zeros(2)
    assert not store(np.array([1.0, 3e38], np.float32), 2.0, single)
    assert store(np.array([1.0, 3e38], np.float32), 1.0, single)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_found(dtype, bad):
    values = np.array([np.finfo(dtype).max, -np.finfo(dtype).tiny / 2, 0, -0.0] * 9, dtype)
    assert is_finite(values)
    for place in (0, 17, 35):
        spoilt = values.copy()
        spoilt[place] = bad
        assert not is_finite(spoilt)
    assert is_finite(np.zeros(0, dtype))
