"""tensorcomp.torch saves, refuses and loads what safetensors.torch does."""

import copy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import tensorcomp
import tensorcomp.torch

PAIRS = getattr(torch, "float4_e2m1fn_x2", None)
NAMES = ("uint16", "uint32", "uint64", "complex64", "bool", "bfloat16", "float8_e4m3fn")


def sparse() -> torch.Tensor:
    return torch.eye(3).to_sparse()


def shared() -> dict[str, torch.Tensor]:
    whole = torch.arange(6.0).reshape(2, 3)
    return {"a": whole, "b": whole[1:]}


def nested() -> dict[str, torch.Tensor]:
    whole = torch.arange(30.0)
    return {"a": whole[:20], "b": whole[2:4], "c": whole[10:15]}


REFUSED: dict[str, Any] = {
    "no dict": lambda: [("a", torch.zeros(2))],
    "an array": lambda: {"a": torch.zeros(2).numpy()},
    "a list": lambda: {"a": [1.0]},
    "a dict": lambda: {"a": {"b": torch.zeros(2)}},
    "sparse": lambda: {"a": sparse()},
    "transposed": lambda: {"a": torch.zeros(2, 3).t()},
    "expanded": lambda: {"a": torch.zeros(5).expand(3, 5)},
    "every second": lambda: {"a": torch.zeros(10)[::2]},
    "meta": lambda: {"a": torch.zeros(3, device="meta")},
    "shared": shared,
    "nested": nested,
    "one twice": lambda: dict.fromkeys("ab", torch.zeros(4)),
    "a name": lambda: {1: torch.zeros(2)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_theirs_refuses_is_refused_by_the_same_exception(name, tmp_path):
    given = REFUSED[name]()
    with pytest.raises(Exception) as wanted:
        safetensors.torch.save(given)
    path = tmp_path / "x.safetensors"
    for call in (tensorcomp.torch.save, lambda tensors: tensorcomp.torch.save_file(tensors, path)):
        with pytest.raises(wanted.type):
            call(given)
    assert not path.exists()


TAKEN: dict[str, Any] = {
    "parts": lambda: {"a": torch.arange(10.0)[:4], "b": torch.arange(10.0)[4:]},
    "disjoint parts of one": lambda: dict(zip("ab", torch.arange(8.0).split(4), strict=True)),
    "empty ones of one": lambda: dict.fromkeys("ab", torch.zeros(0, 3)),
    "a parameter": lambda: {"a": torch.nn.Parameter(torch.ones(3))},
    "one row transposed": lambda: {"a": torch.zeros(1, 4).t()},
    "nothing": dict,
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_theirs_takes_is_taken(name):
    given = TAKEN[name]()
    wanted = safetensors.torch.load(safetensors.torch.save(given))
    for found in (
        tensorcomp.torch.load(tensorcomp.torch.save(given)),
        tensorcomp.torch.load(safetensors.torch.save(given)),
    ):
        assert sorted(found) == sorted(wanted)
        assert all(torch.equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_goes_both_ways(name, tmp_path):
    dtype = getattr(torch, name)
    raw = torch.arange(32, dtype=torch.uint8) % (2 if name == "bool" else 100)
    given = {"a": raw.view(dtype).reshape(2, -1)}
    path = tmp_path / "x.tc.safetensors"
    tensorcomp.torch.save_file(given, path)
    assert tensorcomp.decompress(path).read_bytes() == safetensors.torch.save(given)
    for source in (path, path.with_name("x.safetensors")):
        found = tensorcomp.torch.load_file(source)["a"]
        assert (found.dtype, found.shape) == (dtype, given["a"].shape)
        assert torch.equal(found.view(torch.uint8), given["a"].view(torch.uint8))


@pytest.mark.skipif(PAIRS is None, reason="this torch lacks them")
def test_pairs_of_floats_go_both_ways(tmp_path):
    raw = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4)
    given = {"a": raw.view(PAIRS), "b": torch.zeros(0, 2, dtype=torch.uint8).view(PAIRS)}
    path = tmp_path / "x.tc.safetensors"
    tensorcomp.torch.save_file(given, path)
    assert tensorcomp.decompress(path).read_bytes() == safetensors.torch.save(given)
    for source in (path, path.with_name("x.safetensors")):
        for name, found in tensorcomp.torch.load_file(source).items():
            assert (found.dtype, found.shape) == (PAIRS, given[name].shape)
            assert torch.equal(found.view(torch.uint8), given[name].view(torch.uint8))
    lazily = {"a": raw.transpose(0, 2).view(PAIRS)}  # tensorcomp.save takes any strides
    found = tensorcomp.load(tensorcomp.save(lazily), "pt")["a"]
    assert torch.equal(found.view(torch.uint8), raw.transpose(0, 2))


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(20, 30)
        self.b = self.a


class Untied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(20, 30)
        self.b = copy.deepcopy(self.a)


def equal(left: torch.nn.Module, right: torch.nn.Module) -> bool:
    states = left.state_dict(), right.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0] | states[1])


FUNCTIONS = {"theirs": safetensors.torch, "ours": tensorcomp.torch}


@pytest.mark.parametrize("kind", [Tied, Untied])
@pytest.mark.parametrize("saved", FUNCTIONS)
def test_a_model_loads_whoever_saved_it(kind, saved, tmp_path):
    model, other = kind(), kind()
    path, metadata = tmp_path / "x.safetensors", {"b.bias": "mine"}
    FUNCTIONS[saved].save_model(model, str(path), metadata)
    if saved == "ours":
        assert metadata == {"b.bias": "mine"}  # as it was given
    missing, unexpected = tensorcomp.torch.load_model(other, path)
    assert not missing
    assert not unexpected
    assert equal(model, other)
    with tensorcomp.safe_open(path) as file:
        wanted = {"b.weight": "a.weight"} if kind is Tied else {}
        assert file.metadata() == wanted | {"b.bias": "mine"}
        assert len(file.keys()) == (2 if kind is Tied else 4)


@pytest.mark.parametrize("loads", FUNCTIONS)
def test_any_name_of_a_shared_tensor_will_do(loads, tmp_path):
    model, other = Tied(), Tied()
    path = tmp_path / "x.safetensors"
    state = model.state_dict()
    safetensors.torch.save_file({"b.weight": state["b.weight"], "a.bias": state["a.bias"]}, path)
    FUNCTIONS[loads].load_model(other, path)
    assert equal(model, other)


@pytest.mark.parametrize("loads", FUNCTIONS)
def test_names_that_do_not_agree_are_refused(loads, tmp_path):
    load_model = FUNCTIONS[loads].load_model
    tied, untied = tmp_path / "tied.safetensors", tmp_path / "untied.safetensors"
    safetensors.torch.save_model(Tied(), str(tied))
    different = Untied()
    torch.nn.init.normal_(different.b.weight)
    torch.nn.init.normal_(different.b.bias)
    safetensors.torch.save_model(different, str(untied))
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "b.bias", "b.weight"'):
        load_model(Untied(), tied)
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in .*: "b.bias", "b.weight"'):
        load_model(Tied(), untied)
    missing, unexpected = load_model(Untied(), tied, strict=False)
    assert sorted(missing) == ["b.bias", "b.weight"]
    missing, unexpected = load_model(Tied(), untied, False)
    assert sorted(unexpected) == ["b.bias", "b.weight"]


def test_a_compressed_torch_file_of_tied_names_loads_into_a_tied_model(tmp_path):
    model, other = Tied(), Tied()
    path = tmp_path / "x.pt"
    torch.save(model.state_dict(), path)
    assert tensorcomp.torch.load_model(other, tensorcomp.compress(path).path) == ([], [])
    assert equal(model, other)


def test_a_model_that_is_not_contiguous(tmp_path):
    model = Untied()
    model.a.weight = torch.nn.Parameter(torch.randn(20, 30).t())
    path = tmp_path / "x.safetensors"
    for functions in FUNCTIONS.values():
        with pytest.raises(ValueError, match=r"use save_model\(..., force_contiguous=True\)"):
            functions.save_model(model, path, force_contiguous=False)
    tensorcomp.torch.save_model(model, path, effort="fast")
    other = Untied()
    tensorcomp.torch.load_model(other, path, backend="pread")
    assert equal(model, other)


def test_parts_of_which_none_is_whole_are_refused(tmp_path):
    class Parts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.arange(30.0)
            self.first = torch.nn.Parameter(whole[:20])
            self.last = torch.nn.Parameter(whole[10:])

    for functions in FUNCTIONS.values():
        with pytest.raises(RuntimeError):
            functions.save_model(Parts(), str(tmp_path / "x.safetensors"))


def test_the_caller_may_lose_what_he_names(tmp_path):
    path: Path = tmp_path / "x.tc.safetensors"
    given = {"mlp.weight": torch.randn(200, 300)}
    tensorcomp.torch.save_file(given, path, budget=tensorcomp.Budget(min_snr=30))
    found = tensorcomp.torch.load_file(path)["mlp.weight"]
    assert 0 < (found - given["mlp.weight"]).norm() / given["mlp.weight"].norm() <= 10**-1.5
