import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.errors import PruningError
from tensorcomp.selection.schedules import check_schedule, cubic, exponential, one_shot

PARTS = st.floats(0.001, 0.999)


def test_one_shot_is_one_round():
    assert one_shot(0.9) == (0.9,)
    assert one_shot(0) == (0.0,)


def test_exponential_keeps_the_same_part_in_every_round():
    # Densities 1/2, 1/4, 1/8; and from 1/2 on: 1/4, 1/8.
    assert exponential(0.875, 3) == pytest.approx((0.5, 0.75, 0.875), abs=1e-15)
    assert exponential(0.875, 2, start=0.5) == pytest.approx((0.75, 0.875), abs=1e-15)
    # Twenty per cent of what is left, as the lottery ticket's paper has it.
    assert exponential(1 - 0.8**3, 3) == pytest.approx((0.2, 0.36, 0.488), abs=1e-12)


def test_cubic_by_hand():
    # 0.8 - 0.8 * (3/4)^3, 0.8 - 0.8 * (1/2)^3, 0.8 - 0.8 * (1/4)^3, 0.8.
    assert cubic(0.8, 4) == pytest.approx((0.4625, 0.7, 0.7875, 0.8), abs=1e-15)
    # From 0.2: 0.8 - 0.6 / 8.
    assert cubic(0.8, 2, start=0.2) == pytest.approx((0.725, 0.8), abs=1e-15)
    assert cubic(1, 2) == (0.875, 1.0)


@given(PARTS, PARTS, st.integers(1, 60), st.sampled_from([exponential, cubic]))
def test_schedules_increase_to_exactly_the_aim(a, b, rounds, schedule):
    low, high = sorted((a, b))
    if high - low < 1e-4:
        low, high = 0.0, max(high, 0.01)
    sparsities = schedule(high, rounds, start=low)
    assert len(sparsities) == rounds
    assert sparsities[-1] == high
    assert all(x < y for x, y in itertools.pairwise((low, *sparsities)))


@given(PARTS, st.integers(1, 40))
def test_equal_factors(sparsity, rounds):
    densities = [1.0, *(1 - s for s in exponential(sparsity, rounds))]
    factor = (1 - sparsity) ** (1 / rounds)
    for before, after in itertools.pairwise(densities):
        assert math.isclose(after, before * factor, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: one_shot(1.5), "expected sparsity to be a number from 0 to 1, got 1.5"),
        (lambda: one_shot(90), "got 90"),
        (lambda: one_shot(math.nan), "got nan"),
        (lambda: one_shot("0.9"), "got '0.9'"),
        (lambda: one_shot(True), "got True"),
        (lambda: exponential(0.9, 0), "expected rounds to be an integer of at least 1, got 0"),
        (lambda: exponential(0.9, 2.0), "expected rounds to be an integer"),
        (lambda: exponential(0.9, True), "expected rounds to be an integer"),
        (lambda: exponential(1.0, 3), "never reach a sparsity of 1"),
        (lambda: exponential(0.5, 3, start=0.5), "start is below the sparsity 0.5; got 0.5"),
        (lambda: cubic(0.5, 3, start=-0.1), "expected start to be a number from 0 to 1"),
        (lambda: cubic(0.5, 10**6), "no longer distinct; take fewer"),
        (lambda: check_schedule(0.5), "one or more increasing sparsities, got 0.5"),
        (lambda: check_schedule(()), "one or more increasing sparsities"),
        (lambda: check_schedule((0.5, 0.5)), "one or more increasing sparsities"),
        (lambda: check_schedule((0.5, 2)), "each sparsity"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(PruningError) as error:
        call()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_schedule_of_ones_own():
    assert check_schedule((0, 0.5, 1)) == (0.0, 0.5, 1.0)
