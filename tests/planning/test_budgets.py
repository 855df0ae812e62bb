import math

import pytest

from tensorcomp.errors import PlanError
from tensorcomp.planning.budgets import Bound, Budget, budget_of

LIMITS = (
    "max_rel_l2",
    "min_snr",
    "max_abs_error",
    "bits_per_weight",
    "target_ratio",
    "target_size",
)


def test_a_budget_is_one_limit_or_none():
    assert Budget().given() == {}
    for first in LIMITS:
        assert Budget(**{first: 3}).given() == {first: 3}
        for second in set(LIMITS) - {first}:
            with pytest.raises(PlanError, match="one limit") as caught:
                Budget(**{first: 3, second: 4})
            assert first in str(caught.value)
            assert second in str(caught.value)


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "3", True, [3]])
def test_what_is_no_number_is_refused(name, value):
    with pytest.raises(PlanError, match=name):
        Budget(**{name: value})


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [0, -1, -1e-9])
def test_limits_are_above_zero_but_for_snr(name, value):
    if name == "min_snr":
        assert Budget(min_snr=value).bound is not None
        return
    with pytest.raises(PlanError, match="above 0"):
        Budget(**{name: value})


@pytest.mark.parametrize("snr", [-1e4, 1e4, 1e300])
def test_ratios_beyond_floats_are_refused(snr):
    with pytest.raises(PlanError, match="dB"):
        Budget(min_snr=snr)


def test_snr_and_relative_error_are_one_bound():
    assert Budget(min_snr=40).bound == Bound(max_rel_l2=0.01)
    assert Budget(max_rel_l2=0.01).bound == Bound(max_rel_l2=0.01)
    assert Budget(max_abs_error=0.5).bound == Bound(max_abs_error=0.5)
    for sized in (Budget(), Budget(bits_per_weight=4), Budget(target_size=9)):
        assert sized.bound is None


def test_sizes_count_bits_bytes_and_ratios():
    assert Budget(bits_per_weight=4).size(1000, 200) == 100
    assert Budget(target_ratio=3).size(1000, 200) == 333
    assert Budget(target_size=77).size(1000, 200) == 77
    for bound in (Budget(), Budget(min_snr=3), Budget(max_abs_error=1)):
        assert bound.size(1000, 200) is None
        assert not bound.is_size
    for huge in (Budget(bits_per_weight=1e308), Budget(target_ratio=1e-308)):
        size = huge.size(10**12, 10**12)
        assert size is not None
        assert size > 10**15


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (Budget(), "lossless"),
        (Budget(max_rel_l2=0.01), "rel-L2 ≤ 0.01"),
        (Budget(min_snr=30), "SNR ≥ 30 dB"),
        (Budget(max_abs_error=1e-4), "|error| ≤ 0.0001"),
        (Budget(bits_per_weight=4.25), "4.25 bits per weight"),
        (Budget(target_ratio=8), "a ratio of 8"),
        (Budget(target_size=12_345_678), "12,345,678 bytes"),
    ],
)
def test_budgets_say_what_they_are(budget, text):
    assert str(budget) == text


def test_the_nearest_size_is_told_in_the_terms_of_the_limit():
    assert "4 bits per weight" in Budget(bits_per_weight=1).nearest(500, 125, 1000)
    assert "4.01 bits" in Budget(bits_per_weight=1).nearest(501, 125, 1000)  # never too few
    assert "ratio of 2.5" in Budget(target_ratio=10).nearest(400, 1000, 1000)
    assert "ratio of 3.33" in Budget(target_ratio=10).nearest(300, 1000, 1000)  # never too large
    assert Budget(target_size=9).nearest(4000, 9, 10) == "4,000 bytes"


def test_a_bound_counts_the_share_that_is_used():
    bound = Bound(max_rel_l2=0.1, max_abs_error=2)
    assert bound.used(0.05, 0.5) == 0.5
    assert bound.used(0.05, 2) == 1
    assert bound.used(0, 0) == 0
    assert Bound().used(7, 7) == 0
    assert Bound(max_abs_error=0).used(0, 0) == 0
    assert Bound(max_abs_error=0).used(0, 1e-30) == math.inf
    assert Bound(max_rel_l2=0.1).used(math.inf, 0) == math.inf


@pytest.mark.parametrize("value", [-1, math.nan])
def test_bounds_that_nothing_can_keep_are_refused(value):
    for name in ("max_rel_l2", "max_abs_error"):
        with pytest.raises(PlanError, match=name):
            Bound(**{name: value})


def test_bounds_say_what_they_are():
    assert str(Bound()) == "no bound"
    assert str(Bound(max_rel_l2=0.5, max_abs_error=2)) == "rel-L2 ≤ 0.5, |error| ≤ 2"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([], "table"),
        (None, "table"),
        ({"min_srn": 30}, "min_srn"),
        ({"min_snr": "loud"}, "number"),
        ({"min_snr": 30, "target_ratio": 3}, "one limit"),
    ],
)
def test_budgets_of_files_are_checked(limits, words):
    with pytest.raises(PlanError, match=words):
        budget_of(limits)


def test_budgets_of_files():
    assert budget_of({}) == Budget()
    assert budget_of({"min_snr": 30}) == Budget(min_snr=30)
