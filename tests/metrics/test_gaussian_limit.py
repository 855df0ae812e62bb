import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.metrics.gaussian_limit import Limit

DB_A_BIT = 20 * math.log10(2)


def of(*tensors: tuple[float, float], other: tuple[float, float] = (0, 0)) -> Limit:
    counts, variances = zip(*tensors, strict=True)
    power = sum(count * variance for count, variance in tensors)
    return Limit(counts, variances, power, *other)


def test_a_tensor_takes_a_bit_for_six_decibels():
    limit = of((10, 3.0))
    assert limit.rate(3 * DB_A_BIT) == pytest.approx(3)
    assert limit.rate(0) == limit.rate(-20) == 0


def test_two_tensors_by_hand():
    limit = of((1, 4.0), (1, 1.0))
    # θ = 1/4: log₂(16)/2 and log₂(4)/2 bits, D = 1/2; θ = 1: log₂(4)/2 and none, D = 2
    assert limit.rate(10 * math.log10(5 / 0.5)) == pytest.approx(1.5)
    assert limit.rate(10 * math.log10(5 / 2)) == pytest.approx(0.5)
    # θ = 2: the small tensor is under water, D = 2 + 1
    assert limit.rate(10 * math.log10(5 / 3)) == pytest.approx(0.25)


def test_other_tensors_count_at_any_ratio():
    limit = of((6, 2.0), other=(2, 8))
    assert limit.fixed_bits == 64
    assert limit.rate(0) == 8
    assert limit.rate(DB_A_BIT) == pytest.approx(8 + 6 / 8)


def test_tensors_without_variance_take_no_bits():
    assert of((5, 0.0), (5, 1.0)).rate(DB_A_BIT) == pytest.approx(0.5)
    assert Limit((5,), (0.0,), 5.0).rate(40) == 0


def test_a_mean_takes_no_bits():
    # Variance 1 about a mean of 3: the ratio is that of 10 to D.
    assert Limit((7,), (1.0,), 70.0).rate(10) == pytest.approx(0)
    assert Limit((7,), (1.0,), 70.0).rate(10 + DB_A_BIT) == pytest.approx(1)


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.floats(1e-9, 1e6)), min_size=1, max_size=6),
    st.floats(0, 80),
)
def test_no_more_than_equal_ratios_need_and_a_brute_level_agrees(tensors, snr):
    limit = of(*tensors)
    rate = limit.rate(snr)
    assert -1e-9 <= rate <= snr / DB_A_BIT + 1e-6
    counts, variances = (np.array(values, float) for values in zip(*tensors, strict=True))
    wanted = limit.power * 10 ** (-snr / 10)
    low, high = 0.0, float(variances.max())
    for _ in range(200):
        level = (low + high) / 2
        below = counts @ np.minimum(level, variances) < wanted
        low, high = (level, high) if below else (low, level)
    brute = counts @ (0.5 * np.log2(variances / np.minimum(high, variances))) / counts.sum()
    assert rate == pytest.approx(brute, abs=1e-6)


@given(st.floats(0, 60), st.floats(0.01, 20))
def test_more_decibels_take_more_bits(snr, more):
    limit = of((100, 0.01), (50, 4.0), (3, 1e-8))
    assert limit.rate(snr) < limit.rate(snr + more)
