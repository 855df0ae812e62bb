import json

import pytest
import torch
from safetensors.torch import save_file


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Return the folders of four checkpoints of a training."""
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    found = []
    for step in (100, 200, 300, 400):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        folder = tmp_path_factory.mktemp("trained") / f"checkpoint-{step}"
        folder.mkdir()
        save_file(model.state_dict(), folder / "model.safetensors")
        torch.save(optimizer.state_dict(), folder / "optimizer.pt")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        found.append(folder)
    return found


def test_a_series_from_beginning_to_end(call, checkpoints, tmp_path):
    run = tmp_path / "run"
    for folder in checkpoints:
        assert "Step" in call.ok("series", "add", run, folder).stdout
    call.refused("has step 400 already", "series", "add", run, checkpoints[-1])
    shown = call.ok("series", "ls", run).stdout
    assert shown.count("exact") == 12
    assert "4 steps: " in shown
    steps = call.ok("series", "ls", run, "--json").json["steps"]
    assert [step["step"] for step in steps] == [100, 200, 300, 400]
    call.ok("series", "get", run, 200, "-o", tmp_path / "back")
    for path in checkpoints[1].iterdir():
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes()
    thinned = call.ok("series", "thin", run, "--keep-optimizer", "last:1", "--json").json["steps"]
    assert [step["resumable"] for step in thinned] == [*["weights only"] * 3, "exact"]
    assert call.ok("series", "verify", run, "--deep", "--json").json["sound"]
    assert (
        len(call.ok("series", "gc", run, "--dry-run", "--grace", "0s", "--json").json["removed"])
        >= 3
    )
    assert "removed" in call.ok("series", "gc", run, "--grace", "0s").stdout
    call.ok("series", "rebase", run, "--every", 1)
    weights = tmp_path / "w.safetensors"
    call.ok("series", "get", run, 100, "--only", "weights", "-o", weights)
    assert weights.read_bytes()[8:]
    for line in (["ls"], ["verify"], ["get", 1, "-o", tmp_path / "out"], ["gc"]):
        call.refused("does not exist", "series", line[0], tmp_path / "none", *line[1:])


def test_damage_is_a_failed_check(call, checkpoints, tmp_path):
    run = tmp_path / "run"
    for folder in checkpoints[:2]:
        call.ok("series", "add", run, folder)
    path = next(run.glob("*200.tc.safetensors"))
    path.write_bytes(path.read_bytes()[:-9])
    done = call("series", "verify", run, "--json")
    assert done.status == 1
    assert [fault["steps"] for fault in json.loads(done.stdout)["faults"]] == [[200]]


@pytest.mark.parametrize("name", ["series.json", "series.json.1"])
def test_damage_is_found_where_the_journal_is_damaged_too(call, checkpoints, tmp_path, name):
    run = tmp_path / "run"
    for step, folder in enumerate(checkpoints[:2]):
        call.ok("series", "add", run, folder, "--step", step, "--metric", "nan")
    call.ok("series", "ls", run, "--json")
    path = next(run.glob("*1.tc.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    (run / name).write_bytes(b"?")
    done = call("series", "verify", run, "--json")
    assert done.status == 1
    assert [fault["steps"] for fault in json.loads(done.stdout)["faults"]] == [[], [1]]
