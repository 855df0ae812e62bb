"""Write each rank's part of a distributed checkpoint as a compressed file."""

from __future__ import annotations

import io
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from tensorcomp._formatting import unique_name
from tensorcomp._torch_arrays import torch_entry
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.checkpoints.layouts.torch_file import stored_files
from tensorcomp.container.compressed_folder import COMPRESSED
from tensorcomp.errors import CheckpointError, InputTypeError
from tensorcomp.gradients.ddp.atomic_writer import KeepingFiles
from tensorcomp.integrations.dcp.items import (
    SAVE,
    Place,
    Share,
    item_name,
    with_host,
    with_shares,
)
from tensorcomp.integrations.dcp.weights import exact_optimizer, planned_for_weights
from tensorcomp.io.files import atomic_file, sync, writing
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressKeywords, CompressOptions

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata

_NUMBERED = re.compile(rf"\.?__\d+_(\d+){re.escape(COMPRESSED)}")


class Writer(FileSystemWriter):
    """Storage writer whose files are compressed, one for each rank.

    A rank's file, ``__RANK_N.tc.safetensors`` of the Nth save into the folder, is like any other
    that `tensorcomp.compress` writes: `inspect`, `verify` and `load_file` take it. What a rank
    holds of a sharded tensor has its slice in its name, ``layers.0.weight[0:500]``; objects are
    bytes, as ``torch.save`` writes them.

    The save before stays complete until ``.metadata`` names the new files; then those that it
    named are deleted.

    Parameters
    ----------
    path : str or path-like
        A folder that all ranks see; made if it is not there.
    overwrite : bool
        Whether a checkpoint that is there may be replaced.
    **keywords
        Fields of `tensorcomp.CompressOptions`; nothing is lost by default. Optimizer state stays
        exact unless ``codecs`` ask for it by role or name, and a size is for the weights of each
        rank's file. By default threads are the processors divided by the ranks of the machine.

    Raises
    ------
    PlanError, OptionError
        If the options do not go together, or the path is a URL.
    CheckpointError
        While saving, in torch's ``CheckpointException``: if a rank cannot write, or `overwrite` is
        False and there is a checkpoint.

    Examples
    --------
    >>> import warnings
    >>> import torch
    >>> import torch.distributed.checkpoint as dcp
    >>> from tensorcomp.dcp import Writer
    >>> state = {"weight": torch.zeros(100, 100)}
    >>> with warnings.catch_warnings(action="ignore"):  # torch's, as this is one process
    ...     saved = dcp.save(state, storage_writer=Writer("step-100"))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = True,
        **keywords: Unpack[CompressKeywords],
    ) -> None:
        super().__init__(path, overwrite=overwrite)
        self.fs = KeepingFiles()
        self.path = self.fs.init_path(path)
        self._options = exact_optimizer(CompressOptions(**keywords))

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Make the folder; add what tells which ranks share a machine."""
        folder = Path(self.path)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and self._metadata_file().exists():
            raise CheckpointError(
                "holds a checkpoint already; overwrite=True replaces it", path=folder
            )
        return with_host(plan)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Give each rank its number, and how many share its machine."""
        return with_shares(plans)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Compress what this rank is to write."""
        done: Future[list[WriteResult]] = Future()
        done.set_result(self._write(plan, planner) if plan.items else [])
        return done

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        share: Share = plan.storage_data
        rank = self.rank if self._is_alone else share.rank
        complete = (stored_files(path) for path in Path(self.path).glob("*.metadata"))
        number = 1 + max(map(_newest, complete), default=-1)
        file, save = f"__{rank}_{number}{COMPRESSED}", uuid.uuid4().hex[:16]
        taken = {"__metadata__"}
        names = [unique_name(item_name(item), taken) for item in plan.items]
        tensors, places = {}, []
        for name, item in zip(names, plan.items, strict=True):
            tensors[name], form = _stored(name, planner.resolve_data(item))
            places.append(Place(file, name, save, form))
        objects = {place.tensor for place in places if place.form == "bytes"}
        threads = share.threads(self._options.threads)
        options = planned_for_weights(self._options, threads, tensors, objects)
        with atomic_file(Path(self.path, file), force=True) as output:
            result = compress_source(MemoryCheckpoint(tensors, {SAVE: save}), output, options)
        records = result.manifest.tensors
        return [
            WriteResult(item.index, size, place.to_info(size))
            for item, place in zip(plan.items, places, strict=True)
            for size in [result.stored(records[place.tensor])]
        ]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Name the files of this save, then delete those of the one before."""
        folder, before = Path(self.path), stored_files(self._metadata_file())
        with writing(self._metadata_file()):
            super().finish(metadata, results)
        sync(folder)
        named = {place.relative_path for place in metadata.storage_data.values()}
        if not self._is_alone:  # what killed saves have left
            newest = _newest(named)
            before |= {path.name for path in folder.iterdir() if -1 < _number(path.name) <= newest}
        for name in before - named:
            if PurePath(name).name == name:
                (folder / name).unlink(missing_ok=True)

    @property
    def _is_alone(self) -> bool:
        """Whether each rank saves for itself, without collectives."""
        return not getattr(self, "use_collectives", True)

    def _metadata_file(self) -> Path:
        return Path(self.path, f"__{self.rank}.metadata" if self._is_alone else ".metadata")


def _number(name: str) -> int:
    """Return the number of the save that a file, whole or not, is of; else -1."""
    match = _NUMBERED.match(name)
    return int(match[1]) if match else -1


def _newest(names: Iterable[str]) -> int:
    return max(map(_number, names), default=-1)


def _stored(name: str, data: Any) -> tuple[Any, str]:
    """Return an item as it is stored, and in which form that is."""
    if isinstance(data, io.BytesIO):
        return np.frombuffer(data.getvalue(), np.uint8), "bytes"
    tensor = data.detach().cpu()
    try:
        torch_entry(name, tensor)
    except InputTypeError:  # sparse, quantized, of a type that safetensors lacks
        file = io.BytesIO()
        torch.save(tensor, file)
        return np.frombuffer(file.getvalue(), np.uint8), "bytes"
    return tensor, "tensor"
