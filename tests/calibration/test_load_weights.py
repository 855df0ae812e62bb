"""Weights from files of every kind into a model, strictly."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import tensorcomp
from tensorcomp.calibration.load_weights import load_weights
from tensorcomp.errors import CheckpointError
from tensorcomp.io.locations import location

torch.set_num_threads(1)


def make_net(seed, dtype=torch.float32):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    net(torch.randn(8, 6))
    return net.to(dtype)


def as_safetensors(state, path):
    save_file(state, path)


def as_torch(state, path):
    torch.save(state, path)


def as_nested_torch(state, path):
    torch.save({"step": 3, "model": state}, path)


def as_compressed(state, path):
    tensorcomp.save_file(state, path)


def as_npz(state, path):
    with path.open("wb") as file:
        np.savez(file, **{name: tensor.numpy() for name, tensor in state.items()})


@pytest.mark.parametrize(
    "write", [as_safetensors, as_torch, as_nested_torch, as_compressed, as_npz]
)
@pytest.mark.parametrize("wrap", [lambda net: net, nn.DataParallel])
def test_every_kind_of_file(tmp_path, write, wrap):
    source, target = make_net(0), make_net(1)
    write(source.state_dict(), tmp_path / "weights")
    load_weights(wrap(target), tmp_path / "weights")
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor)


@pytest.mark.parametrize("write", [as_safetensors, as_nested_torch, as_npz])
@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod.net."])
def test_names_that_wrappers_and_prefixes_tell_apart(tmp_path, write, prefix):
    source, target = make_net(0), make_net(1)
    write(source.state_dict(prefix=prefix), tmp_path / "far")
    load_weights(target, tmp_path / "far")
    write(source.state_dict(), tmp_path / "near")
    outer = nn.ModuleDict({"model": nn.ModuleDict({"_orig_mod": make_net(2)})})
    load_weights(outer, tmp_path / "near")
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor)
        assert torch.equal(outer.state_dict()[f"model._orig_mod.{name}"], tensor)


def test_a_model_that_fits_two_parts_of_a_file_is_refused(tmp_path):
    save_file(
        make_net(0).state_dict(prefix="a.") | make_net(1).state_dict(prefix="b."), tmp_path / "w"
    )
    with pytest.raises(CheckpointError, match=r"got several for '0.weight', such as 'a.0.weight'"):
        load_weights(make_net(2), tmp_path / "w")


def test_the_model_keeps_its_type(tmp_path):
    source, target = make_net(0, torch.bfloat16), make_net(1)
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    load_weights(target, tmp_path / "w.safetensors")
    assert target[0].weight.dtype == torch.float32
    assert torch.equal(target[0].weight, source[0].weight.float())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight


def test_of_tied_tensors_one_is_enough(tmp_path):
    source, target = Tied(), Tied()
    state = source.state_dict()
    del state["first.weight"]
    save_file(state, tmp_path / "w.safetensors")
    load_weights(target, tmp_path / "w.safetensors")
    assert torch.equal(target.first.weight, source.first.weight)
    assert target.first.weight is target.second.weight
    assert torch.equal(target.second.bias, source.second.bias)


def lacks(state):
    del state["2.weight"], state["2.bias"]


def has_more(state):
    state["4.weight"] = torch.ones(2)


def has_both(state):
    state["net.2.bias"] = state.pop("2.bias")


def has_another_shape(state):
    state["2.weight"] = torch.ones(3, 5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lacks, "does not fit the model: it lacks '2.weight', '2.bias'"),
        (has_more, "does not fit the model: it has '4.weight' besides"),
        (has_both, "it lacks '2.bias' and has 'net.2.bias' besides"),
        (has_another_shape, "'2.weight' has the shape [3, 5], the model's [3, 4]"),
    ],
)
def test_a_file_that_does_not_fit_changes_nothing(tmp_path, change, words):
    source, target = make_net(0), make_net(1)
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    state = source.state_dict()
    change(state)
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(CheckpointError) as caught:
        load_weights(target, tmp_path / "w.safetensors")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    for name, tensor in before.items():
        assert torch.equal(target.state_dict()[name], tensor)


@pytest.mark.parametrize("thing", [[torch.ones(2)], {"step": 3}, {"model": {"lr": 0.1}}])
def test_a_torch_file_without_a_state_dict(tmp_path, thing):
    torch.save(thing, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="holds no state dict of tensors"):
        load_weights(make_net(0), tmp_path / "w.pt")


def test_a_file_of_a_store(tmp_path):
    wanted, model = nn.Linear(3, 2), nn.Linear(3, 2)
    torch.save(wanted.state_dict(), tmp_path / "model.pt")
    place = location("memory://weights/model.pt")
    place.write_bytes((tmp_path / "model.pt").read_bytes())
    load_weights(model, place)
    assert torch.equal(model.weight, wanted.weight)
