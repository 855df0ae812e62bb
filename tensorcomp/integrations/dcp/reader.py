"""Read what a rank needs of a compressed distributed checkpoint."""

from __future__ import annotations

import contextlib
import io
import operator
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from tensorcomp._threads import thread_count
from tensorcomp._torch_arrays import byte_view, bytes_to_torch, known_dtype, torch_layout
from tensorcomp.container.decoding import Job, decode_all
from tensorcomp.container.model import BasePaths, base_paths
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.tensor_blob import ChunkedTensor
from tensorcomp.errors import PARSING_ERRORS, CheckpointError, FormatError
from tensorcomp.gradients.ddp.atomic_writer import KeepingFiles
from tensorcomp.integrations.dcp.items import SAVE, Place, Share, with_host, with_shares
from tensorcomp.pipeline.bundle import runs

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata

    from tensorcomp.container.chunk_grid import ChunkGrid

_DAMAGE = (pickle.UnpicklingError, EOFError, ImportError, MemoryError, *PARSING_ERRORS)
_BATCH = 1 << 28  # bytes that are decoded before any are copied to where they belong


class Reader(FileSystemReader):
    """Storage reader of what `Writer` saved, for any number of ranks.

    Each rank decodes the chunks that its tensors need, straight into their memory where that is
    the CPU's. Folders that torch's own writer made are read as by torch.

    Parameters
    ----------
    path : str or path-like
    threads : int, optional
        By default the processors divided by the ranks of the machine.
    bases : path or iterable of paths, optional
        Folders of the saves that it was compressed against, or one that holds them all.

    Raises
    ------
    OptionError
        If the path is a URL, or `threads` no number of threads.
    CheckpointError, FormatError
        While loading, in torch's ``CheckpointException``: if the folder holds no complete
        checkpoint, or a file is missing, damaged or of another save.

    Examples
    --------
    >>> import warnings
    >>> import torch
    >>> import torch.distributed.checkpoint as dcp
    >>> from tensorcomp.dcp import Reader, Writer
    >>> state = {"weight": torch.zeros(9)}
    >>> with warnings.catch_warnings(action="ignore"):  # torch's, as this is one process
    ...     saved = dcp.save({"weight": torch.ones(9)}, storage_writer=Writer("step"))
    ...     dcp.load(state, storage_reader=Reader("step"))
    >>> int(state["weight"].sum())
    9
    """

    def __init__(
        self, path: str | os.PathLike[str], threads: int | None = None, bases: BasePaths = ()
    ) -> None:
        super().__init__(path)
        self.fs = KeepingFiles()
        self.path = self.fs.init_path(path)
        if threads is not None:
            thread_count(threads)
        self._threads, self._bases = threads, base_paths(bases)

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Read ``.metadata``, or the rank's own of a save without collectives.

        Raises
        ------
        CheckpointError
            If there is none, or it is damaged.
        """
        folder = Path(self.path)
        rank = distributed.get_rank() if distributed.is_initialized() else 0
        alone = not (folder / ".metadata").exists() and (folder / f"__{rank}.metadata").exists()
        try:
            return super().read_metadata(**({"rank": rank} if alone else {}))
        except FileNotFoundError as error:
            raise CheckpointError(
                "expected a complete checkpoint, got a folder without .metadata, which is written "
                "last; give the folder of a save that has ended",
                path=folder,
            ) from error
        except _DAMAGE as error:
            reason = str(error) or repr(error)
            message = f"its .metadata is damaged: {reason}; take another checkpoint"
            raise CheckpointError(message, path=folder) from error
        except OSError as error:
            raise CheckpointError(f"cannot be read: {error.strerror}", path=folder) from error

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Add what tells which ranks share a machine."""
        return with_host(plan)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Count the ranks of each machine."""
        return with_shares(plans)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Decode what this rank needs."""
        places = [Place.of(self.storage_data[item.storage_index]) for item in plan.items]
        if None in places:
            done: Future[None] = super().read_data(plan, planner)
            return done
        share: Share = plan.storage_data
        threads = share.threads(self._threads)
        with contextlib.ExitStack() as stack:
            files: dict[str, CompressedFile] = {}
            tensors = []
            for item, place in zip(plan.items, places, strict=True):
                assert place is not None
                if place.file not in files:
                    opened = stack.enter_context(
                        CompressedFile(Path(self.path, place.file), self._bases)
                    )
                    files[place.file] = opened
                    _check_save(opened, place)
                if place.form == "bytes":
                    _read_object(item, files[place.file], place, planner)
                else:
                    tensors.append((item, files[place.file], place))
            reads = (_prepared(*one, planner) for one in tensors)
            for batch in runs(reads, lambda read: read.copied_bytes, _BATCH):
                decode_all([job for read in batch for job in read.jobs()], threads)
                for read in batch:
                    read.finish()
                    planner.commit_tensor(read.item, read.target)
        done = Future()
        done.set_result(None)
        return done


