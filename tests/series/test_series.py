import pytest
import torch
from safetensors.torch import load_file, save_file

from tensorcomp import Series
from tensorcomp.errors import CheckpointError, InputTypeError, OptionError
from tensorcomp.series import add as add_module


def test_every_step_is_restored_exactly(run, training):
    assert run.latest == 100
    for step in run.steps:
        assert step.resumable == "exact"
        assert step.depth < 4
        training.check(run, step.step)
    with pytest.raises(CheckpointError, match="has no step 5; it has 10 from 10 to 100"):
        run.get(5, "0.weight")


def test_tensors_and_slices_of_a_step(run, training):
    weight = training.states[30][0]["0.weight"]
    assert torch.equal(run.get(30, "0.weight", framework="pt"), weight)
    with run.open(30) as file:
        assert (file.get_slice("0.weight")[3:5] == weight[3:5].numpy()).all()
    with pytest.raises(OptionError, match="expected name or out, got both or none"):
        run.get(30)


def test_a_step_is_written_as_ordinary_files(run, training, tmp_path):
    run.get(40, out=tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["extra.safetensors", "model.safetensors", "optimizer.safetensors"]
    whole = run.get(40, out=tmp_path / "w.safetensors", only_weights=True)
    for path in (whole, tmp_path / "out" / "model.safetensors"):
        found = load_file(path)
        assert found.keys() == training.states[40][0].keys()
        assert all(torch.equal(one, found[name]) for name, one in training.states[40][0].items())
    with pytest.raises(CheckpointError, match="exists already"):
        run.get(40, out=whole, only_weights=True)


def test_restoring_another_model_changes_nothing(run, training):
    model = torch.nn.Linear(64, 48)
    before = model.weight.clone()
    with pytest.raises(CheckpointError, match="is in the step only"):
        run.restore(20, model)
    assert torch.equal(model.weight, before)
    model, _ = training.fresh()
    with pytest.raises(CheckpointError, match="is of another optimizer"):
        run.restore(20, model, torch.optim.AdamW([model[0].weight], 1e-3))
    assert not torch.equal(model[0].weight, training.states[20][0]["0.weight"])


def test_errors_of_the_thread_are_raised_at_the_next_call(tmp_path):
    series = Series(tmp_path / "run")
    series.add(1, model={"w": torch.zeros(5)})
    series.add(1, model={"w": torch.ones(5)})
    with pytest.raises(CheckpointError, match="has step 1 already"):
        series.flush()
    series.flush()
    assert series.get(1, "w").tolist() == [0] * 5


def test_what_is_added_is_a_copy(tmp_path):
    weight = torch.zeros(1000)
    with Series(tmp_path / "run") as series:
        series.add(1, model={"w": weight})
        weight += 1
    assert not series.get(1, "w").any()


def test_states_that_are_no_plain_values_are_refused(tmp_path):
    with Series(tmp_path / "run") as series:
        with pytest.raises(InputTypeError, match=r"expected plain values .* got a object"):
            series.add(1, extra={"a": [object()]})
        with pytest.raises(InputTypeError, match="expected a model, an optimizer or extra"):
            series.add(1)
        extra = {
            "a": (1, None),
            2: [b"x", float("inf")],
            "t": torch.arange(3, dtype=torch.bfloat16),
        }
        series.add(1, extra=extra)
        found = series.restore(1)
        assert torch.equal(found.pop("t"), extra.pop("t"))
        assert found == extra
        alike = {1: torch.zeros(2), "1": torch.ones(2), "a.b": [torch.ones(1)], "a": {"b.0": None}}
        series.add(2, extra=alike | {"a.b.0": torch.zeros(1)})
        found = series.restore(2)
        assert found[1].tolist() + found["1"].tolist() == [0, 0, 1, 1]
        assert (found["a.b"][0].item(), found["a.b.0"].item()) == (1, 0)
    assert series.steps[0].resumable == "weights only"


def test_options_are_checked(tmp_path):
    with pytest.raises(OptionError, match="expected keyframe_every of 1 to 64, got 0"):
        Series(tmp_path, keyframe_every=0)
    with pytest.raises(OptionError, match="exact, resume, archive, got 'x'"):
        Series(tmp_path, policy="x")


def test_files_and_folders_come_back_byte_for_byte(tmp_path, training):
    training.advance()
    folder = tmp_path / "checkpoint-1500"
    folder.mkdir()
    save_file(training.model.state_dict(), folder / "model.safetensors")
    torch.save(training.optimizer.state_dict(), folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text(
        '{"global_step": 1500, "log_history": [{"eval_loss": 2.5}]}'
    )
    (folder / "sub").mkdir()
    (folder / "sub" / "tokenizer.txt").write_text("a b c")
    torch.save({"model": training.model.state_dict(), "step": 7}, tmp_path / "step7.pt")
    series = Series(tmp_path / "run", threads=1)
    step = series.add_path(folder)
    assert (step.step, step.metric, step.has_optimizer) == (1500, 2.5, True)
    assert series.add_path(tmp_path / "step7.pt").step == 7
    with pytest.raises(CheckpointError, match="expected a name that ends in the step"):
        series.add_path(folder / "model.safetensors")
    back = series.get(1500, out=tmp_path / "back")
    for path in filter(lambda path: path.is_file(), folder.rglob("*")):
        assert (back / path.relative_to(folder)).read_bytes() == path.read_bytes()
    assert series.get(7, out=tmp_path / "b.pt").read_bytes() == (tmp_path / "step7.pt").read_bytes()
    weights = series.get(1500, out=tmp_path / "w.safetensors", only_weights=True)
    assert load_file(weights).keys() == training.model.state_dict().keys()


@pytest.mark.parametrize("external", [True, False])
def test_a_base_of_all(tmp_path, training, external):
    base, tuned = tmp_path / "base.safetensors", tmp_path / "tuned-1.safetensors"
    save_file(training.states[90][0], base)
    save_file(training.states[100][0], tuned)
    series = Series(tmp_path / "run", threads=1)
    step = series.add_path(tuned, base=base, external_base=external)
    assert step.depth == 1
    assert [one.step for one in series.steps] == [1]
    if not external:
        base.unlink()
    assert series.get(1, out=tmp_path / "back").read_bytes() == tuned.read_bytes()
    assert series.verify(deep=True) == []
    if external:
        base.unlink()
        assert "is coded against 'base.safetensors'" in series.verify()[0].error


def test_a_file_that_is_changed_meanwhile_is_no_step(tmp_path, training, monkeypatch):
    path = tmp_path / "w-1.safetensors"
    save_file(training.states[90][0], path)
    written = add_module.write_step

    def changing(*arguments, **keywords):
        save_file({"other": torch.zeros(3)}, path)
        return written(*arguments, **keywords)

    monkeypatch.setattr(add_module, "write_step", changing)
    series = Series(tmp_path / "run", threads=1)
    with pytest.raises(CheckpointError, match="was changed while it was read"):
        series.add_path(path)
    assert series.steps == []
