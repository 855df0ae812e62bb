"""Any finite magnitude under any budget: the bound holds, or the tensor is lossless; no warning."""

import math
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lossy_cases import write

from tensorcomp.api.load import load
from tensorcomp.errors import InfeasibleBudgetError
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.profiles import load_profile

DTYPES = (
    np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
)  # fmt: skip
KINDS = ("normal", "all magnitudes", "an outlier", "half zeros")
PROFILES = {name: load_profile(name) for name in ("transformer", "cnn", "mlp", "memory", "speed")}
BUDGETS = st.one_of(
    st.floats(-330, 308).map(lambda power: Budget(max_abs_error=10.0**power or 5e-324)),
    st.floats(-9, 2).map(lambda power: Budget(max_rel_l2=10.0**power)),
    st.floats(-1000, 1000).map(lambda snr: Budget(min_snr=snr)),
    st.floats(0.5, 40).map(lambda bits: Budget(bits_per_weight=bits)),
    st.floats(1, 30).map(lambda ratio: Budget(target_ratio=ratio)),
)


def sample(dtype: type, power: float, kind: str) -> np.ndarray:
    random = np.random.default_rng(0)
    array = random.standard_normal((64, 70))
    if kind == "all magnitudes":
        array *= 10.0 ** random.uniform(-60, 60, array.shape)
    if kind == "half zeros":
        array[array < 0] = 0
    top = float(ml_dtypes.finfo(dtype).max)
    with np.errstate(all="ignore"):
        array = np.clip(array * 10.0**power, -top, top)
    if kind == "an outlier":
        array[30, 40] = -top
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def square_sum(values: np.ndarray) -> Fraction:
    """Return the sum of squares, right to 1e-15, whatever their magnitude."""
    top = max(math.frexp(float(np.abs(values).max()))[1], -1000)
    scaled = np.ldexp(values, -top)
    return Fraction(math.fsum((scaled * scaled).ravel())) * Fraction(2) ** (2 * top)


def check(array: np.ndarray, profile: str, budget: Budget, effort: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            data, _ = write(
                {"mlp.weight": array}, profile=PROFILES[profile], budget=budget, effort=effort
            )
        except InfeasibleBudgetError:
            assert budget.is_size
            return
        found = load(data)["mlp.weight"]
    wanted, found = array.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    lost = wanted / 2 - found / 2  # their difference may overflow
    assert np.isfinite(found).all()
    if budget.max_abs_error is not None:
        exact = wanted.tolist(), found.tolist()
        errors = (abs(Fraction(x) - Fraction(y)) for x, y in zip(*exact, strict=True) if x != y)
        assert max(errors, default=0) <= Fraction(budget.max_abs_error)
    elif budget.bound is not None and lost.any():
        most = Fraction(budget.bound.max_rel_l2) ** 2 * square_sum(wanted) / 4
        assert square_sum(lost) <= most * Fraction(1 + 1e-9)


@settings(max_examples=40)
@given(
    st.sampled_from(DTYPES),
    st.floats(-324, 309),
    st.sampled_from(KINDS),
    BUDGETS,
    st.sampled_from(list(PROFILES)),
    st.sampled_from(["fast", "balanced", "max"]),
)
def test_any_budget_on_any_magnitude(dtype, power, kind, budget, profile, effort):
    limits = ml_dtypes.finfo(dtype)
    lowest, highest = np.log10(float(limits.smallest_subnormal)), np.log10(float(limits.max))
    power = min(max(power, lowest - 1), highest + 1)
    check(sample(dtype, power, kind), profile, budget, effort)


@pytest.mark.parametrize("power", [-320, -300, -200, -160, -100, 100, 160, 200, 300, 308])
@pytest.mark.parametrize("kind", KINDS)
def test_doubles_far_from_one(power, kind):
    array = sample(np.float64, power, kind)
    for budget in (
        Budget(max_abs_error=1e-3),
        Budget(max_abs_error=10.0 ** (power - 1)),
        Budget(min_snr=30),
        Budget(bits_per_weight=8),
    ):
        check(array, "transformer", budget, "balanced")


@pytest.mark.parametrize("power", [-290, -200, 0, 200, 300])
def test_a_size_is_possible_at_any_magnitude(power):
    array = sample(np.float64, power, "normal")
    data, _ = write({"mlp.weight": array}, budget=Budget(bits_per_weight=8))
    lost = array - load(data)["mlp.weight"]
    assert square_sum(lost) < Fraction(0.03) ** 2 * square_sum(array)
