"""Minibatches, modes and random numbers of the passes of calibration."""

import numpy as np
import pytest
import torch
from calibrated_nets import (
    half_square,
    two_batches,
    two_layers,
)
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from unchanged import Seen

from tensorcomp.calibration.calibrate import CALIBRATED, calibrate

torch.set_num_threads(1)


class Recording:
    """A dataset that remembers what was asked of it."""

    def __init__(self):
        self.asked = []

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.asked.append(index)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(4, generator=generator), index % 3


def test_a_second_pass_sees_the_same_minibatches():
    layer, dataset = nn.Linear(4, 3).double(), Recording()
    loader = DataLoader(dataset, batch_size=2, shuffle=True)
    torch.manual_seed(0)
    found = calibrate(layer, loader, statistics=["grasp"], batches=2)
    assert len(set(dataset.asked[:4])) == 4
    assert dataset.asked[4:] == dataset.asked[:4]
    assert (found.batches, found.samples) == (2, 4)
    torch.manual_seed(0)
    batches = iter(list(loader))
    again = calibrate(layer, batches, statistics=["grasp"], batches=2)
    np.testing.assert_array_equal(again.of("grasp", "weight"), found.of("grasp", "weight"))
    assert len(list(batches)) == 2  # no more was taken than was asked for


@pytest.mark.parametrize("where", ["loader", "sampler"])
def test_a_second_pass_repeats_the_order_of_a_loader_of_its_own(where):
    """A generator that a loader was given is not among the global ones."""
    net, (x, t) = two_layers(), two_batches()[0]
    data = TensorDataset(x * torch.arange(1.0, 9)[:, None], t * torch.arange(8.0)[:, None])

    def shuffled():
        own = torch.Generator().manual_seed(3)
        if where == "loader":
            return DataLoader(data, 2, shuffle=True, generator=own)
        return DataLoader(data, 2, sampler=RandomSampler(data, generator=own))

    options = {"statistics": ["grasp"], "loss": half_square, "temperature": 1, "batches": 2}
    found = calibrate(net, shuffled(), **options)
    expected = calibrate(net, list(shuffled()), **options)
    for name in ("0.weight", "2.weight"):
        np.testing.assert_array_equal(found.of("grasp", name), expected.of("grasp", name))


class Clamping(nn.Linear):
    """Its weights are kept small, in place, whenever it runs."""

    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


@pytest.mark.parametrize("statistic", ["snip", "grasp", "input_norm", "synflow"])
def test_weights_that_change_as_the_model_runs_are_restored(statistic):
    net = nn.Sequential(Clamping(2, 2), nn.Linear(2, 1)).double()
    seen = Seen(net)
    calibrate(net, two_batches(), statistics=[statistic], loss=half_square, temperature=1)
    seen.check(net)


def test_an_expanded_buffer_is_no_trouble():
    net = two_layers(torch.float32)
    net.register_parameter("scale", nn.Parameter(torch.ones(1).expand(3), requires_grad=False))
    net.register_buffer("mask", torch.ones(2, 1, dtype=torch.bool).expand(2, 4))
    seen = Seen(net)
    calibrate(net, two_batches(torch.float32), loss=half_square, temperature=1)
    seen.check(net)


def test_an_iterator_is_enough_without_grasp():
    expected = calibrate(two_layers(), two_batches(), loss=half_square, statistics=["snip"])
    found = calibrate(two_layers(), iter(two_batches()), loss=half_square, statistics=["snip"])
    np.testing.assert_array_equal(found.of("snip", "0.weight"), expected.of("snip", "0.weight"))


GRADIENTS = ("snip", "taylor", "gradient", "fisher", "grasp")


def normalised():
    """Return a network that trains otherwise than it infers, and minibatches."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    net[1].running_mean += 1
    return net, [(torch.randn(16, 4), torch.arange(16) % 3) for _ in range(2)]


def equal(found, other, statistics):
    return all(
        np.array_equal(found.of(statistic, name), other.of(statistic, name))
        for statistic in statistics
        for name in found.arrays[statistic]
    )


@pytest.mark.parametrize("mode", [True, False])
def test_gradients_are_those_of_the_mode_that_the_model_is_in(mode):
    net, data = normalised()
    net.train(mode)
    seen = Seen(net)
    found = {asked: calibrate(net, data, train_mode=asked) for asked in (None, True, False)}
    seen.check(net)  # running means too
    assert equal(found[None], found[mode], GRADIENTS)
    for statistic in GRADIENTS:
        assert not equal(found[None], found[not mode], [statistic])
    # Inputs are those of the model in use, unless it is said otherwise.
    assert equal(found[None], found[False], ["input_norm"])
    assert not equal(found[True], found[False], ["input_norm"])


def test_single_modules_keep_their_mode():
    net, data = normalised()
    net[2].eval()  # without dropout, by the statistics of each minibatch
    found = calibrate(net, data, statistics=["snip"])
    net[2] = nn.Identity()
    net.append(nn.Identity())
    assert equal(calibrate(net, data, statistics=["snip"]), found, ["snip"])


def test_what_is_drawn_at_random_is_drawn_again():
    net, data = normalised()
    first = calibrate(net, data)
    assert equal(calibrate(net, data), first, CALIBRATED)
    torch.manual_seed(1)
    other = calibrate(net, data)
    assert not equal(other, first, ["snip"])
    torch.manual_seed(1)
    assert equal(calibrate(net, data), other, CALIBRATED)
    # Each statistic is the same alone, as dropout draws the same for a minibatch in each pass.
    for statistic in CALIBRATED:
        assert equal(calibrate(net, data, statistics=[statistic]), other, [statistic])


def test_minibatches_draw_numbers_of_their_own():
    net, data = normalised()
    dropped = []
    net[2].register_forward_hook(lambda module, inputs, outputs: dropped.append(outputs == 0))
    calibrate(net, [data[0]] * 2, statistics=["grasp"])
    masks = [mask.tolist() for mask in dropped]
    assert masks[0] != masks[1]
    assert masks[2:] == masks[:2]  # the second pass


def test_dropout_draws_nothing_of_a_loader():
    net, dataset = normalised()[0].train(), Recording()
    loader = DataLoader(dataset, batch_size=4, shuffle=True)
    calibrate(net, loader, statistics=["grasp", "snip"])
    asked = dataset.asked[:8]
    assert dataset.asked[8:] == asked
    calibrate(net, loader, statistics=["snip"], train_mode=False)
    assert dataset.asked[16:] == asked
