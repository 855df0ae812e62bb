"""Every function of safetensors takes its arguments here, by position and by name."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import safetensors
import safetensors.numpy
import safetensors.torch

import tensorcomp
import tensorcomp.numpy
import tensorcomp.torch

MODULES = {
    "numpy": (safetensors.numpy, tensorcomp.numpy),
    "torch": (safetensors.torch, tensorcomp.torch),
}
FUNCTIONS = ("load", "load_file", "save", "save_file", "save_model", "load_model")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MORE = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


def pairs() -> Iterator[Any]:
    for module, (theirs, ours) in MODULES.items():
        for name in FUNCTIONS:
            if hasattr(theirs, name):
                call = getattr(theirs, name), getattr(ours, name)
                yield pytest.param(*call, id=f"{module}.{name}")
    yield pytest.param(safetensors.safe_open, tensorcomp.safe_open, id="safe_open")
    for name, method in inspect.getmembers(safetensors.safe_open, callable):
        if not name.startswith("_"):
            ours = getattr(tensorcomp.safe_open, name)
            yield pytest.param(method, ours, id=f"safe_open.{name}")


@pytest.mark.parametrize(("theirs", "ours"), [*pairs()])
def test_parameters_agree(theirs: Callable[..., Any], ours: Callable[..., Any]):
    wanted = dict(inspect.signature(theirs).parameters)
    found = dict(inspect.signature(ours).parameters)
    positional = [name for name, parameter in found.items() if parameter.kind in _POSITIONAL]
    assert positional == [name for name in wanted if wanted[name].kind in _POSITIONAL]
    for name, parameter in wanted.items():
        assert name in found
        assert found[name].kind == parameter.kind or name == "self"
        if parameter.default not in (inspect.Parameter.empty, ...):  # not shown by the binary
            assert found[name].default == parameter.default, name
        elif parameter.default is ...:
            assert found[name].default is not inspect.Parameter.empty, name
    more = [found[name] for name in found.keys() - wanted.keys()]
    assert all(parameter.kind in _MORE for parameter in more)


def test_both_modules_have_what_theirs_have():
    for theirs, ours in MODULES.values():
        assert set(ours.__all__) == {"safe_open", *filter(vars(theirs).get, FUNCTIONS)}
        assert ours.safe_open is tensorcomp.safe_open