def _prepared(item: ReadItem, file: CompressedFile, place: Place, planner: LoadPlanner) -> _Read:
    """Return what is to be read, once it is known to fit."""
    record, target = file.record(place.tensor), planner.resolve_tensor(item).detach()
    shape = torch_layout(record.dtype, record.shape, record.nbytes)[1]
    ends = [sum(pair) for pair in zip(item.storage_offsets, item.lengths, strict=True)]
    inside = len(shape) == len(ends) and all(map(operator.le, ends, shape))
    if not inside or target.shape != item.lengths:
        raise FormatError(
            f"expected {list(item.lengths)} elements at {list(item.storage_offsets)} of it for a "
            f"tensor {list(target.shape)}, got a tensor {list(shape)}; load another save",
            path=file.where,
            tensor=place.tensor,
        )
    return _Read(item, target, file.open_tensor(place.tensor), record.dtype, shape)


@dataclass
class _Read:
    """Part of a stored tensor that is to be decoded, and where it goes.

    Parameters
    ----------
    item : ReadItem
    target : torch.Tensor
        Of the part's shape.
    tensor : ChunkedTensor
    dtype : str
        Safetensors' name.
    shape : tuple of int
        Of the stored tensor, in torch.
    """

    item: ReadItem
    target: torch.Tensor
    tensor: ChunkedTensor
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Find the rows of the grid, and memory for them: the target's own where that fits."""
        grid, (first, count) = self.tensor.grid, (0, 1)
        if self.shape:
            first, count = self.item.storage_offsets[0], self.item.lengths[0]
        row = grid.nbytes // max(self.shape[0] if self.shape else 1, 1)
        unit = max(grid.row_elements * grid.dtype.itemsize, 1)
        self.begin, self.end = first * row // unit, -(-(first + count) * row // unit)
        self.skipped, self.nbytes = first * row - self.begin * unit, count * row
        target = self.target
        self.is_direct = (
            target.device.type == "cpu"
            and target.dtype == known_dtype(self.dtype)
            and target.is_contiguous()
            and not (target.is_conj() or target.is_neg())
            and self.nbytes == target.nbytes == (self.end - self.begin) * unit
        )
        size = (self.end - self.begin) * unit
        self.copied_bytes = 0 if self.is_direct else size
        memory = byte_view(target) if self.is_direct else np.empty(size, np.uint8)
        self.rows = memory.view(grid.dtype).reshape(self.end - self.begin, *grid.shape[1:])

    def jobs(self) -> Iterator[Job]:
        """Yield the decoding of each chunk."""
        grid = self.tensor.grid
        for index, start, stop in grid.chunks_between(self.begin, self.end):
            first, last = grid.bounds(index)
            rows = self.rows[start - self.begin : stop - self.begin]
            whole = (start, stop) == (first, last)
            part = self.tensor if whole else _Rows(self.tensor, grid, start - first, stop - first)
            yield part, index, rows

    def finish(self) -> None:
        """Copy what was decoded, unless it is where it belongs."""
        if self.is_direct or not self.target.numel():
            return
        memory = self.rows.reshape(-1).view(np.uint8)[self.skipped : self.skipped + self.nbytes]
        rows = bytes_to_torch(memory, self.dtype, self._rows_shape(), "cpu")
        for axis in range(1, len(self.shape)):
            begin, length = self.item.storage_offsets[axis], self.item.lengths[axis]
            rows = rows.narrow(axis, begin, length)
        self.target.copy_(rows)

    def _rows_shape(self) -> tuple[int, ...]:
        return (self.item.lengths[0], *self.shape[1:]) if self.shape else ()


@dataclass(frozen=True)
class _Rows:
    """Some rows of a tensor's chunk, decoded like a whole one."""

    tensor: ChunkedTensor
    grid: ChunkGrid
    begin: int
    end: int

    def decode_chunk(self, index: int, out: np.ndarray | None = None) -> np.ndarray:
        """Decode the chunk; return its rows, in `out` if given."""
        rows = self.tensor.decode_chunk(index)[self.begin : self.end]
        if out is None:
            return rows
        out[...] = rows
        return out


def _read_object(item: ReadItem, file: CompressedFile, place: Place, planner: LoadPlanner) -> None:
    """Give the planner an object, or a tensor that is stored like one."""
    data = io.BytesIO(file.read(place.tensor).tobytes())
    if item.type == LoadItemType.BYTE_IO:
        planner.load_bytes(item, data)
        return
    part = torch.load(data, map_location="cpu", weights_only=True)
    for axis, (begin, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
        if (begin, length) != (0, part.shape[axis]):
            part = part.narrow(axis, begin, length)
    target = planner.resolve_tensor(item).detach()
    target.copy_(part)
    planner.commit_tensor(item, target)


def _check_save(file: CompressedFile, place: Place) -> None:
    """Require that a file is of the save that ``.metadata`` describes."""
    found = file.manifest.template.structure.get("metadata", {})
    if not isinstance(found, dict) or found.get(SAVE) != place.save:
        raise FormatError(
            "expected a file of the save that .metadata is of, got one of another; restore the "
            "folder or load another checkpoint",
            path=file.where,
        )
