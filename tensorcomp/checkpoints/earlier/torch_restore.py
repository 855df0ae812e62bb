"""Writes a torch file back from its template and its decoded tensors."""

from __future__ import annotations

import functools
import math
import mmap
import os
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorcomp._formatting import shown
from tensorcomp._torch_arrays import byte_view
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.earlier.torch_tree_decoder import TreeDecoder
from tensorcomp.checkpoints.packing import unpack_structure
from tensorcomp.checkpoints.safetensors.file import checked_bytes
from tensorcomp.dtypes import common_name
from tensorcomp.errors import CheckpointError, FormatError, located, needing
from tensorcomp.io.files import writing

if TYPE_CHECKING:
    import torch

# From this size on a storage lives in a file until it is saved: it need not fit in memory.
_SCRATCH_BYTES = 64 << 20


def restore_torch(template: SourceTemplate, source: Checkpoint, out_path: Path) -> None:
    """Write a torch file that loads as an equal object, as `open.restore` says.

    Large tensors pass through unnamed files beside it.
    """
    with located(path=out_path), needing("torch", CheckpointError, "a torch file needs torch"):
        import torch  # noqa: F401
    structure = unpack_structure(template)
    try:
        tree, leaves, pools = (structure[key] for key in ("tree", "leaves", "pools"))
    except KeyError as error:
        raise FormatError(f"the template of the torch file lacks its {error}") from error
    rebuilder = _Rebuilder(source, leaves, pools, out_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dtypes that torch calls experimental
        _save(TreeDecoder(rebuilder.tensor_at).decode(tree), out_path)


def _save(loaded: Any, out_path: Path) -> None:
    import torch

    # Given a file and not a path, torch.save does not write the (temporary) name into it.
    with writing(out_path), out_path.open("wb") as file:
        try:
            torch.save(loaded, file)
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise CheckpointError(f"torch could not save it: {reason}", path=out_path) from error


@dataclass
class _Rebuilder:
    """Rebuild tensors of leaves: each stored tensor and each pool once."""

    source: Checkpoint
    leaves: Sequence[dict[str, Any]]
    pools: Sequence[dict[str, Any]]
    out_path: Path
    made: dict[str | int, torch.Tensor] = field(default_factory=dict)

    @functools.cached_property
    def infos(self) -> dict[str, TensorInfo]:
        """Stored tensors by name."""
        return {info.name: info for info in self.source.tensors}

    def tensor_at(self, number: int) -> torch.Tensor:
        """Return a new tensor object for a leaf, on a storage shared as it was."""
        node = self.leaves[number]
        key = node["pool"] if "pool" in node else node["name"]
        if key not in self.made:
            self.made[key] = self._pool(key) if "pool" in node else self._whole(node)
        made = self.made[key]
        if "pool" not in node:
            return made.detach()
        shape, stride, offset = node["shape"], node["stride"], node["offset"]
        last = offset + sum((s - 1) * st for s, st in zip(shape, stride, strict=True))
        if min([offset, *shape, *stride]) < 0 or last >= made.numel():
            raise FormatError(f"a view of shape {shape} exceeds the pool that it is taken of")
        return made.as_strided(shape, stride, offset)

    def _whole(self, node: dict[str, Any]) -> torch.Tensor:
        import torch

        info = self._info(node["name"])
        dtype = _dtype(node.get("dtype", common_name(info.dtype)))
        shape = node.get("shape", list(info.shape))
        if math.prod(shape) * dtype.itemsize != info.nbytes:
            raise FormatError(f"has {info.nbytes:,} bytes, not its shape's", tensor=info.name)
        tensor = self._filled(dtype, [info]).view(shape)
        if "stride" not in node:
            return tensor
        if not _is_dense(shape, node["stride"]):
            raise FormatError("has strides that are not a permutation", tensor=info.name)
        return torch.empty_strided(shape, node["stride"], dtype=dtype).copy_(tensor)

    def _pool(self, number: int) -> torch.Tensor:
        pool = self.pools[number]
        return self._filled(_dtype(pool["dtype"]), list(map(self._info, pool["pieces"])))

    def _filled(self, dtype: torch.dtype, infos: Sequence[TensorInfo]) -> torch.Tensor:
        """Return the bytes of tensors, one after the other, as one flat tensor."""
        tensor = self._empty(dtype, sum(info.nbytes for info in infos))
        memory = byte_view(tensor).data
        done = 0
        for info in infos:
            for chunk in checked_bytes(self.source, info):
                memory[done : done + chunk.nbytes] = chunk
                done += chunk.nbytes
        return tensor

    def _empty(self, dtype: torch.dtype, nbytes: int) -> torch.Tensor:
        import torch

        count, rest = divmod(nbytes, dtype.itemsize)
        if rest:
            raise FormatError(f"{nbytes:,} bytes are not a whole number of {dtype} elements")
        if nbytes < _SCRATCH_BYTES or not hasattr(os, "posix_fallocate"):
            return torch.empty(count, dtype=dtype)
        with writing(self.out_path), tempfile.TemporaryFile(dir=self.out_path.parent) as file:
            # Reserved first: a full disk is an error now, and not a crash when a page is used.
            os.posix_fallocate(file.fileno(), 0, nbytes)
            return torch.frombuffer(mmap.mmap(file.fileno(), nbytes), dtype=dtype)

    def _info(self, name: str) -> TensorInfo:
        try:
            return self.infos[name]
        except KeyError:
            raise FormatError(f"the checkpoint lacks the tensor {shown(name)}") from None


def _dtype(text: str | None) -> torch.dtype:
    import torch

    dtype = getattr(torch, text or "", None)
    if not isinstance(dtype, torch.dtype):
        raise FormatError(f"torch has no dtype {text!r}")
    return dtype


def _is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether a tensor is contiguous but for a permutation of its axes."""
    expected = 1
    for step, size in sorted((st, s) for st, s in zip(stride, shape, strict=True) if s > 1):
        if step != expected:
            return False
        expected *= size
    return True
