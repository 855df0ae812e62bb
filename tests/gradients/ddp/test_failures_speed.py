"""Compression that is slower than none: it is said, and what ranks decide they decide alike."""

import pytest
from given_gradients import EIGHT_BUCKETS, Case, check_invariant, loaded, run_alike

from tensorcomp_cli.main import main


def test_estimate_says_where_compression_does_not_pay(capsys):
    # prime-diloco#23, grace#17, grace#5: compressed training was slower, and nobody told.
    asked = ["gradients", "estimate", "--parameters", "1e6", "--world", "8", "--bandwidth"]
    texts = ["--compressor", "topk(0.01, values=affine(8))", "--compressor", "int8"]
    assert main([*asked, "400gbit", *texts]) == 0
    assert "does not pay" in capsys.readouterr().out
    assert main([*asked, "10mbit", *texts]) == 0
    assert "does not pay" not in capsys.readouterr().out


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_decide_alike_whatever_they_measure(world):
    case = Case("adaptive(topk(0.02), int8, fp16, every=3)", range(13), EIGHT_BUCKETS, keep=(12,))
    outcomes = run_alike(case, world)
    check_invariant(case, outcomes)
    choices = [loaded(outcome.saved[12])["choices"] for outcome in outcomes]
    assert all(one == choices[0] for one in choices)
    assert sorted(choices[0]) == [f"p{i}" for i in range(len(EIGHT_BUCKETS))]
