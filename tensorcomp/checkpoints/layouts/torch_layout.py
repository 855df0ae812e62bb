"""Decide which tensors of a torch file to store, and how to rebuild views.

A view that has its storage to itself is stored in logical order under its own name, as are equal
views of one storage, once. Where different views share a storage, its used parts are stored: each
run of overlapping views is one piece, which bears the name and shape of a view that covers the run,
if there is one. The pieces, back to back, make a pool of which all the views are rebuilt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import shown, unique_name
from tensorcomp.checkpoints.layouts.torch_tree import Leaf
from tensorcomp.checkpoints.safetensors.header import METADATA_KEY
from tensorcomp.dtypes import torch_dtype_name
from tensorcomp.errors import CheckpointError

if TYPE_CHECKING:
    import torch


@dataclass
class Layout:
    """Stored tensors of a torch file, and how to rebuild all its tensors.

    Attributes
    ----------
    stored : dict of str to torch.Tensor
        By name, in the order of the file; bytes are taken in logical order.
    aliases : dict of str to str
        Names of further leaves that equal a stored tensor and share its storage.
    leaves : list of dict
        Recipe of each leaf, as JSON: from the stored tensor ``name``, or from a ``pool``.
    pools : list of dict
        Per shared storage its dtype and the names of its pieces, as JSON.
    """

    stored: dict[str, torch.Tensor] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    leaves: list[dict[str, Any]] = field(default_factory=list)
    pools: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _View:
    """Leaf and the elements [begin, end) of its storage that it spans."""

    number: int
    name: str
    tensor: torch.Tensor
    begin: int
    end: int

    @property
    def window(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        return self.begin, tuple(self.tensor.shape), self.tensor.stride()


def lay_out(leaves: Sequence[Leaf]) -> Layout:
    """Decide which tensors to store, and how to rebuild all from them.

    Leaves are plain strided tensors on the CPU. Raises `CheckpointError` if views of one storage
    differ in dtype: torch itself would not save them.
    """
    layout = Layout(leaves=[{} for _ in leaves])
    taken = {METADATA_KEY}
    groups: dict[tuple[str, int], list[_View]] = {}
    for number, leaf in enumerate(leaves):
        view = _view(number, unique_name(leaf.name, taken), leaf.tensor)
        address = view.tensor.untyped_storage().data_ptr()
        key = ("storage", address) if view.tensor.numel() else ("empty", number)
        groups.setdefault(key, []).append(view)
    for views in groups.values():
        if len({view.tensor.dtype for view in views}) > 1:
            names = " and ".join(shown(view.name) for view in views[:2])
            raise CheckpointError(f"{names} are one storage seen as two dtypes; save copies")
        first = views[0]
        windows = {view.window for view in views}
        if len(windows) == 1 and not _may_overlap(first.tensor):
            _store_whole(layout, views)
        else:
            _store_pool(layout, views, taken)
    return layout


def _view(number: int, name: str, tensor: torch.Tensor) -> _View:
    # A lazily conjugated or negated tensor differs from its storage; it gets one of its own.
    tensor = tensor.detach().resolve_conj().resolve_neg()
    begin = int(tensor.storage_offset())
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return _View(number, name, tensor, begin, begin + 1 + sum((s - 1) * st for s, st in steps))


def _store_whole(layout: Layout, views: Sequence[_View]) -> None:
    """Store equal views of one storage once."""
    name, tensor = views[0].name, views[0].tensor
    layout.stored[name] = tensor
    node: dict[str, Any] = {"name": name}
    if torch_dtype_name(tensor.dtype) is None:
        node |= {"dtype": _dtype_text(tensor), "shape": list(tensor.shape)}
    if tensor.numel() and not tensor.is_contiguous() and is_dense(tensor.shape, tensor.stride()):
        node["stride"] = list(tensor.stride())
    for view in views:
        layout.leaves[view.number] = node
        if view.name != name:
            layout.aliases[view.name] = name


def _store_pool(layout: Layout, views: Sequence[_View], taken: set[str]) -> None:
    """Store the used parts of a storage that different views share."""
    pieces: list[str] = []
    length = 0
    for run in _runs(views):
        begin, end = run[0].begin, max(view.end for view in run)
        covers = (view for view in run if (view.begin, view.end) == (begin, end))
        cover = next((view for view in covers if view.tensor.is_contiguous()), None)
        if cover is not None:
            name, tensor = cover.name, cover.tensor
        else:
            name = unique_name(f"{run[0].name}.storage", taken)
            tensor = run[0].tensor.as_strided((end - begin,), (1,), begin)
        layout.stored[name] = tensor
        pieces.append(name)
        for view in run:
            offset, shape, stride = view.window
            place = {"pool": len(layout.pools), "offset": offset - begin + length}
            layout.leaves[view.number] = {**place, "shape": list(shape), "stride": list(stride)}
            if cover is not None and view is not cover and view.window == cover.window:
                layout.aliases[view.name] = name
        length += end - begin
    layout.pools.append({"dtype": _dtype_text(views[0].tensor), "pieces": pieces})


def _runs(views: Sequence[_View]) -> list[list[_View]]:
    """Split views into runs that do not overlap each other, in storage order."""
    runs: list[list[_View]] = []
    reach = -1
    for view in sorted(views, key=lambda view: (view.begin, view.number)):
        if view.begin >= reach:
            runs.append([])
        runs[-1].append(view)
        reach = max(reach, view.end)
    return runs


def _dtype_text(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's dtype without ``torch.``."""
    return str(tensor.dtype).removeprefix("torch.")


def is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether a tensor is contiguous but for a permutation of its axes."""
    expected = 1
    for step, size in sorted((st, s) for st, s in zip(stride, shape, strict=True) if s > 1):
        if step != expected:
            return False
        expected *= size
    return True


def _may_overlap(tensor: torch.Tensor) -> bool:
    """Return whether two elements may share an address, as in an expanded tensor."""
    reach = 0
    strides = zip(tensor.stride(), tensor.shape, strict=True)
    for step, size in sorted((step, size) for step, size in strides if size > 1):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False
