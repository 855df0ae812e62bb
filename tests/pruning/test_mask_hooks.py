"""Masks held in training: every optimizer, precision, clipping, and several processes."""

import copy
import multiprocessing

import numpy as np
import pytest
import torch
from held_net import batches, hooks_left, is_exact, make_masks, make_net, net_to_hold, train
from torch import nn
from torch.nn.utils import clip_grad_norm_, prune

from tensorcomp.pruning.mask_hooks import hold

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "ascent": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adam, foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamw, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rprop": lambda p: torch.optim.Rprop(p),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1, weight_decay=0.1),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_masks_hold_whatever_the_optimizer(kind):
    model = make_net()
    optimizer = OPTIMIZERS[kind](model.parameters())
    train(model, optimizer, 2)  # so that its state has been moving what is then pruned
    masks = make_masks(model)
    bias = model.first.bias.detach().clone()
    with hold(model, optimizer, masks) as held:
        assert is_exact(model, masks)
        train(model, optimizer, 5, masks)
        assert held is not None
    assert not torch.equal(bias, model.first.bias)
    assert hooks_left(model, optimizer) == 0
    train(model, optimizer, 1)
    assert not is_exact(model, masks)  # they have let go


def test_masks_hold_with_a_closure():
    model = make_net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, line_search_fn="strong_wolfe")
    masks = make_masks(model)
    ((x, y),) = batches(1)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        assert is_exact(model, masks)
        losses.append(float(loss.detach()))
        return loss

    with hold(model, optimizer, masks):
        for _ in range(3):
            optimizer.step(closure)
            assert is_exact(model, masks)
    assert losses[-1] < losses[0] / 2


def parametrised_twin(masks):
    twin = make_net()
    for name, mask in masks.items():
        module, parameter = name.split(".")
        prune.custom_from_mask(getattr(twin, module), parameter, torch.from_numpy(mask))
    return twin


def in_order(model):
    """The parameters in the order of their names, which the norm of all depends on."""
    named = {name.replace("_orig", ""): parameter for name, parameter in model.named_parameters()}
    return [named[name] for name in sorted(named)]


@pytest.mark.parametrize("norm", [None, 0.05])
@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize("kind", ["sgd", "momentum", "nesterov", "adam"])
def test_training_equals_that_of_masked_parameters(kind, norm, accumulated):
    """w ⊙ mask as torch.nn.utils.prune has it: the same network to the last bit, clipped or not."""
    model = make_net()
    masks = make_masks(model)
    twin = parametrised_twin(masks)
    norms = []
    optimizers = [OPTIMIZERS[kind](in_order(net)) for net in (model, twin)]
    hold(model, optimizers[0], masks)
    data = list(batches(6))
    for start in range(0, len(data), accumulated):
        for net, optimizer in zip((model, twin), optimizers, strict=True):
            optimizer.zero_grad()
            for x, y in data[start : start + accumulated]:
                nn.functional.cross_entropy(net(x), y).backward()
            if norm is not None:
                norms.append(float(clip_grad_norm_(in_order(net), norm)))
            optimizer.step()
    assert norms[::2] == norms[1::2]
    for name, mask in masks.items():
        module, parameter = name.split(".")
        own = getattr(model, module).get_parameter(parameter).detach()
        other = getattr(twin, module).get_parameter(f"{parameter}_orig").detach()
        kept = torch.from_numpy(mask)
        assert torch.equal(own[kept], other[kept])
    for name in ("first.bias", "norm.weight", "norm.running_var", "second.bias"):
        assert torch.equal(model.state_dict()[name], twin.state_dict()[name])


def test_clipping_does_not_count_what_is_pruned():
    model = make_net()
    masks = make_masks(model)
    hold(model, torch.optim.SGD(model.parameters(), lr=0.1), masks)
    ((x, y),) = batches(1)
    nn.functional.cross_entropy(model(x), y).backward()
    for name, mask in masks.items():
        gradient = dict(model.named_parameters())[name].grad
        assert not gradient[torch.from_numpy(~mask)].any()
        assert gradient[torch.from_numpy(mask)].any()


