"""Masks held by models: loaded, copied, saved, rebuilt, tied, and let go."""

import copy
import io
import pickle
import weakref

import numpy as np
import pytest
import torch
from held_net import Net, batches, hooks_left, is_exact, make_masks, make_net, net_to_hold, train
from torch import nn

from tensorcomp.errors import PruningError
from tensorcomp.pruning.mask_hooks import hold, release


def test_loading_and_manual_edits():
    model, optimizer, masks = net_to_hold()
    dense = copy.deepcopy(make_net(7).state_dict())
    hold(model, optimizer, masks)
    model.load_state_dict(dense)
    assert is_exact(model, masks)
    kept = torch.from_numpy(masks["first.weight"])
    assert torch.equal(model.first.weight[kept], dense["first.weight"][kept])
    assert dense["first.weight"].all()  # what was loaded is not changed
    model.load_state_dict(copy.deepcopy(dense), assign=True)
    assert is_exact(model, masks)
    with torch.no_grad():
        model.first.weight.fill_(1)
    model(torch.ones(2, 6))
    assert is_exact(model, {"first.weight": masks["first.weight"]})
    model.first.weight.data.fill_(1)
    saved = model.state_dict()
    assert not saved["first.weight"][~kept].any()


def test_weights_that_are_replaced_are_held():
    model = make_net()
    masks = make_masks(model)
    hold(model, torch.optim.SGD(model.parameters(), lr=0.1), masks)
    model.first.weight = nn.Parameter(torch.ones(8, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for x, y in batches(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        assert is_exact(model, masks)
    model.first = nn.Linear(6, 9)
    with pytest.raises(PruningError, match=r"'first.weight' is held.*\[8, 6\].*\[9, 6\]"):
        model(torch.ones(2, 6))
    release(model)


def test_frozen_weights_are_held_when_they_thaw():
    model = make_net()
    model.first.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    masks = make_masks(model)
    with hold(model, optimizer, masks):
        assert not model.first.weight.requires_grad
        assert is_exact(model, masks)
        train(model, optimizer, 1, masks)
        model.first.requires_grad_(True)
        ((x, y),) = batches(1)
        nn.functional.cross_entropy(model(x), y).backward()
        assert not model.first.weight.grad[torch.from_numpy(~masks["first.weight"])].any()
        optimizer.step()
        assert is_exact(model, masks)
    assert hooks_left(model, optimizer) == 0


def test_nothing_is_added_to_the_state_dict():
    model = make_net()
    keys = list(model.state_dict())
    attributes = set(vars(model)), set(vars(model.first))
    buffers = len(list(model.buffers()))
    held = hold(model, torch.optim.SGD(model.parameters(), lr=0.1), make_masks(model))
    assert list(model.state_dict()) == keys
    assert len(list(model.buffers())) == buffers
    assert (set(vars(model)), set(vars(model.first))) == attributes
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    make_net(3).load_state_dict(torch.load(file, weights_only=True))
    held.release()
    held.release()  # again, which is no error
    assert (set(vars(model)), set(vars(model.first))) == attributes


def test_release_leaves_no_reference():
    model = make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = hold(model, optimizer, make_masks(model))
    gone = weakref.ref(next(iter(model._forward_pre_hooks.values())).__self__)
    held.release()
    del held
    assert gone() is None


def test_an_error_in_the_block_lets_go():
    model = make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(KeyError), hold(model, optimizer, make_masks(model)):
        raise KeyError
    assert hooks_left(model, optimizer) == 0


def test_a_copied_model_holds_its_masks():
    model, optimizer, masks = net_to_hold(momentum=0.9)
    held = hold(model, optimizer, masks)
    train(model, optimizer, 2)
    duplicate = copy.deepcopy(model)
    held.release()
    own = torch.optim.Adam(duplicate.parameters(), lr=0.1, weight_decay=0.1)
    train(duplicate, own, 3, masks)  # gradients are masked from its first pass on
    with torch.no_grad():
        duplicate.first.weight.fill_(3)
    assert not duplicate.state_dict()["first.weight"][
        torch.from_numpy(~masks["first.weight"])
    ].any()
    train(model, optimizer, 1)
    assert not is_exact(model, masks)  # the original has let go, the copy has not
    assert is_exact(duplicate, masks)
    release(duplicate)
    assert hooks_left(duplicate, own) == 0


def test_a_model_copied_with_its_optimizer():
    """Torch drops an optimizer's hooks: the copy is exact when it runs and when it is saved."""
    model = make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, 2)
    masks = make_masks(model)
    hold(model, optimizer, masks)  # its momentum still moves what is pruned now
    duplicate, own = copy.deepcopy((model, optimizer))
    train(duplicate, own, 3)
    assert not is_exact(duplicate, masks)
    file = io.BytesIO()
    torch.save(duplicate.state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    assert not any(saved[name][torch.from_numpy(~mask)].any() for name, mask in masks.items())
    duplicate(torch.ones(2, 6))
    assert is_exact(duplicate, masks)


@pytest.mark.parametrize("duplicated", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_hold_copied_with_its_model_and_optimizer(duplicated):
    model = make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, 2)
    masks = make_masks(model)
    held = hold(model, optimizer, masks)
    other, own, copied = duplicated((model, optimizer, held))
    train(other, own, 3, masks)
    copied.release()
    assert hooks_left(other, own) == 0
    train(model, optimizer, 3, masks)
    held.release()
    assert hooks_left(model, optimizer) == 0
    copy.deepcopy(held).release()


def test_a_model_saved_whole_holds_its_masks():
    model, optimizer, masks = net_to_hold()
    hold(model, optimizer, masks)
    train(model, optimizer, 1)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert is_exact(loaded, masks)
    train(loaded, torch.optim.AdamW(loaded.parameters(), lr=0.1), 2, masks)
    release(loaded)


def test_the_optimizer_resumes_from_its_state_dict():
    model = make_net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    masks = make_masks(model)
    hold(model, optimizer, masks)
    train(model, optimizer, 2)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, 3)
    resumed = make_net(9)
    again = torch.optim.Adam(resumed.parameters(), lr=0.01)
    resumed.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    hold(resumed, again, masks)
    train(resumed, again, 3, masks)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x))


