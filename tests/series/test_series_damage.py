import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
import xxhash
from safetensors.torch import save_file

from tensorcomp import Series
from tensorcomp.errors import (
    CheckpointError,
    FormatError,
    InputTypeError,
    OptionError,
    TensorcompError,
)


def names(run):
    return sorted(path.name for path in run.path.glob("*.tc.safetensors"))


def readable(run, training):
    """Return the steps that are restored rightly; others must be refused."""
    found = []
    for step in training.states:
        try:
            training.check(run, step)
        except TensorcompError:
            continue
        found.append(step)
    return found


def swap(run, one, other):
    one, other, between = run.path / one, run.path / other, run.path / "between"
    one.rename(between)
    other.rename(one)
    between.rename(other)


@pytest.mark.parametrize("journal", [True, False])
def test_swapped_files_are_no_other_steps(run, training, journal):
    files = names(run)
    swap(run, files[1], files[2])
    swap(run, files[0], files[4])
    if not journal:
        for path in run.path.glob("series.json*"):
            path.unlink()
    assert {10, 20, 30, 50}.isdisjoint(readable(run, training))
    assert {10, 20, 30, 50} <= {step for fault in run.verify() for step in fault.steps}
    swap(run, files[1], files[2])
    swap(run, files[0], files[4])
    assert readable(run, training) == list(range(10, 101, 10))


def test_a_file_of_another_series_is_refused(run, tmp_path):
    with Series(tmp_path / "other", threads=1) as other:
        other.add(10, {"w": torch.zeros(8)})
    shutil.copy(tmp_path / "other" / names(other)[0], run.path)
    for use in (lambda: run.restore(10), lambda: run.get(10, "w"), lambda: run.open(10)):
        with pytest.raises(CheckpointError, match="another file than that of step 10"):
            use()


def test_a_damaged_keyframe_without_a_journal_costs_nothing_once_it_is_back(run, training):
    keyframe = run.path / names(run)[0]
    data = keyframe.read_bytes()
    keyframe.write_bytes(data[: len(data) // 2])
    for path in run.path.glob("series.json*"):
        path.unlink()
    hurt = {step for fault in run.verify() for step in fault.steps}
    assert hurt == {10, 20, 30, 40}
    run.add(110, training.model)
    run.gc(0)
    assert run.gc(0) == ([], [])
    keyframe.write_bytes(data)
    assert readable(run, training) == list(range(10, 101, 10))


def test_a_newer_journal_is_left_as_it_is(run):
    path = run.path / "series.json"
    newer = path.read_bytes().replace(b'"format": 1', b'"format": 2')
    path.write_bytes(newer)
    run.add(110, {"w": torch.zeros(8)})
    for use in (run.flush, run.gc, run.thin, run.verify, lambda: run.steps):
        with pytest.raises(CheckpointError, match="newer format; install"):
            use()
    assert path.read_bytes() == newer


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value["trash"].update({"../victim": 0.0}),
        lambda value: value["trash"].update({"step-00000009.tc.safetensors": None}),
        lambda value: value["steps"][0].update(step="a"),
        lambda value: value["steps"][0].update(nbytes="a"),
        lambda value: value["steps"][0].update(file="../victim"),
        lambda value: value["steps"].append(value["steps"][0]),
    ],
)
def test_hostile_journals_are_made_again(run, training, tmp_path, change):
    (tmp_path / "victim").touch()
    value = json.loads((run.path / "series.json").read_bytes())
    change(value)
    steps = ",\n".join(map(json.dumps, value["steps"]))
    body = f'"format": 1, "trash": {json.dumps(value["trash"])}, "steps": [\n{steps}]'
    digest = xxhash.xxh3_128_hexdigest(body.encode())
    (run.path / "series.json").write_text(f'{{{body},\n"digest": "{digest}"}}\n')
    assert len(run.steps) == 10
    assert run.gc(0) == ([], [])
    assert (tmp_path / "victim").exists()
    training.check(run, 100)


def test_folders_in_place_of_files(run):
    (run.path / "step-00000099.tc.safetensors").mkdir()
    (run.path / ".x.tensorcomp-part").mkdir()
    assert run.gc(0) == ([], [])
    (run.path / "series.lock").unlink()
    (run.path / "series.lock").mkdir()
    with pytest.raises(CheckpointError, match=r"series\.lock: cannot be written"):
        run.gc()


