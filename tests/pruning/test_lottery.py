import copy
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tensorcomp import load_file
from tensorcomp.calibration.preserve_state import generators, seed_generators, set_generators
from tensorcomp.pruning.lottery_ticket.lottery import find_ticket, train_reinitialised
from tensorcomp.selection.schedules import exponential

torch.set_num_threads(1)

STEPS, REWIND = 12, 3
SCHEDULE = exponential(0.875, 3)  # half of what is left, three times


class Net(nn.Module):
    """Weights, statistics of batches, a counter that no state dict holds, and dropout."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.2)
        self.second = nn.Linear(16, 4)
        self.register_buffer("passes", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.passes += 1
        return self.second(self.drop(torch.relu(self.norm(self.first(x))))) * (
            1 + 0.01 * self.passes
        )


NAMES = ["first.weight", "second.weight"]
X = torch.randn(64, 6, generator=torch.Generator().manual_seed(5))
Y = (X[:, 0] > 0).long() + 2 * (X[:, 1] * X[:, 2] > 0).long()


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.02)


class Trainer:
    """Trains, and writes down what it is given; may stop in the middle of a round."""

    def __init__(self, fail_at=None):
        self.calls = []
        self.taken = 0
        self.fail_at = fail_at

    def __call__(self, model, optimizer, start, stop):
        state = copy.deepcopy((model.state_dict(), optimizer.state_dict(), model.passes))
        draws = []
        for step in range(start, stop):
            if self.taken == self.fail_at:
                raise KeyboardInterrupt
            self.taken += 1
            rows = torch.randperm(64)[:16]
            draws.append((rows.tolist(), np.random.random(), random.random()))  # noqa: NPY002
            noise = 0.1 * np.random.standard_normal(6)  # noqa: NPY002
            for group in optimizer.param_groups:
                group["lr"] = 0.02 * (1 - step / STEPS) * random.uniform(0.9, 1)
            optimizer.zero_grad()
            x = X[rows] + torch.from_numpy(noise.astype(np.float32))
            nn.functional.cross_entropy(model(x), Y[rows]).backward()
            optimizer.step()
        self.calls.append((start, stop, state, draws))


def find(train, **options):
    options = {"steps": STEPS, "sparsities": SCHEDULE, "rewind": REWIND} | options
    return find_ticket(Net, make_optimizer, train, **options)


def assert_equal_states(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype
        assert tensor.numpy().tobytes() == other[name].numpy().tobytes(), name


def assert_equal_tickets(one, other):
    assert_equal_states(one.start.weights(), other.start.weights())
    assert len(one.rounds) == len(other.rounds)
    for a, b in zip(one.rounds, other.rounds, strict=True):
        assert a.number == b.number
        for name, mask in a.result.masks.items():
            assert np.array_equal(mask, b.result.masks[name])
        assert_equal_states(a.weights(), b.weights())
        assert (a.control() is None) == (b.control() is None)
        if a.control() is not None:
            assert_equal_states(a.control(), b.control())


def test_every_round_starts_where_the_first_one_was_rewound_to():
    train = Trainer()
    ticket = find(train)
    assert [call[:2] for call in train.calls] == [(0, REWIND)] + [(REWIND, STEPS)] * 4
    (weights, optimizer, passes), draws = train.calls[1][2:]
    assert passes == REWIND
    assert weights["norm.num_batches_tracked"] == REWIND
    assert optimizer["state"][0]["step"] == REWIND
    for number, call in enumerate(train.calls[1:]):
        (own, own_optimizer, own_passes), own_draws = call[2:]
        masks = ticket.rounds[number].result.masks
        for name, tensor in own.items():
            kept = torch.from_numpy(masks[name]) if name in masks else torch.ones_like(tensor)
            assert torch.equal(tensor, weights[name] * kept), (number, name)
        assert own_passes == passes
        assert own_draws == draws
        for key, state in optimizer["state"].items():
            for what, tensor in state.items():
                assert torch.equal(tensor, own_optimizer["state"][key][what])
        assert own_optimizer["param_groups"] == optimizer["param_groups"]


def test_masks_are_of_the_lowest_that_are_left():
    ticket = find(Trainer(), floor=0.0)
    assert [r.number for r in ticket.rounds] == [0, 1, 2, 3]
    assert ticket.rounds[0].result.masks.keys() == set(NAMES)
    assert ticket.rounds[0].sparsity == 0
    size = 16 * 6 + 4 * 16
    before = np.ones(size, bool)
    for last, this, sparsity in zip(ticket.rounds, ticket.rounds[1:], SCHEDULE, strict=False):
        flat = np.concatenate([last.weights()[name].numpy().ravel() for name in NAMES])
        left = np.flatnonzero(before)
        dropped = left[
            np.argsort(np.abs(flat[left]), kind="stable")[
                : round(size * sparsity) - size + left.size
            ]
        ]
        before[dropped] = False
        found = np.concatenate([this.result.masks[name].ravel() for name in NAMES])
        assert np.array_equal(found, before)
        assert this.sparsity == round(size * sparsity) / size
        after = np.concatenate([this.weights()[name].numpy().ravel() for name in NAMES])
        assert not after[~before].view(np.uint32).any()
        assert after[before].all()
    assert ticket.result is ticket.rounds[-1].result


def test_what_is_pruned_stays_so_whatever_training_does():
    def vanish(model, optimizer, start, stop):
        for name in NAMES:
            weight = model.get_parameter(name).data
            weight.copy_(torch.arange(weight.numel(), 0, -1.0).view_as(weight) * (vanish.calls < 1))
        vanish.calls += 1

    vanish.calls = 0
    rounds = find(vanish, sparsities=[0.25, 0.5], rewind=0, floor=0.0).rounds
    # The last ones go first; then all are 0, and the first ones of the others go.
    gone = [np.concatenate([~r.result.masks[n].ravel() for n in NAMES]) for r in rounds]
    assert gone[1].sum() == 40
    assert gone[2].sum() == 80
    assert not (gone[1] & ~gone[2]).any()
    assert gone[2][:40].all()


def test_training_goes_on_from_the_point_of_the_ticket():
    ticket = find(Trainer())
    model = Net()
    optimizer = make_optimizer(model)
    ticket.start.restore(model, optimizer)
    with ticket.result.hold(model, optimizer):
        Trainer()(model, optimizer, REWIND, STEPS)
        assert_equal_states(model.state_dict(), ticket.rounds[-1].weights())


def test_rewinding_to_initialisation():
    train = Trainer()
    ticket = find(train, rewind=0, sparsities=[0.5])
    assert [call[:2] for call in train.calls] == [(0, STEPS)] * 2
    seed_generators(0)
    assert_equal_states(ticket.start.weights(), Net().state_dict())


def test_the_generators_and_the_weights_are_the_callers_own():
    torch.manual_seed(3)
    before = generators()
    ticket = find(Trainer(), sparsities=[0.5])
    after = generators()
    assert torch.equal(before["torch"], after["torch"])
    assert before["random"] == after["random"]
    assert torch.equal(before["numpy"]["state"]["key"], after["numpy"]["state"]["key"])
    first = ticket.rounds[0].weights()
    first["first.weight"].zero_()
    assert ticket.rounds[0].weights()["first.weight"].any()
    assert not torch.equal(
        find(Trainer(), seed=1, sparsities=[0.5]).start.weights()["first.weight"],
        ticket.start.weights()["first.weight"],
    )


@pytest.mark.parametrize("taken", [0, 2, 5, 14, 25, 39])
def test_a_search_that_was_interrupted_goes_on(tmp_path, taken):
    """Steps: 3 to the rewind point, then 9 a round."""
    whole = find(Trainer())
    folder = tmp_path / "ticket"
    if taken < 39:
        with pytest.raises(KeyboardInterrupt):
            find(Trainer(fail_at=taken), folder=folder)
    else:
        find(Trainer(), folder=folder)
    torch.manual_seed(77)
    random.seed(77)
    train = Trainer()
    ticket = find(train, folder=folder)
    done = 0 if taken < 3 else taken - (taken - 3) % 9
    assert train.taken == 39 - done  # what was done is not done again
    assert_equal_tickets(ticket, whole)


KILLED = """
import os, signal, sys
import test_lottery

