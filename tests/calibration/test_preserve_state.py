"""A model that something was done to in a `preserve_state` block is bit for bit what it was."""

import copy
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from unchanged import Seen

from tensorcomp.calibration.preserve_state import preserve_state

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Linear(4, 4, bias=False)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.second.weight
        self.drop = nn.Dropout(0.5)
        self.register_buffer("odd", torch.tensor([float("nan"), -0.0, 1.0]), persistent=False)

    def forward(self, x):
        return self.drop(self.tied(self.second(self.norm(self.first(x)))))


def make_net():
    torch.manual_seed(0)
    net = Net()
    net.first.bias.requires_grad_(False)
    net.norm.eval()
    net(torch.randn(8, 3)).sum().backward()
    net.norm.weight.grad = None
    return net


def train(net):
    net.train()
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1.0)
    net(torch.randn(8, 3)).sum().backward()
    optimizer.step()


def zero_gradients(net):
    for parameter in net.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()


def initialise(net):
    for parameter in net.parameters():
        nn.init.uniform_(parameter)


def replace_parameters(net):
    net.second.weight = nn.Parameter(torch.zeros(4, 4))
    net.first.weight.data = torch.zeros(4, 3)
    del net.norm.bias
    net.norm.register_parameter("new", nn.Parameter(torch.zeros(1)))


def replace_buffers(net):
    net.norm.running_mean = torch.ones(4)
    net.norm.running_var.fill_(7)
    net.odd = None


def replace_modules(net):
    net.first = nn.Identity()
    net.extra = nn.Linear(2, 2)


def cast(net):
    net.double()


def freeze(net):
    for parameter in net.parameters():
        parameter.requires_grad_(not parameter.requires_grad)


def draw(net):
    torch.rand(3)
    np.random.rand(3)  # noqa: NPY002
    random.random()


DEEDS = [
    train,
    zero_gradients,
    initialise,
    replace_parameters,
    replace_buffers,
    replace_modules,
    cast,
    freeze,
    draw,
]


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_restored(deed, fails):
    net = make_net()
    seen = Seen(net)
    try:
        with preserve_state(net):
            deed(net)
            {True: "ends"}[not fails]  # a KeyError in the middle
    except KeyError:
        assert fails
    seen.check(net)


@given(st.lists(st.sampled_from(DEEDS), max_size=4), st.booleans())
def test_whatever_order_things_happen_in(deeds, fails):
    net = make_net()
    seen = Seen(net)
    try:
        with preserve_state(net):
            for deed in deeds:
                deed(net)
            assert not fails
    except (AssertionError, AttributeError, RuntimeError, TypeError, NotImplementedError):
        pass  # a deed after another may find the model unusable
    seen.check(net)


def test_deeds_do_change_the_model():
    for deed in DEEDS:
        net = make_net()
        seen = Seen(net)
        deed(net)
        with pytest.raises((AssertionError, ValueError, AttributeError)):
            seen.check(net)


def test_there_are_no_gradients_in_the_block_and_none_is_lost():
    net = make_net()
    kept = net.second.weight.grad
    before = kept.clone()
    with preserve_state(net):
        assert all(parameter.grad is None for parameter in net.parameters())
        net(torch.randn(8, 3)).sum().backward()
    assert net.second.weight.grad is kept
    assert torch.equal(kept, before)


def test_weights_that_are_only_read_are_not_copied():
    net = make_net()
    seen = Seen(net)
    with preserve_state(net, weights=False):
        net.train()
        net(torch.randn(8, 3)).sum().backward()
        net.first.weight.data = torch.zeros(4, 3)
        net.norm.running_mean.zero_()
    seen.check(net)
    with preserve_state(net, weights=False):
        net.first.weight.data.zero_()
    assert not net.first.weight.any()


def test_a_graph_that_was_recorded_before_is_still_valid():
    net = make_net()
    net.train().zero_grad()
    twin = copy.deepcopy(net)
    torch.manual_seed(1)
    loss = net(torch.ones(8, 3) * torch.arange(8.0)[:, None]).square().sum()
    with preserve_state(net):
        net.norm(torch.randn(8, 4))
    loss.backward()
    torch.manual_seed(1)
    twin(torch.ones(8, 3) * torch.arange(8.0)[:, None]).square().sum().backward()
    assert torch.equal(net.second.weight.grad, twin.second.weight.grad)


def test_a_lazy_layer_stays_as_it_is():
    net = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(2))
    with preserve_state(net):
        net.eval()
    assert net.training
    assert nn.parameter.is_lazy(net[1].weight)
    assert net[1].weight.requires_grad


def test_an_expanded_parameter_is_restored():
    net = nn.Linear(3, 2)
    net.register_parameter("scale", nn.Parameter(torch.arange(2.0)[:, None].expand(2, 3)))
    seen = Seen(net)
    with preserve_state(net):
        net.scale.data[:, :1].fill_(7)
    seen.check(net)
    assert net.scale.stride() == (1, 0)


def test_numpy_may_draw_from_another_generator():
    usual = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        with preserve_state(nn.Linear(2, 2)):
            drawn = np.random.random()  # noqa: NPY002
        assert np.random.random() == drawn  # noqa: NPY002
    finally:
        np.random.set_bit_generator(usual)
