"""Arguments, folders and states that a search for lottery tickets refuses."""

import io
import json
import zipfile

import numpy as np
import pytest
import torch
from test_lottery import (
    REWIND,
    SCHEDULE,
    STEPS,
    Net,
    Trainer,
    assert_equal_tickets,
    find,
    make_optimizer,
)
from torch import nn

from tensorcomp.errors import CheckpointError, FormatError, PruningError
from tensorcomp.pruning.lottery_ticket.lottery import find_ticket
from tensorcomp.pruning.lottery_ticket.rewind_point import RewindPoint

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "expected steps to be an integer of at least 1, got 0"),
        ({"rewind": -1}, "expected rewind to be an integer of at least 0, got -1"),
        ({"rewind": STEPS}, "expected rewind to be less than the 12 steps, got 12"),
        ({"seed": "a"}, "expected seed to be an integer of at least 0, got 'a'"),
        ({"seed": 2**64}, "expected seed to be less than 2**63 - 1, got 18446744073709551616"),
        ({"sparsities": 0.5}, "one or more increasing sparsities, got 0.5"),
        ({"sparsities": []}, "one or more increasing sparsities"),
        ({"sparsities": [0.5, 0.4]}, "one or more increasing sparsities"),
        ({"sparsities": [0.9999]}, "cannot be pruned"),
        (
            {"control": "random"},
            "expected control to be 'reinitialised' or not given, got 'random'",
        ),
        ({"score": "snip"}, "the score snip needs data"),
        ({"score": "beauty"}, "no score is called 'beauty'"),
        ({"granularity": "nm(2, 4)"}, "has one sparsity only"),
        ({"where": "third.*"}, "matches none"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(PruningError) as error:
        find(Trainer(), **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 13}, "was made with steps = 12, not 13"),
        ({"sparsities": [0.5]}, "was made with sparsities = [0.5, 0.75, 0.875], not [0.5]"),
        ({"seed": 1}, "was made with seed = 0, not 1"),
        ({"rewind": 2}, "was made with rewind = 3, not 2"),
        ({"score": "random(3)"}, 'was made with score = "magnitude", not "random(seed=3)"'),
        ({"scope": "tensor"}, 'was made with scope = null, not "tensor"'),
        ({"floor": 0.0}, "was made with floor = 0.001, not 0.0"),
        ({"where": "first.*"}, "was made with tensors = "),
        ({"control": "reinitialised"}, "was made with control = null"),
    ],
)
def test_a_folder_of_another_search_is_refused(tmp_path, options, message):
    with pytest.raises(KeyboardInterrupt):
        find(Trainer(fail_at=4), folder=tmp_path)
    with pytest.raises(PruningError) as error:
        find(Trainer(), folder=tmp_path, **options)
    assert message in str(error.value)
    assert "name another folder" in str(error.value)


