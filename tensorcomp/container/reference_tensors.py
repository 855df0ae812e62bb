"""Read tensors of a base as references of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import xxhash

from tensorcomp._formatting import shown
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.plain_tensor import open_tensor
from tensorcomp.container.records import DIGEST_DIGITS, TensorRecord
from tensorcomp.container.tensor_blob import decode_rows
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import FormatError

_REALS = ("F64", "F32", "F16", "BF16")


def may_refer(info: TensorInfo | TensorRecord, other: TensorInfo | TensorRecord) -> bool:
    """Return whether a tensor may be coded against another one, its reference.

    Both are of one type, or of two float types. They have rows of one length, of which the
    reference has half as many or more, or as many elements.
    """
    same = info.dtype == other.dtype and numpy_dtype(info.dtype) is not None
    if not same and not {info.dtype, other.dtype} <= {*_REALS}:
        return False
    if info.shape == other.shape:
        return True
    if not info.shape or not other.shape or info.shape[1:] != other.shape[1:]:
        return False
    return info.shape[0] <= 2 * other.shape[0]


def reference_rows(
    checkpoint: Checkpoint, info: TensorInfo | TensorRecord, grid: ChunkGrid, start: int, stop: int
) -> np.ndarray:
    """Return rows of a tensor as the reference of another one.

    Parameters
    ----------
    checkpoint : Checkpoint
    info : TensorInfo or TensorRecord
        The tensor; `may_refer` says which are fit.
    grid : ChunkGrid
        Of the tensor that is coded.
    start, stop : int
        Along its first axis.

    Returns
    -------
    numpy.ndarray
        (stop − start, …) of the grid's dtype; zeros where the tensor has no such rows.
    """
    tensor = open_tensor(checkpoint, info)
    own, row = tensor.grid, grid.row_elements
    width, rows = own.row_elements, own.shape[0]
    first, last = (min(place * row, rows * width) for place in (start, stop))
    begin = first // max(width, 1)
    found = decode_rows(tensor, begin, -(-last // max(width, 1)))
    found = found.reshape(-1)[first - begin * width : last - begin * width]
    if found.dtype != grid.dtype:
        with np.errstate(all="ignore"):
            found = _cast(found, grid.dtype)
    missing = (stop - start) * row - found.size
    if missing:
        found = np.concatenate([found, np.zeros(missing, grid.dtype)])
    return found.reshape(stop - start, *grid.shape[1:])


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return floats as another type, rounded to nearest by way of float32 but for float64."""
    if 2 in (values.dtype.itemsize, dtype.itemsize):
        values = values.astype(np.float32)
    return values.astype(dtype)


def bundle_reference(
    grid: ChunkGrid, members: Iterable[tuple[int, tuple[Checkpoint, str] | None]]
) -> np.ndarray:
    """Return the reference of a bundle: those of its tensors, zeros for others.

    Parameters
    ----------
    grid : ChunkGrid
        Of the bundle.
    members : iterable of (int, (Checkpoint, str) or None)
        Of each tensor its bytes, and the reference's file and name.
    """
    joined, start = np.zeros(grid.nbytes, np.uint8), 0
    for nbytes, reference in members:
        if reference is not None:
            own = ChunkGrid((nbytes // grid.dtype.itemsize,), grid.dtype, nbytes + 1)
            info = tensor_info(*reference)
            rows = reference_rows(reference[0], info, own, 0, own.shape[0])
            joined[start : start + nbytes] = rows.view(np.uint8)
        start += nbytes
    return joined.view(grid.dtype).reshape(grid.shape)


def tensor_info(file: Checkpoint, name: str) -> TensorInfo:
    """Return what a checkpoint says of a tensor, by its name or an alias."""
    wanted = file.aliases.get(name, name)
    found = next((info for info in file.tensors if info.name == wanted), None)
    if found is None:
        raise FormatError(f"has no tensor {shown(name)}", path=file.path)
    return found


def tensor_digest(checkpoint: Checkpoint, name: str) -> str:
    """Return the digest of a tensor's bytes, read if none is recorded."""
    if known := checkpoint.known_digest(name):
        return known
    digest = xxhash.xxh3_128()
    for data in checkpoint.iter_bytes(name):
        digest.update(data)
    return digest.hexdigest()[:DIGEST_DIGITS]


def base_digest(references: Mapping[str, str]) -> str:
    """Return the digest of a base from those of its tensors, by name."""
    text = "\n".join(f"{name} {references[name]}" for name in sorted(references))
    return xxhash.xxh3_128_hexdigest(text.encode(errors="surrogatepass"))