@pytest.mark.parametrize("step", [-1, -5, 10**18, 1.5, "7", None, float("nan")])
def test_numbers_that_are_no_step(tmp_path, step):
    with Series(tmp_path / "run") as series, pytest.raises(OptionError, match="expected a"):
        series.add(step, {"w": torch.zeros(8)})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("metric", "kept"),
    [(float("nan"), None), (float("inf"), None), (torch.tensor(0.5), 0.5), (np.float32(2), 2.0)],
)
def test_metrics(tmp_path, metric, kept):
    with Series(tmp_path / "run", threads=1) as series:
        series.add(np.int64(10**18 - 1), {"w": torch.zeros(8)}, metric=metric)
    (series.path / "series.json").unlink()
    assert [(step.step, step.metric) for step in series.steps] == [(10**18 - 1, kept)]
    with pytest.raises(OptionError, match="a number as metric"):
        series.add(1, {"w": torch.zeros(8)}, metric="low")


@pytest.mark.parametrize(
    "value",
    [
        np.array(["a"]),
        np.zeros(3, ">f4"),
        torch.zeros(3, 3).to_sparse(),
        torch.zeros(2, device="meta"),
        (loop := []) or loop.append(loop) or loop,
    ],
)
def test_states_that_cannot_be_kept_are_refused(tmp_path, value):
    with Series(tmp_path / "run") as series:
        with pytest.raises(InputTypeError, match=r"expected a dense|holds itself"):
            series.add(1, extra={"a": value})
        with pytest.raises(InputTypeError, match="expected a model or its state, got"):
            series.add(1, model=5)
    with pytest.raises(CheckpointError, match="is closed"):
        series.add(1, extra=1)
    assert not (tmp_path / "run").exists()


def test_what_is_no_model_is_refused(run):
    for use in (lambda: run.restore(10, 5), run.follow(5).update):
        with pytest.raises(InputTypeError, match="expected a model or its state, got a int"):
            use()


def test_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with Series(tmp_path / "file") as series:
        series.add(1, {"w": torch.zeros(8)})
        with pytest.raises(CheckpointError, match="cannot be written"):
            series.flush()
    with pytest.raises(CheckpointError, match="there is no such series"):
        Series(tmp_path / "nowhere").verify()
    save_file({"w": torch.ones(9)}, tmp_path / "a-1.safetensors")
    with pytest.raises(CheckpointError, match=r"no-base: cannot be read"):
        series.add_path(tmp_path / "a-1.safetensors", base=tmp_path / "no-base", external_base=True)


def test_a_process_that_ends_still_writes_its_last_step_and_tells_of_failures(tmp_path):
    script = """
import sys, torch, tensorcomp
series = tensorcomp.Series(sys.argv[1], threads=2)
for step in map(int, sys.argv[2:]):
    series.add(step, torch.nn.Linear(1200, 1200))
"""
    line = [sys.executable, "-c", script, str(tmp_path / "run"), "1", "2", "2"]
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=120)
    assert "a step was not added" in done.stderr
    assert "has step 2 already" in done.stderr
    assert [step.step for step in Series(tmp_path / "run").steps] == [1, 2]
    assert Series(tmp_path / "run").verify(deep=True) == []


@pytest.mark.parametrize("count", range(1, 9))
def test_two_generations_without_a_journal(run, training, count):
    run.thin(["last:2"], policy="archive")
    kept = {step.step: run.get(step.step, "0.weight") for step in run.steps}
    trash = list(json.loads((run.path / "series.json").read_bytes())["trash"])
    assert len(trash) == 8
    for name in sorted(trash)[-count:]:  # as a killed gc leaves them
        (run.path / name).unlink()
    for path in run.path.glob("series.json*"):
        path.unlink()
    run.gc(0)
    run.gc(0)
    for step, weights in kept.items():
        exact = training.states[step][0]["0.weight"].numpy()
        found = run.get(step, "0.weight")
        assert np.array_equal(found, weights) or np.array_equal(found, exact)


def test_odd_names_of_files(tmp_path):
    (tmp_path / "in").mkdir()
    save_file({"m.pt/w": torch.ones(9)}, tmp_path / "in/a.safetensors")
    torch.save({"w": torch.zeros(9)}, tmp_path / "in/m.pt")
    (tmp_path / "in/\t\u6a21").touch()
    with Series(tmp_path / "run", threads=1) as series:
        series.add_path(tmp_path / "in", 1)
        series.get(1, out=tmp_path / "out")
        for name in ("a\\b", "\udcff"):
            (tmp_path / "in" / name).touch()
            with pytest.raises(FormatError, match="in Unicode without backslash"):
                series.add_path(tmp_path / "in", 2)
            (tmp_path / "in" / name).unlink()
    for path in (tmp_path / "in").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