def test_other_folders_that_are_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("do not touch")
    with pytest.raises(PruningError, match="holds no lottery ticket"):
        find(Trainer(), folder=tmp_path)
    with pytest.raises(PruningError, match="holds no lottery ticket"):
        find(Trainer(), folder=tmp_path / "thesis.tex")
    with pytest.raises(CheckpointError, match="NUL"):
        find(Trainer(), folder=f"{tmp_path}/a\0b")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    damaged = tmp_path / "damaged"
    find(Trainer(), folder=damaged, sparsities=[0.5])
    weights = (damaged / "round-00.tc.safetensors").read_bytes()
    (damaged / "round-00.tc.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(FormatError):
        find(Trainer(), folder=damaged, sparsities=[0.5]).rounds[0].weights()
    (damaged / "rewind.pt").write_bytes(b"no torch file")
    (damaged / "round-01.tc.safetensors").unlink()
    with pytest.raises(PruningError, match="the rewind point is damaged"):
        find(Trainer(), folder=damaged, sparsities=[0.5])
    for text in ("{", "[" * 100_000):
        (damaged / "settings.json").write_text(text)
        with pytest.raises(PruningError, match="is not JSON"):
            find(Trainer(), folder=damaged, sparsities=[0.5])
    (damaged / "settings.json").write_text(json.dumps([1]))
    with pytest.raises(PruningError, match="was made with version = null, not 1"):
        find(Trainer(), folder=damaged, sparsities=[0.5])


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def rezipped(data, member, content):
    """Return a torch file with another content of a member, and its checksum."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            target.writestr(name, content if name.endswith(member) else source.read(name))
    return file.getvalue()


def hostile_points():
    model = Net()
    good = RewindPoint.of(model, make_optimizer(model)).data
    yield from (good[:-30], good[40:], b"", rezipped(good, "byteorder", b"nowhere"))
    yield from (rezipped(good, "version", b"x"), rezipped(good, "data.pkl", b"\x80\x02X\x01"))
    yield from (
        rezipped(good, "data.pkl", b"\x80\x02cx\n\xff\ny"),
        rezipped(good, "data.pkl", b"}."),
    )
    state = torch.load(io.BytesIO(good), weights_only=True)
    yield from (saved(value) for value in ([], 3, {}, {**state, "generators": 4}))
    yield from (saved({**state, key: []}) for key in state)


def test_a_hostile_rewind_point_is_refused_in_one_line():
    for number, data in enumerate(hostile_points()):
        model = Net()
        with pytest.raises(PruningError, match="rewind point") as caught:
            RewindPoint(data).restore(model, make_optimizer(model))
        assert "\n" not in str(caught.value), number


def test_a_damaged_rewind_point_is_found(tmp_path):
    """Wherever the damage is: torch itself reads on."""
    find(Trainer(), folder=tmp_path, sparsities=[0.5])
    point = (tmp_path / "rewind.pt").read_bytes()
    for place in np.random.default_rng(0).integers(len(point), size=30):
        damaged = bytearray(point)
        damaged[place] ^= 1
        (tmp_path / "rewind.pt").write_bytes(damaged)
        with pytest.raises(PruningError, match=r"the rewind point is damaged; remove it"):
            find(Trainer(), folder=tmp_path, sparsities=[0.5])
    (tmp_path / "rewind.pt").unlink()
    (tmp_path / "round-01.tc.safetensors").unlink()
    ticket = find(Trainer(), folder=tmp_path, sparsities=[0.5])
    assert_equal_tickets(ticket, find(Trainer(), sparsities=[0.5]))


def test_another_optimizer_is_another_search(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        find(Trainer(fail_at=4), folder=tmp_path)
    with pytest.raises(PruningError, match='was made with optimizer = "AdamW", not "SGD"'):
        find_ticket(
            Net,
            lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
            Trainer(),
            steps=STEPS,
            sparsities=SCHEDULE,
            rewind=REWIND,
            folder=tmp_path,
        )


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="ticket: cannot be made: Not a directory"):
        find(Trainer(), folder=tmp_path / "file" / "ticket")


@pytest.mark.parametrize(
    ("make_model", "make", "words"),
    [
        (
            lambda: None,
            make_optimizer,
            "expected make_model to return a torch module, got a NoneType",
        ),
        (
            Net,
            lambda model: None,
            "expected make_optimizer to return a torch optimizer, got a NoneType",
        ),
    ],
)
def test_functions_that_make_nothing(make_model, make, words):
    with pytest.raises(PruningError, match=words):
        find_ticket(make_model, make, Trainer(), steps=2, sparsities=[0.5])


def test_training_that_diverges_and_states_that_cannot_be_kept():
    def diverge(model, optimizer, start, stop):
        model.first.weight.data[0, 0] = torch.nan

    with pytest.raises(PruningError, match=r"'first.weight': a score is NaN"):
        find(diverge)

    class Odd(Net):
        def get_extra_state(self):
            return {"more": "than tensors"}

        def set_extra_state(self, state):
            pass

    with pytest.raises(PruningError, match=r"'_extra_state' is a dict, not a tensor"):
        find_ticket(Odd, make_optimizer, Trainer(), steps=2, sparsities=[0.5])

    def odd_optimizer(model):
        optimizer = make_optimizer(model)
        optimizer.param_groups[0]["lr"] = np.float64(0.01)
        return optimizer

    with pytest.raises(PruningError, match="more than tensors and plain values"):
        find_ticket(Net, odd_optimizer, Trainer(), steps=2, sparsities=[0.5])


def test_a_point_of_another_model_is_refused():
    net = Net()
    point = RewindPoint.of(net, make_optimizer(net))
    other = nn.Linear(2, 2)
    with pytest.raises(PruningError, match="not that of the rewind point: Error") as error:
        point.restore(other, make_optimizer(other))
    assert "\n" not in str(error.value)