@pytest.mark.parametrize(
    "names", [["embed.weight"], ["head.weight"], ["embed.weight", "head.weight"]]
)
def test_a_tied_weight_is_held_once(names):
    torch.manual_seed(0)
    model = Tied()
    mask = np.random.default_rng(0).random((5, 4)) < 0.5
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    with hold(model, optimizer, dict.fromkeys(names, mask)):
        assert len(model.embed.weight._post_accumulate_grad_hooks) == 1
        for _ in range(3):
            model(torch.arange(5)).square().mean().backward()
            optimizer.step()
            assert is_exact(model, {"embed.weight": mask})
    assert hooks_left(model, optimizer) == 0
    with pytest.raises(PruningError, match="a tied weight with unlike masks"):
        hold(model, optimizer, {"embed.weight": mask, "head.weight": ~mask})


def test_sparse_gradients():
    torch.manual_seed(0)
    model = nn.Embedding(6, 3, sparse=True)
    mask = np.random.default_rng(0).random((6, 3)) < 0.5
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    with hold(model, optimizer, {"weight": mask}):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.tensor([0, 1, 1, 4])).square().sum().backward()
            gradient = model.weight.grad
            assert gradient.is_sparse
            assert not gradient.to_dense()[torch.from_numpy(~mask)].any()
            optimizer.step()
            assert is_exact(model, {"weight": mask})


