"""Buckets on a GPU whose gradients are compressed there: only payloads go to the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from tensorcomp.gradients.cuda.on_device import on_device
from tensorcomp.gradients.ddp.coding_groups import Context, Layout, UnitWork
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.partition import OWNED
from tensorcomp.gradients.ddp.shard_means import give_back
from tensorcomp.gradients.ddp.state_store import Memory


def natively(layout: Layout, device: torch.device) -> Layout:
    """Return a layout whose units are compressed on a device, if all of them can be.

    That is where all payloads are gathered, and each compressor has its counterpart there;
    otherwise the bucket is copied to the host as a whole.

    Parameters
    ----------
    layout : Layout
    device : torch.device
    """
    if set(layout.routes) != {"gather"}:
        return layout
    found = [on_device(unit.compressor, device) for unit in layout.units]
    if any(one is None for one in found):
        return layout
    pairs = zip(layout.units, found, strict=True)
    return replace(layout, units=tuple(replace(unit, native=one) for unit, one in pairs))


def is_native(layout: Layout) -> bool:
    """Return whether a bucket's units are compressed on its device."""
    return bool(layout.units) and all(unit.native is not None for unit in layout.units)


def load_tensor(buffer: torch.Tensor, factor: float) -> torch.Tensor:
    """Return a bucket's gradients times a factor, (n,): its own memory, or a widened copy."""
    flat = buffer.detach()
    if flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    return flat.mul_(factor) if factor != 1.0 else flat


def store_tensor(values: torch.Tensor, factor: float, buffer: torch.Tensor) -> bool:
    """Put values times a factor into a bucket, and return whether all are finite there."""
    if factor != 1.0:
        values.mul_(factor)
    if values.data_ptr() != buffer.data_ptr():
        buffer.detach().copy_(values)
    return bool(torch.isfinite(buffer).all().item())


def open_tensor_works(
    layout: Layout, values: torch.Tensor, memory: Memory, *, skip_unused: bool
) -> list[UnitWork]:
    """Return a bucket's units as work to be done on its device; see `buckets.open_works`."""
    works = []
    for unit in layout.units:
        if unit.place is not None:
            flat = values[unit.place[0] : unit.place[1]]
        else:
            flat = torch.cat([values[piece.start : piece.stop] for piece in unit.pieces])
        silent = skip_unused and not bool(flat.any().item())
        given: Any = flat.reshape(unit.spec.shape)
        works.append(UnitWork(unit, given, cast("Any", flat), memory.state(unit), silent))
    return works


def give_back_tensors(works: Sequence[UnitWork], link: Link, context: Context) -> None:
    """Do what `owned_means.give_back` does, on the host where there is something to give back."""
    for work in works:
        if any(context.kept.holds(OWNED + name) for name in work.unit.key):
            tensor: Any = work.gradient
            array = tensor.cpu().numpy().copy()
            give_back([replace(work, gradient=array)], link, context)
            tensor.copy_(torch.from_numpy(array))
