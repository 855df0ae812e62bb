import numpy as np
import pytest

from tensorcomp.gradients.autotune.speedup_test import SETTLING, TIMED, SpeedupTest, fastest

DENSE, SPARSE = {"a": "dense"}, {"a": "topk(0.01)"}


def test_every_plan_is_timed_after_it_has_settled():
    test = SpeedupTest([DENSE, SPARSE])
    plans = []
    for number in range(2 * (SETTLING + TIMED)):
        assert not test.done
        plans.append(test.plan)
        test.record(float(number))
    assert test.done
    assert plans == [DENSE] * (SETTLING + TIMED) + [SPARSE] * (SETTLING + TIMED)
    middle = SETTLING + (TIMED - 1) / 2
    assert test.medians().tolist() == [middle, middle + SETTLING + TIMED]
    test.record(99.0)
    assert test.plan == SPARSE
    assert test.medians()[1] < 99


@pytest.mark.parametrize(
    ("seconds", "current", "expected"),
    [
        ([[1.0, 0.5, 0.4]], None, 2),
        ([[1.0, 0.5, 0.46]], 1, 1),  # less than a tenth of it is saved
        ([[1.0, 0.5, 0.44]], 1, 2),
        ([[1.0, 0.95, 0.92]], None, 0),
        ([[1.0, 0.95, 0.92]], 1, 0),
        ([[1.0, 0.5], [1.0, 2.0]], 1, 0),  # the slowest rank counts
        ([[1.0]], None, 0),
    ],
)
def test_the_fastest_plan(seconds, current, expected):
    assert fastest(np.array(seconds), current, 0.1) == expected
