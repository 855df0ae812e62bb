"""Synaptic flow against products of matrices by hand; the model is as it was."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from unchanged import Seen

from tensorcomp.calibration.signal_flow import synaptic_flow
from tensorcomp.errors import PruningError
from tensorcomp.pruning.mask_hooks import hold

torch.set_num_threads(1)

NAMES = ["0.weight", "2.weight"]


def two_layers():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    net[0].weight.data = torch.tensor([[1.0, -2.0], [3.0, -1.0]])
    net[2].weight.data = torch.tensor([[2.0, -1.0]])
    return net


def test_by_hand():
    """|W1| 1 = (3, 4); R = 2 · 3 + 1 · 4 = 10; each weight counts its own part of it."""
    net = two_layers()
    seen = Seen(net)
    found = synaptic_flow(net, torch.zeros(1, 2), NAMES)
    seen.check(net)
    assert list(found) == NAMES
    assert all(array.dtype == np.float64 for array in found.values())
    np.testing.assert_array_equal(found["0.weight"], [[2, 4], [3, 1]])
    np.testing.assert_array_equal(found["2.weight"], [[6, 4]])


def test_masks_by_hand():
    masks = {"0.weight": np.array([[True, False], [True, True]])}
    found = synaptic_flow(two_layers(), torch.ones(1, 2), NAMES, masks)
    np.testing.assert_array_equal(found["0.weight"], [[2, 0], [3, 1]])
    np.testing.assert_array_equal(found["2.weight"], [[2, 4]])


def test_biases_and_buffers_count_by_magnitude():
    """One feature: BN gives (|w| - |m|) / sqrt(v + eps) · |g| + |b|."""
    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, eps=0.0))
    for tensor, value in [
        (net[0].weight, -6.0),
        (net[0].bias, -3.0),
        (net[1].running_mean, -1.0),
        (net[1].running_var, 4.0),
        (net[1].weight, -2.0),
        (net[1].bias, -5.0),
    ]:
        tensor.data.fill_(value)
    found = synaptic_flow(net, torch.ones(1, 1), ["0.weight", "0.bias", "1.weight", "1.bias"])
    # R = (6 + 3 - 1) / 2 · 2 + 5
    assert {name: float(array.item()) for name, array in found.items()} == {
        "0.weight": 6.0,
        "0.bias": 3.0,
        "1.weight": 8.0,
        "1.bias": 5.0,
    }


def deep(depth, width=64):
    torch.manual_seed(0)
    layers = [
        layer
        for _ in range(depth)
        for layer in (nn.Linear(width, width, bias=False), nn.ReLU(inplace=True))
    ]
    return nn.Sequential(*layers)


def test_layers_of_a_deep_network_conserve_the_flow():
    """R = 1' |W_100| … |W_1| 1, about 10^65, which float32 cannot hold."""
    net = deep(100)
    product = np.ones(64)
    for layer in net[::2]:
        product = np.abs(layer.weight.detach().double().numpy()) @ product
    names = [f"{2 * number}.weight" for number in range(100)]
    found = synaptic_flow(net, torch.zeros(1, 64), names)
    assert product.sum() > 1e60
    for name in names:
        np.testing.assert_allclose(found[name].sum(), product.sum(), rtol=1e-9)


def test_a_flow_that_overflows_or_vanishes_is_refused():
    net = deep(60)
    for scale, words in ((1e6, "'0.weight' is not finite"), (1e-7, "no signal reaches the output")):
        seen = Seen(net)
        for layer in net[::2]:
            layer.weight.data.mul_(scale)
        before = Seen(net)
        with pytest.raises(PruningError, match=words):
            synaptic_flow(net, torch.ones(1, 64), ["0.weight", "118.weight"])
        before.check(net)
        for layer in net[::2]:
            layer.weight.data.div_(scale)
        assert seen.pointers == before.pointers


