"""Tells whether a model and the generators of random numbers are bit for bit what they were."""

import random

import numpy as np
import torch


def bits(tensor):
    return tensor.detach().clone().reshape(-1).view(torch.uint8)


def generators():
    return (
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002 - the state that is restored
        random.getstate(),
    )


class Seen:
    """All that must be the same afterwards, by identity and by bits."""

    def __init__(self, net):
        self.modules = [(module, module.training) for module in net.modules()]
        self.parameters = list(net.named_parameters(remove_duplicate=False))
        self.buffers = list(net.named_buffers())
        tensors = [tensor for _, tensor in self.parameters + self.buffers]
        self.pointers = [tensor.data_ptr() for tensor in tensors]
        self.bits = [bits(tensor) for tensor in tensors]
        self.needs = [tensor.requires_grad for tensor in tensors]
        self.grads = [parameter.grad for _, parameter in self.parameters]
        self.grad_bits = [grad if grad is None else bits(grad) for grad in self.grads]
        self.generators = generators()

    def check(self, net):
        now = Seen(net)
        for old, new in zip(self.modules, now.modules, strict=True):
            assert old[0] is new[0]
            assert old[1] == new[1]
        for old, new in zip(
            self.parameters + self.buffers, now.parameters + now.buffers, strict=True
        ):
            assert old[0] == new[0]
            assert old[1] is new[1]
        assert now.pointers == self.pointers
        assert now.needs == self.needs
        assert all(map(torch.equal, now.bits, self.bits))
        assert all(old is new for old, new in zip(self.grads, now.grads, strict=True))
        for old, new in zip(self.grad_bits, now.grad_bits, strict=True):
            assert (old is None) == (new is None)
            assert old is None or torch.equal(old, new)
        assert now.generators == self.generators
