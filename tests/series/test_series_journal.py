import numpy as np
import pytest

from tensorcomp import save_file
from tensorcomp.errors import FormatError
from tensorcomp.series.journal import NAME, PREVIOUS, load_journal, read_journal, write_journal


def test_a_lost_journal_is_made_again_from_the_files(run, training):
    before = run.steps
    (run.path / NAME).unlink()
    assert run.steps == before
    (run.path / NAME).write_text("{")
    assert run.steps == before
    training.check(run, 70)
    training.keep(run, 110)
    run.flush()
    assert read_journal(run.path / NAME).steps == tuple(run.steps)
    assert run.steps[:-1] == before


def test_the_previous_journal_is_kept(run):
    assert len(read_journal(run.path / PREVIOUS).steps) == 9
    assert len(read_journal(run.path / NAME).steps) == 10


def test_every_damaged_byte_of_a_journal_is_found(run):
    data = (run.path / NAME).read_bytes()
    for place in range(0, len(data), 17):
        bad = bytearray(data)
        bad[place] ^= 1
        (run.path / NAME).write_bytes(bad)
        with pytest.raises(FormatError, match=r"damaged|newer format"):
            read_journal(run.path / NAME)


def test_a_step_that_the_journal_does_not_know_is_taken_in(run, training):
    journal = load_journal(run.path)
    write_journal(run.path, type(journal).of(journal.steps[:-1]))
    assert run.latest == 100
    training.check(run, 100)


def test_files_that_are_no_steps_are_left_out(run):
    before = run.steps
    wrong = {"tensorcomp.series": '{"base": null, "step": "x"}'}
    for number, metadata in enumerate(({}, wrong)):
        path = run.path / f"step-0000000{number}.tc.safetensors"
        save_file({"w": np.zeros(3)}, path, metadata)
    (run.path / "step-00000009.tc.safetensors").write_bytes(b"{}")
    assert run.steps == before
