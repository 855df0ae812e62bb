"""Check torch tensors as safetensors does, and find those that share memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import shown
from tensorcomp.errors import OptionError

if TYPE_CHECKING:
    import torch


def check_tensors(tensors: Any) -> None:
    """Refuse what ``safetensors.torch.save_file`` refuses.

    Raises
    ------
    OptionError
        If it is not a dict of tensors, or one is sparse or not contiguous.
    RuntimeError
        If tensors share memory, or one is on the meta device.
    """
    import torch

    if not isinstance(tensors, dict):
        raise OptionError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise OptionError(
                f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}"
            )
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise OptionError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not "
            "support. You can make it a dense tensor before saving with `.to_dense()` but be "
            "aware this might make a much larger file than needed."
        )
    if shared := [names for names in shared_names(tensors) if len(names) > 1]:
        raise RuntimeError(
            f"expected tensors with memory of their own, but {shared[0]} share some, and would not "
            "when they are loaded; use save_model"
        )
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise OptionError(
                f"expected contiguous tensors, but {shown(name)} is not; call .contiguous() on it, "
                "or for a model use save_model(..., force_contiguous=True)"
            )
        if tensor.is_meta:
            tensor.cpu()  # which raises torch's error


def shared_names(tensors: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Return groups of tensors whose memory overlaps; most are alone."""
    import torch

    spans = []
    for name, tensor in tensors.items():
        if tensor.layout == torch.strided and not tensor.is_meta and tensor.numel():
            storage, begin = tensor.untyped_storage(), tensor.data_ptr()
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            span = tensor.element_size() * (1 + sum((size - 1) * step for size, step in steps))
            place = str(tensor.device), storage.data_ptr(), storage.nbytes()
            spans.append((place, begin, begin + span, name))
    groups: list[list[str]] = []
    last, until = None, 0
    for place, begin, end, name in sorted(spans):
        if place == last and begin < until:
            groups[-1].append(name)
            until = max(until, end)
        else:
            groups.append([name])
            last, until = place, end
    return groups


def further_names(
    tensors: Mapping[str, torch.Tensor], preferred: Collection[str] = ()
) -> dict[str, str]:
    """Return what need not be saved, and under which name it is.

    Parameters
    ----------
    tensors : mapping of str to torch.Tensor
    preferred : collection of str
        Names to save rather than others.

    Raises
    ------
    RuntimeError
        If tensors overlap and none holds all of the others.
    """
    found: dict[str, str] = {}
    for names in shared_names(tensors):
        whole = sorted(name for name in names if _is_whole(tensors[name]))
        if len(names) > 1 and not whole:
            raise RuntimeError(
                f"expected one of the tensors {names} that share memory to be all of it, but each "
                "is a part; save copies of them"
            )
        kept = ([name for name in whole if name in preferred] or whole or names)[0]
        found |= {name: kept for name in sorted(names) if name != kept}
    return found


def _is_whole(tensor: torch.Tensor) -> bool:
    storage = tensor.untyped_storage()
    nbytes = tensor.numel() * tensor.element_size()
    return tensor.data_ptr() == storage.data_ptr() and nbytes == storage.nbytes()
