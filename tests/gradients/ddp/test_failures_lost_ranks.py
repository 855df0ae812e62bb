"""A rank that is killed, stopped or sends damaged messages is named by all others, in time.

`benchmarks.hardening.gradients` tries every collective; here is one case of each kind.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from tensorcomp.errors import GradientError
from tensorcomp.gradients.ddp.checksums import check_digests, digest, packed, unpacked

sys.path.append(str(Path(__file__).parents[3]))
from benchmarks.hardening.gradients import ASYNC, Case, outcome, ways

WAYS = ways()


@pytest.mark.parametrize(
    ("way", "event", "collective", "fault"),
    [
        ("gather", "step", "all_gather_single", "kill"),
        ("gather", "step", "all_gather_single", "corrupt"),
        ("reduce_scatter", "change of phase", "all_to_all_single", "corrupt"),
        ("sum", "save of means", "all_reduce", "corrupt"),
        ("passed", "first step", ASYNC, "kill"),
        ("fsdp", "step", "all_to_all_single", "kill"),
    ],
)
def test_other_ranks_name_the_cause(way, event, collective, fault):
    seconds, wrong = outcome(Case(way, WAYS[way], "", event, collective, fault))
    assert not wrong, f"after {seconds:.1f} s"


def test_a_rank_that_stops_is_named():
    stopped = Case("sum", WAYS["sum"], "", "step", "all_reduce", "stop", timeout=1.0, stopped=3.0)
    _, wrong = outcome(stopped)
    assert not wrong


def test_damaged_lengths_are_refused_before_they_are_believed():
    rows = np.stack([packed([3, 1 << 39]), packed([0, 5])])
    assert unpacked(rows).tolist() == [[3, 1 << 39], [0, 5]]
    for at in range(16):
        damaged = rows.copy()
        damaged[1, at] ^= 1
        with pytest.raises(GradientError, match="rank 1 sent a message that arrived damaged"):
            unpacked(damaged)


def test_damaged_bytes_are_refused():
    rows = [np.arange(size, dtype=np.uint8) for size in (0, 1, 100)]
    check_digests(rows, [digest(row) for row in rows])
    with pytest.raises(GradientError, match="ranks 1, 2 sent"):
        check_digests([rows[0], rows[1] ^ 1, rows[2][::-1]], [digest(row) for row in rows])