class Tokens(nn.Module):
    """A tied head, two inputs, a mask of −∞ in a buffer, a dict of outputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(5, 4)
        self.mixed = nn.Linear(4, 4, bias=False)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("ahead", torch.full((3, 3), -torch.inf).triu(1))

    def forward(self, tokens, scale=None):
        x = self.table(tokens)
        scores = x @ x.transpose(-2, -1) + self.ahead
        x = self.mixed(torch.softmax(scores, -1) @ x)
        return {"scores": scores.detach(), "out": self.head(x if scale is None else x * scale)}


def test_tokens_are_used_as_they_are():
    net, tokens = Tokens().half(), torch.tensor([[1, 1, 3]])
    seen = Seen(net)
    names = ["table.weight", "mixed.weight"]
    found = synaptic_flow(net, tokens, names)
    seen.check(net)
    table = net.table.weight.detach().double().abs().numpy()
    mixed = net.mixed.weight.detach().double().abs().numpy()
    x = table[[1, 1, 3]]
    powers = np.tril(np.exp(x @ x.T))
    read = (powers / powers.sum(1, keepdims=True)) @ x
    expected = mixed * np.outer(table.sum(0), read.sum(0))
    np.testing.assert_allclose(found["mixed.weight"], expected)
    assert found["table.weight"].shape == (5, 4)
    scaled = synaptic_flow(net, (tokens, torch.zeros(1)), ["mixed.weight"])
    np.testing.assert_allclose(scaled["mixed.weight"], expected)
    named = synaptic_flow(net, {"tokens": tokens}, ["head.weight"])
    np.testing.assert_allclose(named["head.weight"], found["table.weight"])


class Recomputing(nn.Sequential):
    """Runs its layers again for the gradient, instead of keeping what they gave."""

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


def test_layers_that_run_again_for_the_gradient():
    net = two_layers()
    found = synaptic_flow(Recomputing(*net), torch.zeros(1, 2), NAMES)
    for name, expected in synaptic_flow(net, torch.zeros(1, 2), NAMES).items():
        np.testing.assert_array_equal(found[name], expected)


def test_within_inference_mode():
    net = two_layers()
    expected = synaptic_flow(net, torch.zeros(1, 2), NAMES)
    with torch.inference_mode():
        found = synaptic_flow(net, torch.zeros(1, 2), NAMES)
    for name in NAMES:
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_model_that_is_held_stays_so():
    net = two_layers()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    masks = {"0.weight": np.array([[True, False], [True, True]])}
    with hold(net, optimizer, masks):
        seen = Seen(net)
        found = synaptic_flow(net, torch.ones(1, 2), NAMES)
        seen.check(net)
        np.testing.assert_array_equal(found["0.weight"], [[2, 0], [3, 1]])
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert net[0].weight[0, 1] == 0


def test_wrapped_frozen_and_without_grad():
    net = two_layers().requires_grad_(False)
    with torch.no_grad():
        found = synaptic_flow(nn.DataParallel(net), torch.ones(1, 2), NAMES)
    np.testing.assert_array_equal(found["2.weight"], [[6, 4]])


class Classes(nn.Linear):
    def forward(self, x):
        return super().forward(x).argmax(-1)


@pytest.mark.parametrize(
    ("net", "names", "masks", "words"),
    [
        (two_layers(), NAMES, {"1.weight": np.ones(2, bool)}, "a mask is for '1.weight'"),
        (two_layers(), NAMES, {"2.weight": np.ones(2, bool)}, r"to be bool \[1, 2\]"),
        (two_layers(), NAMES, {"2.weight": np.zeros((1, 2), bool)}, "no signal reaches the output"),
        (Classes(2, 2), ["weight"], None, "without floats that depend on its weights"),
    ],
)
def test_refusals(net, names, masks, words):
    seen = Seen(net)
    with pytest.raises(PruningError, match=words):
        synaptic_flow(net, torch.ones(1, 2), names, masks)
    seen.check(net)