def test_functional_calls_keep_the_tensors_that_they_are_given():
    model = make_net().eval()
    masks = make_masks(model)
    hold(model, torch.optim.SGD(model.parameters(), lr=0.1), masks)
    x = torch.ones(2, 6)
    ones = {name: torch.ones_like(tensor) for name, tensor in model.named_parameters()}
    torch.func.functional_call(model, ones, (x,))
    assert all(tensor.all() for tensor in ones.values())
    stacked = {name: torch.stack([tensor, tensor]).detach() for name, tensor in ones.items()}
    vmapped = torch.func.vmap(
        lambda parameters: torch.func.functional_call(model, parameters, (x,))
    )
    assert vmapped(stacked).shape == (2, 2, 3)
    own = dict(model.named_parameters())
    assert torch.equal(torch.func.functional_call(model, own, (x,)), model(x))
    assert is_exact(model, masks)


def test_inference_mode_and_wrappers_of_one_process():
    model = nn.DataParallel(make_net())
    masks = make_masks(model.module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with hold(model, optimizer, masks):
        with torch.inference_mode():
            model(torch.ones(2, 6))
        train(model, optimizer, 2)
        assert is_exact(model.module, masks)
        averaged = torch.optim.swa_utils.AveragedModel(model.module)
        averaged.update_parameters(model.module)
        assert is_exact(averaged.module, masks)
    assert hooks_left(model, optimizer) == 0


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({}, "no masks to hold"),
        (
            {"third.weight": np.ones((8, 6), bool)},
            "is for 'third.weight', which is not a parameter",
        ),
        (
            {"norm.running_mean": np.ones(8, bool)},
            "is for 'norm.running_mean', which is not a parameter",
        ),
        ({"first": np.ones((8, 6), bool)}, "is for 'first', which is not a parameter"),
        (
            {"module.first.weight": np.ones((8, 6), bool)},
            "is for 'module.first.weight', which is not a parameter",
        ),
        ({"first.weight": np.ones((6, 8), bool)}, r"to be bool \[8, 6\], .* got bool \[6, 8\]"),
        ({"first.weight": np.ones((8, 6), np.float32)}, r"to be bool .* got float32 \[8, 6\]"),
        ({"first.weight": torch.ones(8, 6)}, r"to be bool .* got torch.float32 \[8, 6\]"),
        ({"first.weight": "all"}, "to be an array, got a str"),
    ],
)
def test_bad_masks_change_nothing(masks, message):
    model = make_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = copy.deepcopy(model.state_dict())
    good = {"second.weight": np.zeros((3, 8), bool)} if masks else {}
    with pytest.raises(PruningError, match=message) as error:
        hold(model, optimizer, {**good, **masks})
    assert "\n" not in str(error.value)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert hooks_left(model, optimizer) == 0


def test_other_refusals():
    model, optimizer, masks = net_to_hold()
    with pytest.raises(PruningError, match="expected a torch optimizer, got a Net"):
        hold(model, model, masks)
    with pytest.raises(PruningError, match="trains none of the masked weights"):
        hold(make_net(), optimizer, masks)
    with pytest.raises(PruningError, match="holds no masks"):
        release(model)
    with hold(model, optimizer, masks):
        for again in (masks, make_masks(model, names=["norm.weight"])):
            with pytest.raises(PruningError, match="held already"):
                hold(model, optimizer, again)
        with pytest.raises(PruningError, match="'weight' is held already, as part of another"):
            hold(model.first, optimizer, {"weight": masks["first.weight"]})
        with pytest.raises(PruningError, match="the model is held already"):
            hold(nn.Sequential(model), optimizer, {"0.norm.weight": np.zeros(8, bool)})
        assert hooks_left(model, optimizer) == 3 + 2 + 2
    with hold(model.first, optimizer, {"weight": masks["first.weight"]}):
        train(model, optimizer, 1, {"first.weight": masks["first.weight"]})
    with torch.device("meta"):
        empty = Net()
    with pytest.raises(
        PruningError, match=r"parameter 'first.weight' is on the meta device and has no values"
    ):
        hold(empty, torch.optim.SGD(empty.parameters(), lr=0.1), masks)
