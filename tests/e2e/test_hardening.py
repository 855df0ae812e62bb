"""A few of the damaged files and bounds that `benchmarks.hardening` tries by the million."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = str(Path(__file__).parents[2])
FILES, TRIPLES = 300, 200


@pytest.fixture(scope="module")
def hardening():
    """Return the harness; what its import adds to the path goes again."""
    path = list(sys.path)
    sys.path.insert(0, ROOT)
    from benchmarks import hardening
    from benchmarks.hardening import bounds, damage  # noqa: F401 - attributes from now on

    yield hardening
    sys.path[:] = path


def test_damaged_files_are_refused_or_read_rightly(hardening):
    cases, tally = hardening.damage.Cases(seed=7, every=9), hardening.damage.Tally()
    for number in range(FILES):
        cases.run(number, tally)
    shutil.rmtree(hardening.damage.scratch())
    assert not tally.findings
    assert sum(tally.counts.values()) == FILES
    assert len({kind for kind, _ in tally.counts}) == len(cases.kinds)


def test_sampled_tensors_keep_their_bounds(hardening):
    judged = hardening.bounds.run(TRIPLES, seed=3)
    assert not judged.findings
    assert sum(judged.counts.values()) >= TRIPLES
    assert judged.counts["max_rel_l2", "within its bound"]


def test_the_judge_of_bounds_sees_what_sums_of_floats_hide(hardening):
    array = np.array([1e300, -1e300, 3e-300])
    assert hardening.bounds.errors(array, array) == (0, 0)
    rel_l2, largest = hardening.bounds.errors(array, array * (1 + 2.0**-40))
    assert rel_l2 == pytest.approx(2.0**-40, rel=1e-3)
    assert largest == pytest.approx(1e300 * 2.0**-40, rel=1e-3)
    one, above = np.array([1.0]), np.array([np.nextafter(1.5, 2)])
    assert hardening.bounds.exceeds(one, above, "max_abs_error", 0.5)
    assert hardening.bounds.exceeds(one, above, "max_rel_l2", 0.5)
    assert not hardening.bounds.exceeds(one, one + 0.5, "max_rel_l2", 0.5)