class Killed(test_lottery.Trainer):
    def __call__(self, model, optimizer, start, stop):
        if len(self.calls) == 2:
            super().__call__(model, optimizer, start, start + 4)
            os.kill(os.getpid(), signal.SIGKILL)
        super().__call__(model, optimizer, start, stop)

test_lottery.find(Killed(), folder=sys.argv[1], control="reinitialised")
"""


def test_a_process_that_was_killed_in_a_round(tmp_path):
    folder = tmp_path / "ticket"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", KILLED, str(folder)]
    done = subprocess.run(command, env=environment, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert (folder / "round-00.tc.safetensors").exists()
    assert (folder / "round-01.masks.tc.safetensors").exists()
    assert not (folder / "round-01.tc.safetensors").exists()
    ticket = find(Trainer(), folder=folder, control="reinitialised")
    assert_equal_tickets(ticket, find(Trainer(), control="reinitialised"))


def test_what_a_folder_holds(tmp_path):
    folder = tmp_path / "deep" / "ticket"
    ticket = find(Trainer(), folder=folder, control="reinitialised")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["settings.json", "rewind.pt", "rewind.pt.xxh3", "round-00.tc.safetensors"]
        + [
            f"round-0{number}{kind}.tc.safetensors"
            for number in (1, 2, 3)
            for kind in ("", ".masks", ".control")
        ]
    )
    point = torch.load(folder / "rewind.pt", weights_only=True)
    assert_equal_states(point["model"], ticket.start.weights())
    trained = load_file(folder / "round-03.tc.safetensors", framework="pt")
    Net().load_state_dict(trained)
    for name, mask in ticket.result.masks.items():
        assert not trained[name].numpy()[~mask].any()
    sizes = [(folder / f"round-0{number}.tc.safetensors").stat().st_size for number in range(4)]
    assert sizes[3] < sizes[0]


def test_the_control_is_of_other_weights_under_the_same_masks():
    train = Trainer()
    ticket = find(train, control="reinitialised", sparsities=[0.5, 0.75])
    assert ticket.rounds[0].control() is None
    assert [call[:2] for call in train.calls] == [
        (0, 3), (3, 12), (3, 12), (0, 12), (3, 12), (0, 12)
    ]  # fmt: skip
    for this in ticket.rounds[1:]:
        control = this.control()
        for name, mask in this.result.masks.items():
            assert not control[name].numpy()[~mask].any()
            assert not torch.equal(control[name], this.weights()[name])
        again = train_reinitialised(
            Net, make_optimizer, Trainer(), this.result.masks, steps=STEPS, seed=1
        )
        assert_equal_states(control, again)
    state = generators()["torch"]
    train_reinitialised(Net, make_optimizer, Trainer(), ticket.result.masks, steps=1, seed=2)
    assert torch.equal(state, generators()["torch"])


def test_a_wrapped_model_and_a_choice_of_tensors():
    ticket = find_ticket(
        lambda: nn.DataParallel(Net()),
        make_optimizer,
        lambda model, optimizer, start, stop: Trainer()(model.module, optimizer, start, stop),
        steps=STEPS,
        sparsities=[0.25],
        rewind=REWIND,
        where="second.*",
        scope="tensor",
        granularity="filter",
    )
    assert list(ticket.result.masks) == ["second.weight"]
    assert sorted(ticket.result.masks["second.weight"].any(axis=1)) == [False, True, True, True]


def test_generators_go_back():
    seed_generators(4)
    torch.rand(3)
    random.gauss(0, 1)  # leaves a second draw for the next call
    np.random.standard_normal()  # noqa: NPY002
    state = generators()

    def draw():
        return float(torch.rand(())), random.gauss(0, 1), np.random.standard_normal()  # noqa: NPY002

    first = draw()
    assert draw() != first
    set_generators(state)
    assert draw() == first
