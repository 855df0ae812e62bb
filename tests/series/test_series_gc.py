import time

import pytest

from tensorcomp.errors import OptionError
from tensorcomp.series.gc import select
from tensorcomp.series.journal import NAME, PREVIOUS, Journal, Step, load_journal


def files(series):
    return sorted(path.name for path in series.path.glob("*.tc.safetensors"))


def test_thin_keeps_weights_exact_and_the_chosen_optimizers(run, training):
    before = files(run)
    run.thin(["last:2,every:50"])
    assert set(before) < set(files(run))
    for step in run.steps:
        is_kept = step.step in (50, 90, 100)
        assert step.resumable == ("exact" if is_kept else "weights only")
        training.check(run, step.step, optimizer=is_kept)
    again = files(run)
    run.thin(["last:2,every:50"])
    assert files(run) == again
    assert run.verify(deep=True) == []


def test_thin_is_undone_until_gc(run, training):
    run.thin()
    (run.path / PREVIOUS).replace(run.path / NAME)
    training.check(run, 10)


def test_the_newest_step_is_never_thinned(run):
    run.thin(["best:1"])  # of steps without metrics
    assert [step.resumable for step in run.steps] == ["weights only"] * 9 + ["exact"]


def test_files_are_removed_in_two_phases(run, training):
    run.thin()
    journal = load_journal(run.path)
    assert run.gc() == ([], [])  # named by thin, and the time of grace is not over
    assert run.gc(0, dry_run=True)[1] == sorted(journal.trash)
    assert sorted(run.gc(0)[1]) == sorted(journal.trash)
    assert not set(files(run)) & set(journal.trash)
    (run.path / "step-00000010.9.tc.safetensors").write_bytes(b"left by a killed run")
    (run.path / ".x.tensorcomp-part").write_bytes(b"also")
    assert run.gc() == (["step-00000010.9.tc.safetensors"], [])
    assert not (run.path / ".x.tensorcomp-part").exists()
    time.sleep(0.01)
    assert run.gc(0) == ([], ["step-00000010.9.tc.safetensors"])
    for step in run.steps:
        training.check(run, step.step, optimizer=step.has_optimizer)


def test_rebase_shortens_chains(run, training):
    run.rebase(2)
    assert max(step.depth for step in run.steps) <= 1
    run.gc(0)
    for step in run.steps:
        training.check(run, step.step)
    (run.path / NAME).unlink()
    (run.path / PREVIOUS).unlink()
    for step in run.steps:
        training.check(run, step.step)


def test_selectors():
    steps = [
        Step(n, f"{n}", 0.0, "exact", 1, 1, "", metric=m)
        for n, m in ((-1, None), (5, 3.0), (10, 1.0), (15, None), (20, 2.0))
    ]
    journal = Journal.of(steps)
    assert select(journal, ["last:1", "best:2"]) == {20, 10}
    assert select(journal, ["every:10,best:9"]) == {5, 10, 20}
    for wrong in ("first:2", "last", "last:0", "every:x"):
        with pytest.raises(OptionError, match="expected last:N, every:N or best:N, got"):
            select(journal, [wrong])
