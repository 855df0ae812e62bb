"""Name and place the items of a plan; share the processors."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan

from tensorcomp._threads import available_threads

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import WriteItem

SAVE = "tensorcomp.dcp"  # a file's metadata that say of which save it is
# What torch's own reader says of these files: "Unknown extension name='…'".
_EXTENSION = "tensorcomp; load this folder with storage_reader=tensorcomp.dcp.Reader"
_Plan = TypeVar("_Plan", SavePlan, LoadPlan)


class Place(NamedTuple):
    """Place of an item in a folder.

    Parameters
    ----------
    file : str
        Its name in the folder.
    tensor : str
        The name there.
    save : str
        Number of the save that wrote the file, at random.
    form : str
        ``tensor``; or ``bytes``, as ``torch.save`` writes them.
    """

    file: str
    tensor: str
    save: str
    form: str

    def to_info(self, nbytes: int) -> _StorageInfo:
        """Return the entry of torch's metadata."""
        info = _StorageInfo(self.file, 0, nbytes)
        info.transform_descriptors = (_EXTENSION, self.tensor, self.save, self.form)
        return info

    @classmethod
    def of(cls, info: Any) -> Place | None:
        """Return what `to_info` was given; None for the entry of another writer."""
        extension, *fields = getattr(info, "transform_descriptors", None) or ("",)
        return cls(info.relative_path, *fields) if extension == _EXTENSION else None


def item_name(item: WriteItem) -> str:
    """Return the name of what an item stores: of a part, with its slice."""
    name, data = item.index.fqn, item.tensor_data
    if data is None or data.chunk is None or data.chunk.sizes == data.size:
        return name
    spans = [
        ":" if part == whole else f"{begin}:{begin + part}"
        for begin, part, whole in zip(data.chunk.offsets, data.chunk.sizes, data.size, strict=True)
    ]
    while spans[-1] == ":":
        spans.pop()
    return f"{name}[{', '.join(spans)}]"


class Share(NamedTuple):
    """Number of a rank, and of how many on its machine it is one."""

    rank: int
    local_ranks: int

    def threads(self, asked: int | None) -> int:
        """Return the threads asked for, or a fair part of the processors."""
        local = int(os.environ.get("LOCAL_WORLD_SIZE") or self.local_ranks)
        return asked or max(available_threads() // max(local, 1), 1)


def with_host(plan: _Plan) -> _Plan:
    """Return a rank's plan with the name of its machine."""
    return dataclasses.replace(plan, storage_data=socket.gethostname())


def with_shares(plans: Sequence[_Plan]) -> list[_Plan]:
    """Return the plans of all ranks, each with its `Share`."""
    ranks = Counter(plan.storage_data for plan in plans)
    return [
        dataclasses.replace(plan, storage_data=Share(rank, ranks[plan.storage_data]))
        for rank, plan in enumerate(plans)
    ]
