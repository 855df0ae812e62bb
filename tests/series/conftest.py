import copy
import random
import shutil

import numpy as np
import pytest
import torch

from tensorcomp import Series


class Training:
    """A small model in training, whose every state is remembered."""

    def __init__(self):
        torch.manual_seed(0)
        self.model, self.optimizer = self.fresh()
        self.states = {}

    def fresh(self):
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 8)
        )
        return model, torch.optim.AdamW(model.parameters(), 1e-3)

    def advance(self, steps=2):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(torch.randn(16, 64)).square().mean().backward()
            self.optimizer.step()

    def extra(self):
        numpy_state = np.random.get_state()  # noqa: NPY002 - which trainings save
        return {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": numpy_state}

    def keep(self, series, step):
        self.advance()
        series.add(step, model=self.model, optimizer=self.optimizer, extra=self.extra())
        weights = {name: one.clone() for name, one in self.model.state_dict().items()}
        moments = [
            {key: one.clone() for key, one in state.items()}
            for state in self.optimizer.state_dict()["state"].values()
        ]
        self.states[step] = weights, moments, self.extra()

    def check(self, series, step, *, optimizer=True):
        model, new = self.fresh()
        extra = series.restore(step, model, new if optimizer else None)
        weights, moments, kept = self.states[step]
        assert all(torch.equal(one, weights[name]) for name, one in model.state_dict().items())
        assert torch.equal(extra["torch"], kept["torch"])
        assert extra["python"] == kept["python"]
        assert np.array_equal(extra["numpy"][1], kept["numpy"][1])
        if optimizer:
            found = new.state_dict()["state"].values()
            for state, wanted in zip(found, moments, strict=True):
                assert all(torch.equal(state[key], wanted[key]) for key in wanted)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Return a training, and the folder of its ten steps, 10 to 100."""
    training, path = Training(), tmp_path_factory.mktemp("series") / "run"
    with Series(path, keyframe_every=4, threads=1) as series:
        for step in range(10, 101, 10):
            training.keep(series, step)
    return training, path


@pytest.fixture
def training(made):
    return copy.deepcopy(made[0])


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made[1], tmp_path / "run")
    with Series(tmp_path / "run", keyframe_every=4, threads=1) as series:
        yield series
