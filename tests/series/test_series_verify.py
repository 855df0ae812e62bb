import pytest
import torch

from tensorcomp.errors import TensorcompError


def test_a_damaged_file_is_found_with_the_steps_that_it_takes(run):
    assert run.verify() == run.verify(deep=True) == []
    for step in run.steps[:5]:
        path = run.path / step.file
        data = path.read_bytes()
        hurt = {one.step for one in run.steps if step in run._journal().chain(one)}
        for place in (3, 100, len(data) // 2, len(data) - 1):
            bad = bytearray(data)
            bad[place] ^= 4
            path.write_bytes(bad)
            (fault,) = run.verify()  # told once, not again for each step that it takes
            assert fault.file == step.file
            assert set(fault.steps) == hurt
        path.write_bytes(data)
    (run.path / "series.json").write_bytes(b"{}")
    assert [fault.file for fault in run.verify()] == ["series.json"]


def test_a_damaged_base_costs_no_new_step(run, training, caplog):
    path = run.path / run.steps[-1].file
    path.write_bytes(path.read_bytes()[:-300] + bytes(300))
    training.keep(run, 110)
    run.flush()
    training.check(run, 110)


def test_workers_follow(run, training):
    model, _ = training.fresh()
    follower = run.follow(model)
    assert follower.update() == 100
    assert follower.update() is None
    training.keep(run, 110)
    run.flush()
    assert follower.wait(5) == 110
    assert torch.equal(model[0].weight, training.states[110][0]["0.weight"])
    training.keep(run, 120)
    run.flush()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    path = run.path / run.steps[-1].file
    data = bytearray(path.read_bytes())
    data[len(data) // 4 : -64] = bytes(len(data) - len(data) // 4 - 64)
    path.write_bytes(data)
    with pytest.raises(TensorcompError):
        follower.update()
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert follower.step == 110