def test_gradients_that_are_changed_by_hand():
    """Noise, or a reduction among processes that is not exact, never reaches the optimizer."""
    model, optimizer, masks = net_to_hold(momentum=0.9)
    hold(model, optimizer, masks)
    ((x, y),) = batches(1)
    nn.functional.cross_entropy(model(x), y).backward()
    for parameter in model.parameters():
        parameter.grad += 1
    optimizer.step()
    assert is_exact(model, masks)
    for name, mask in masks.items():
        momentum = optimizer.state[model.get_parameter(name)]["momentum_buffer"]
        assert not momentum[torch.from_numpy(~mask)].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision_with_a_scaler_that_skips_a_step(dtype):
    model, optimizer, masks = net_to_hold(momentum=0.9, weight_decay=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)  # too much at first
    skipped = 0
    with hold(model, optimizer, masks):
        before = copy.deepcopy(model.state_dict())["first.weight"]
        for x, y in batches(60):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scale = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            skipped += scaler.get_scale() < scale
            assert is_exact(model, masks)
        assert not torch.equal(before, model.first.weight)
    assert skipped > 0 or dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_and_a_later_change(dtype):
    model = make_net().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    masks = make_masks(model)
    with hold(model, optimizer, masks):
        for x, y in batches(2):
            nn.functional.cross_entropy(model(x.to(dtype)), y).backward()
            optimizer.step()
            assert is_exact(model, masks)
        model.float()
        optimizer.state.clear()
        optimizer.zero_grad()
        train(model, optimizer, 2, masks)
    assert hooks_left(model, optimizer) == 0


def test_nan_at_a_pruned_place_becomes_zero():
    model = make_net()
    masks = make_masks(model)
    with torch.no_grad():
        model.first.weight[torch.from_numpy(~masks["first.weight"])] = torch.nan
        model.second.weight[torch.from_numpy(~masks["second.weight"])] = -0.0
    hold(model, torch.optim.SGD(model.parameters(), lr=0.1), masks)
    assert is_exact(model, masks)


def test_masks_may_be_tensors_and_are_not_shared():
    model = make_net()
    masks = {name: torch.from_numpy(mask) for name, mask in make_masks(model).items()}
    wanted = {name: mask.numpy().copy() for name, mask in masks.items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hold(model, optimizer, masks):
        for mask in masks.values():
            mask.logical_not_()
        train(model, optimizer, 2, wanted)


def test_two_passes_before_one_backward():
    """Masking before a pass must not look to autograd like a change of the weights."""
    model, optimizer, masks = net_to_hold()
    (x, y), (other, _) = batches(2)
    with hold(model, optimizer, masks):
        version = model.first.weight._version
        loss = nn.functional.cross_entropy(model(x), y)
        model(other)
        (loss + model(other).square().mean()).backward()
        assert model.first.weight._version == version
        optimizer.step()
        assert is_exact(model, masks)


def test_gradients_of_gradients():
    """A penalty on gradients, back through it: as with masked parameters."""
    model, x = make_net(), next(batches(1))[0]
    masks = make_masks(model)
    twin = parametrised_twin(masks)
    hold(model, torch.optim.SGD(model.parameters(), lr=0.1), masks)
    found = []
    for net in (model, twin):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        slope.square().sum().backward()
        found.append(in_order(net))
    for own, other in zip(*found, strict=True):
        if own.grad is not None:
            torch.testing.assert_close(own.grad, other.grad, rtol=0, atol=0)


def _train_in_parallel(rank, folder, results):
    """Train with masks in one of two processes; put what was found on a queue."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    try:
        found = {}
        for case, (view, wrapped_first) in {
            "copied": (False, True),
            "views": (True, True),
            "held before": (True, False),
        }.items():
            model = make_net()
            masks = make_masks(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
            held = None if wrapped_first else hold(model, optimizer, masks)
            parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=view)
            held = held or hold(parallel, optimizer, masks)
            exact = clean = True
            for x, y in batches(4, seed=rank):
                optimizer.zero_grad()
                with parallel.no_sync():
                    nn.functional.cross_entropy(parallel(x + 1), y).backward()
                nn.functional.cross_entropy(parallel(x), y).backward()
                clean &= not any(
                    model.get_parameter(name).grad[torch.from_numpy(~mask)].any()
                    for name, mask in masks.items()
                )
                clip_grad_norm_(parallel.parameters(), 1.0)
                optimizer.step()
                exact &= is_exact(model, masks)
            keys = list(parallel.state_dict())
            held.release()
            left = hooks_left(model, optimizer)
            weights = np.concatenate(
                [p.detach().numpy().ravel() for p in model.parameters()]
            ).tobytes()
            found[case] = (exact, clean, left, keys, weights)
        results.put(found)
    finally:
        torch.distributed.destroy_process_group()


def test_distributed_data_parallel(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=_train_in_parallel, args=(rank, str(tmp_path), results))
        for rank in range(2)
    ]
    for worker in workers:
        worker.start()
    try:
        first, second = (results.get(timeout=120) for _ in workers)
        for worker in workers:
            worker.join(timeout=30)
    finally:
        for worker in workers:
            worker.kill()
    assert all(worker.exitcode == 0 for worker in workers)
    expected = [f"module.{name}" for name in make_net().state_dict()]
    for case, (exact, clean, left, keys, weights) in first.items():
        assert (exact, clean, left, keys) == (True, True, 0, expected), case
        assert second[case][4] == weights  # both processes have the same weights
