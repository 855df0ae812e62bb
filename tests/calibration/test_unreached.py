"""Weights that no sample reaches: calibration goes on, names them, and they are not pruned."""

import numpy as np
import pytest
import torch
from torch import nn

from tensorcomp.calibration.calibrate import CALIBRATED
from tensorcomp.errors import PruningError
from tensorcomp.pruning import GradientHistory, Statistics, calibrate, prune, prune_to_error

torch.set_num_threads(1)


class Experts(nn.Module):
    """A mixture that routes every sample to the first expert; the third is never called."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.unused = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, inputs):
        chosen = torch.zeros(len(inputs), dtype=torch.long)
        outputs = torch.zeros_like(inputs)
        for number, expert in enumerate(self.experts[:2]):
            rows = chosen == number
            outputs = outputs.index_add(0, rows.nonzero()[:, 0], expert(inputs[rows]))
        return self.head(outputs.tanh())


UNREACHED = ("experts.1.weight", "experts.2.weight", "unused.weight")
BATCHES = [(torch.randn(8, 6, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 3)]


@pytest.mark.parametrize("statistic", CALIBRATED)
def test_calibration_goes_on_and_names_them(tmp_path, statistic):
    found = calibrate(Experts(), BATCHES, statistics=[statistic])
    assert found.unreached == UNREACHED
    assert list(found.arrays[statistic]) == ["experts.0.weight", "head.weight"]
    found.save(tmp_path / "stats.safetensors")
    loaded = Statistics.load(tmp_path / "stats.safetensors")
    assert loaded.unreached == UNREACHED
    with pytest.raises(PruningError, match="got none: no sample of the calibration reaches it"):
        loaded.of(statistic, "unused.weight")


@pytest.mark.parametrize("score", ["wanda", "snip", "obd", "grasp", "taylor", "gradient"])
def test_they_are_left_unpruned(score):
    model = Experts()
    result = prune(model, score, 0.5, data=BATCHES)
    assert set(result.masks) == {"experts.0.weight", "head.weight"}
    assert result.sparsity == 0.5
    assert tuple(result.skipped) == UNREACHED
    assert set(result.skipped.values()) == {"no sample of the calibration reaches it"}


def test_a_layer_that_is_reached_but_not_known_is_no_unreached_one():
    model = nn.Sequential(nn.Linear(6, 6), nn.Bilinear(6, 6, 3))
    found = calibrate(
        model, BATCHES, statistics=["input_norm"], loss=lambda m, b: m[1](m[0](b[0]), b[0]).sum()
    )
    assert found.unreached == ()
    result = prune(model, "wanda", 0.5, statistics=found)
    assert list(result.skipped) == ["1.weight"]
    assert "measured no input_norm" in result.skipped["1.weight"]


def test_nothing_reached_at_all_is_refused():
    def loss(model, batch):
        return model.unused(batch[0]).sum() * 0

    with pytest.raises(PruningError, match="has no gradient in any of 1 minibatches"):
        calibrate(Experts(), BATCHES, statistics=["snip"], loss=loss)


def test_a_history_leaves_them_out():
    model, history = Experts(), GradientHistory()
    nn.functional.cross_entropy(model(BATCHES[0][0]), BATCHES[0][1]).backward()
    history.update(model)
    found = history.statistics()
    assert found.unreached == UNREACHED
    assert np.all([array.any() for array in found.arrays["gradient"].values()])


@pytest.mark.parametrize("wrapped", ["module.{}", "_orig_mod.{}", "model.{}"])
def test_statistics_of_a_wrapped_model_are_found(wrapped):
    model = Experts()
    found = calibrate(model, BATCHES, statistics=["snip"])
    arrays = {wrapped.format(name): array for name, array in found.arrays["snip"].items()}
    unreached = tuple(map(wrapped.format, UNREACHED))
    given = Statistics({"snip": arrays}, unreached=unreached)
    one, other = (prune(model, "snip", 0.5, statistics=each) for each in (found, given))
    assert one.masks.keys() == other.masks.keys()
    assert all(np.array_equal(one.masks[name], other.masks[name]) for name in one.masks)
    assert one.skipped == other.skipped
    assert (
        prune_to_error(model, 0.5, score="snip", statistics=given).masks.keys() == one.masks.keys()
    )
