"""A small network, its masks, and what holding them is checked by."""

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 3)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


def make_net(seed=0):
    torch.manual_seed(seed)
    return Net()


def make_masks(model, seed=0, names=("first.weight", "second.weight")):
    random = np.random.default_rng(seed)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return {name: random.random(shapes[name]) < 0.4 for name in names}


def net_to_hold(**options):
    """Return a network, its optimizer, SGD with these options, and masks to hold."""
    model = make_net()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, **options), make_masks(model)


def batches(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield (
            torch.randn(10, 6, generator=generator),
            torch.randint(3, (10,), generator=generator),
        )


def is_exact(model, masks):
    """Every pruned weight is +0.0, and most kept ones are not."""
    state = dict(model.named_parameters())
    for name, mask in masks.items():
        weight = state[name].detach().float().numpy()
        pruned = weight[~np.asarray(mask)]
        if pruned.view(np.uint32).any() or not weight[np.asarray(mask)].any():
            return False
    return True


def train(model, optimizer, count=4, masks=None, norm=None):
    for x, y in batches(count):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if norm is not None:
            clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
        if masks is not None:
            assert is_exact(model, masks)


def hooks_left(model, optimizer):
    of_model = [
        hooks
        for module in model.modules()
        for hooks in (
            module._forward_pre_hooks,
            module._forward_pre_hooks_with_kwargs,
            module._forward_hooks,
            module._state_dict_pre_hooks,
            module._state_dict_hooks,
            module._load_state_dict_post_hooks,
            module._load_state_dict_pre_hooks,
        )
    ]
    of_parameters = [
        hooks
        for parameter in model.parameters()
        for hooks in (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
    ]
    of_optimizer = [optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks]
    return sum(len(hooks or ()) for hooks in of_model + of_parameters + of_optimizer)
