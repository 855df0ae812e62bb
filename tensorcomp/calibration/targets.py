"""Find the parameters of a model that can be pruned."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch
from torch import nn

from tensorcomp._formatting import listed
from tensorcomp.errors import PruningError
from tensorcomp.planning.roles.classify import (
    NEVER_PRUNED,
    USUAL,
    classify,
    selects,
    taken_and_left_out,
)

Where: TypeAlias = "str | Iterable[str] | Callable[[str, nn.Parameter], bool] | None"

# Of each parameter, by its id, all names and itself.
_Known: TypeAlias = "dict[int, tuple[list[str], nn.Parameter]]"

_LAYERS = (
    nn.Linear,
    nn.Bilinear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_TABLES = (nn.Embedding, nn.EmbeddingBag)


def prunable_parameters(model: nn.Module, where: Where = None) -> dict[str, nn.Parameter]:
    """Find the parameters of a model to prune, sorted by name.

    By default they are the weights of `torch.nn.Linear`, ``Bilinear``, convolutions, transposed or
    not, the projections of ``MultiheadAttention``, and in modules of other kinds what is a layer's
    matrix or kernel by its name, as in GPT-2's ``Conv1D``; unless they are frozen
    (``requires_grad`` is false) or tied to an embedding. A tied weight is there once, under the
    first of its names in ``named_parameters()``.

    Parameters
    ----------
    model : torch.nn.Module
        In DistributedDataParallel, DataParallel or compiled, names are those without the wrapper.
    where : str, iterable of str, or callable, optional
        Replaces the default. Selectors (see `planning.roles.classify`): roles, names, patterns
        (``*``, ``?``, ``[…]``) of whole names, or, after ``!``, what is left out of the others or
        of the default. Of what a role or pattern selects, tensors of two or more axes are taken, of
        any layer, frozen or not, but no codebooks; vectors (biases, norms) only by their full
        names. A callable is given each name and parameter, and takes what it returns true for.

    Raises
    ------
    PruningError
        If there is none, a pattern matches nothing, a parameter has no values yet (meta device,
        lazy layer) or is not a dense tensor of floats, each in a place of its own, or, by default,
        if a layer computes its weight from other parameters.
    """
    inner = unwrapped(model)
    known: _Known = {}
    for name, parameter in inner.named_parameters(remove_duplicate=False):
        known.setdefault(id(parameter), ([], parameter))[0].append(name)
    if not known:
        raise PruningError(f"the model, a {type(inner).__name__}, has no parameters to prune")
    if where is None:
        chosen = _weights_of_layers(inner, known)
    elif callable(where):
        chosen = {key for key, (names, weight) in known.items() if where(names[0], weight)}
        if not chosen:
            raise PruningError("where is true for none of the model's parameters")
    else:
        chosen = _matched(where, inner, known)
    found = dict(sorted((known[key][0][0], known[key][1]) for key in chosen))
    for name, parameter in found.items():
        _require_floats(name, parameter)
    return found


def unwrapped(model: nn.Module) -> nn.Module:
    """Unwrap DistributedDataParallel, DataParallel and `torch.compile`."""
    while True:
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif isinstance(compiled := getattr(model, "_orig_mod", None), nn.Module):
            model = compiled
        else:
            return model


def _weights_of_layers(model: nn.Module, known: _Known) -> set[int]:
    """Return the ids of the parameters that are pruned by default."""
    weights: set[int] = set()
    tables: set[int] = set()
    for path, module in model.named_modules():
        if isinstance(module, _LAYERS):
            _require_own_weight(path, module)
        for key, parameter in module.named_parameters(recurse=False):
            if isinstance(module, _TABLES):
                tables.add(id(parameter))
            elif _is_weight(module, key, parameter, known[id(parameter)][0]):
                weights.add(id(parameter))
    weights -= tables
    trainable = {key for key in weights if known[key][1].requires_grad}
    if not trainable:
        what = "linear layer, convolution or attention with weights to prune"
        if weights:
            what = "trainable weights: requires_grad is false for all of its layers"
        raise PruningError(f"the model has no {what}; name others by 'where': {_names(known)}")
    return trainable


def _names(known: _Known) -> str:
    return listed([names[0] for names, _ in known.values()])


def _is_weight(module: nn.Module, key: str, parameter: nn.Parameter, names: Sequence[str]) -> bool:
    if isinstance(module, nn.MultiheadAttention):
        return key.endswith("_weight")
    if isinstance(module, _LAYERS):
        return key == "weight"
    is_of_torch = type(module).__module__.startswith("torch.")
    role = "" if is_of_torch else _role(names, parameter)
    return any(selects(usual, names[0], role) for usual in USUAL)


def _require_own_weight(path: str, module: nn.Module) -> None:
    """Refuse a layer whose weight is not a parameter: it would be left out."""
    if "weight" not in module._parameters and "weight" not in module._buffers:
        sources = [name for name, _ in module.named_parameters() if not name.startswith("bias")]
        raise PruningError(
            f"layer {path!r} computes its weight from {listed(sources)}; make it a parameter again "
            "(remove_parametrizations, prune.remove), or name what to prune by 'where'"
        )


def _matched(where: str | Iterable[str], model: nn.Module, known: _Known) -> set[int]:
    """Return the ids of the parameters that selectors take."""
    patterns = [where] if isinstance(where, str) else where
    patterns = list(patterns) if isinstance(patterns, Iterable) else []
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise PruningError(
            "expected where to be a pattern of names, several, or a function of name and "
            f"parameter; got {where!r}"
        )
    roles = {key: _role(*entry) for key, entry in known.items()}

    def matching(pattern: str) -> _Known:
        matched = {
            key: (names, own)
            for key, (names, own) in known.items()
            if any(selects(pattern, name, roles[key]) for name in names)
        }
        if not matched:
            raise PruningError(f"where={pattern!r} matches none of the parameters: {_names(known)}")
        return matched

    patterns, but = taken_and_left_out(patterns, usual=())
    taken = set() if patterns else _weights_of_layers(model, known)
    for pattern in patterns:
        matched = matching(pattern)
        found = {k for k, (names, own) in matched.items() if pattern in names or _is_matrix(own)}
        if not found:
            raise PruningError(
                f"where={pattern!r} matches only vectors: {_names(matched)}; name them in full"
            )
        taken |= {key for key in found if roles[key] not in NEVER_PRUNED}
    taken -= {key for pattern in but for key in matching(pattern)}
    if not taken:
        raise PruningError(f"where={where!r} leaves none of the parameters: {_names(known)}")
    return taken


def _role(names: Sequence[str], parameter: nn.Parameter) -> str:
    """Return the role of a parameter by its name; none if it has no shape yet."""
    if nn.parameter.is_lazy(parameter):
        return ""
    return classify(names[0], "F32", tuple(parameter.shape))


def _is_matrix(parameter: nn.Parameter) -> bool:
    """Return whether a parameter has two axes or more; one of a lazy layer may."""
    return nn.parameter.is_lazy(parameter) or parameter.ndim >= 2


def require_values(model: nn.Module) -> None:
    """Require parameters and buffers that have values, and that autograd may see."""
    parameters = ((f"parameter {name!r}", each) for name, each in model.named_parameters())
    buffers = ((f"buffer {name!r}", each) for name, each in model.named_buffers())
    for what, tensor in itertools.chain(parameters, buffers):
        require_value(what, tensor)
        if tensor.is_inference():
            raise PruningError(f"{what} was made in torch.inference_mode; make the model outside")


def require_value(what: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor without values: of a lazy layer, or on the meta device."""
    if nn.parameter.is_lazy(tensor):
        raise PruningError(f"{what} is of a lazy layer without a shape yet; run the model once")
    if tensor.is_meta:
        raise PruningError(f"{what} is on the meta device and has no values; load them first")


def _require_floats(name: str, parameter: nn.Parameter) -> None:
    """Refuse a parameter whose values are not plain floats in memory."""
    what = f"parameter {name!r}"
    require_value(what, parameter)
    kind = type(parameter.data)
    if kind is not torch.Tensor or parameter.layout != torch.strided:
        found = kind.__name__ if kind is not torch.Tensor else str(parameter.layout)
        raise PruningError(f"{what} is a {found}; only plain dense tensors can be pruned")
    if any(s == 0 and n > 1 for s, n in zip(parameter.stride(), parameter.shape, strict=True)):
        raise PruningError(
            f"{what} is expanded: its weights share memory; give it a copy by .contiguous()"
        )
    if not parameter.is_floating_point():
        raise PruningError(f"{what} is of {parameter.dtype}, not floats; leave it out by 'where'")
