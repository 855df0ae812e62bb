"""Backward passes whose gradients are thrown away: a discriminator's in its generator's step."""

from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
import ranks
import torch
from given_gradients import gradients_of, hashed
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.gradients import compress_gradients


def _network(*sizes: int) -> DistributedDataParallel:
    layers = [nn.Linear(m, n) for m, n in pairwise(sizes)]
    return DistributedDataParallel(nn.Sequential(layers[0], nn.Tanh(), *layers[1:]))


def _train(way: str, compressor: str) -> tuple[list[str], list[int], Any]:
    """Train both networks; return the discriminator's gradients, both steps, and its state."""
    torch.manual_seed(0)
    generator, discriminator = _network(8, 70, 64), _network(64, 70, 1)
    torch.manual_seed(1 + distributed.get_rank())
    optimizers = [
        torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.5)
        for one in (generator, discriminator)
    ]
    judge, seen = nn.BCEWithLogitsLoss(), []
    with (
        compress_gradients(generator, compressor) as own,
        compress_gradients(discriminator, compressor) as other,
    ):
        for _ in range(4):
            made = generator(torch.randn(8, 8))
            discriminator.zero_grad()
            both = discriminator(torch.cat([torch.randn(8, 64), made.detach()]))
            judge(both, torch.cat([torch.ones(8, 1), torch.zeros(8, 1)])).backward()
            seen.append(hashed(gradients_of(discriminator)))
            optimizers[1].step()
            generator.zero_grad()
            with ExitStack() as stack:
                judged: nn.Module = discriminator
                if way == "paused":
                    stack.enter_context(other.paused())
                elif way == "no_sync":
                    stack.enter_context(discriminator.no_sync())
                else:  # without the hook
                    judged = discriminator.module.requires_grad_(False)
                judge(judged(made), torch.ones(8, 1)).backward()
                discriminator.module.requires_grad_(True)
            optimizers[0].step()
        state = other.state_dict()
        steps = [own.steps, other.steps]
    fields = {
        f"{name} {field}": value.numpy()
        for name, one in state["states"].items()
        for field, value in one.items()
        if isinstance(value, torch.Tensor)
    }
    return seen, steps, hashed(fields)


@pytest.mark.parametrize("way", ["paused", "no_sync"])
@pytest.mark.parametrize("compressor", ["topk(0.05)", "powersgd(2)"])
def test_the_generators_step_leaves_the_discriminators_residuals(way, compressor):
    expected = ranks.run(_train, "alone", compressor)
    found = ranks.run(_train, way, compressor)
    assert found == expected
    assert all(steps == [4, 4] for _, steps, _ in found)


def _paused_alone() -> tuple[float, int]:
    model = DistributedDataParallel(nn.Linear(4, 1, bias=False))
    with compress_gradients(model, "topk(0.25)") as compression:
        with compression.paused():
            model(torch.full((1, 4), 1.0 + distributed.get_rank())).sum().backward()
        paused = float(model.module.weight.grad.sum())
        model.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        return paused, compression.steps


def test_paused_gradients_are_the_uncompressed_mean():
    assert ranks.run(_paused_alone) == [(6.0, 1)] * 2
