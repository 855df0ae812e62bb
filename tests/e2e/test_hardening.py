"""A few of the damaged files that `benchmarks.hardening` tries by the million."""

import shutil
import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
FILES = 300


@pytest.fixture(scope="module")
def hardening():
    """Return the module of damaged files; what its import adds to the path goes again."""
    path = list(sys.path)
    sys.path.insert(0, ROOT)
    from benchmarks.hardening import damage

    yield damage
    sys.path[:] = path


def test_damaged_files_are_refused_or_read_rightly(hardening):
    cases, tally = hardening.Cases(seed=7, every=9), hardening.Tally()
    for number in range(FILES):
        cases.run(number, tally)
    shutil.rmtree(hardening.scratch())
    assert not tally.findings
    assert sum(tally.counts.values()) == FILES
    assert len({kind for kind, _ in tally.counts}) == len(cases.kinds)
