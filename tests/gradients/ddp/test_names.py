"""States of gradients belong to the model's own names, whatever wraps it."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import ranks
from given_gradients import Case, Given, loaded, saved, steps
from torch import nn

from tensorcomp._names import clean_name, clean_names
from tensorcomp.gradients import WorkerCompression, decompress

WRAPPED = "module._orig_mod."  # as states named parameters before


class _Wrapped(nn.Module):
    """Holds a module under an attribute, as `torch.compile` and others do."""

    def __init__(self, module: nn.Module, attribute: str) -> None:
        super().__init__()
        self.inner = attribute
        setattr(self, attribute, module)

    def forward(self, *given: object) -> object:
        return getattr(self, self.inner)(*given)


def _within(attribute: str) -> Any:
    return partial(_Wrapped, attribute=attribute)


WRAPPERS = {name: _within(name) for name in ("_orig_mod", "_checkpoint_wrapped_module", "module")}
WRAPPERS["none"] = None


@pytest.mark.parametrize(
    ("compressor", "before", "after"),
    [
        ("topk(0.02)", "none", "_orig_mod"),
        ("sign", "_orig_mod", "module"),
        ("qsgd(4)", "_checkpoint_wrapped_module", "none"),
    ],
)
def test_a_state_goes_on_under_another_wrapper(compressor, before, after):
    case = Case(compressor, range(5), wrap=WRAPPERS[before], keep=(2,))
    whole = ranks.run(steps, case)
    states = tuple(outcome.saved[2] for outcome in whole)
    assert all(set(loaded(one)["states"]) <= {f"p{i}" for i in range(9)} for one in states)
    later = replace(case, steps=range(3, 5), load=states, wrap=WRAPPERS[after])
    for first, second in zip(whole, ranks.run(steps, later), strict=True):
        assert second.hashes == first.hashes[3:]


@pytest.mark.parametrize(("compressor", "mode"), [("topk(0.02)", "exact"), ("int2", "mean")])
def test_a_state_saved_by_wrapped_names_still_loads(compressor, mode):
    case = Case(compressor, range(3), keep=(2,), mode=mode)
    states = [loaded(outcome.saved[2]) for outcome in ranks.run(steps, case)]
    for state in states:
        for key in ("states", "means", "choices"):
            state[key] = {WRAPPED + name: one for name, one in state[key].items()}
        state["units"] = [[WRAPPED + name for name in names] for names in state["units"]]
    later = replace(case, steps=range(3, 5))
    new = tuple(outcome.saved[2] for outcome in ranks.run(steps, case))
    old = tuple(map(saved, states))
    first, second = (ranks.run(steps, replace(later, load=load)) for load in (new, old))
    assert [one.hashes for one in first] == [one.hashes for one in second]


def test_only_the_names_of_wrappers_are_left_out():
    assert clean_name("module.model._orig_mod.model.module.weight") == "model.model.module.weight"
    assert clean_name("_orig_mod") == ""
    names = ["module.a", "a", "module._orig_mod.b"]
    assert clean_names(names) == {"module.a": "module.a", "a": "a", "module._orig_mod.b": "b"}


@pytest.mark.parametrize("text", ["topk(0.1)", "randomk(0.1)", "powersgd(2)"])
def test_a_worker_goes_on_under_another_wrapper(text):
    gradient = next(Given(((64, 65),)).parameters()).detach().normal_().numpy()
    first, second = WorkerCompression(text), WorkerCompression(text)
    message = first.compress({"w": gradient})
    second.load_state_dict(first.state_dict())
    assert list(decompress(second.compress({"_orig_mod.w": gradient}))) == ["_orig_mod.w"]
    third = WorkerCompression(text)
    state = first.state_dict()
    state["tensors"] = {f"_orig_mod.{n}": one for n, one in state["tensors"].items()}
    third.load_state_dict(state)
    after = first.compress({"w": gradient})
    assert third.compress({"w": gradient}) == after != message
