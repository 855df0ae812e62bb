"""Find bases of a compressed file by content; read rows of their tensors."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import xxhash

from tensorcomp._formatting import listed, shown
from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.plain_tensor import open_tensor
from tensorcomp.container.records import DIGEST_DIGITS, BaseRecord, TensorRecord, TensorReference
from tensorcomp.container.tensor_blob import decode_rows
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import FormatError, MissingBaseError, TensorcompError
from tensorcomp.io.locations import is_remote

MAX_DEPTH = 64  # of a chain of bases
_LOOKED = 1 << 26  # bytes of small tensors by which a base that is not compressed is told
_REALS = ("F64", "F32", "F16", "BF16")
Opened = dict[tuple[Path, int], Checkpoint]
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz", ".gguf", ".h5", ".onnx")


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


def bundle_reference(
    manifest: Manifest, name: str, grid: ChunkGrid, files: Mapping[int, Checkpoint]
) -> np.ndarray:
    """Return the reference of a bundle: those of its tensors, zeros for others."""
    joined = np.zeros(grid.nbytes, np.uint8)
    for record in manifest.tensors.values():
        reference = record.reference
        if record.bundle != name or reference is None:
            continue
        start, stop = manifest.layout.spans[record.name]
        joined[start:stop] = small_reference(record, files[reference.base], reference.tensor)
    return joined.view(grid.dtype).reshape(grid.shape)


def small_reference(info: TensorInfo | TensorRecord, file: Checkpoint, name: str) -> np.ndarray:
    """Return a whole reference as bytes of the tensor that is coded."""
    dtype = numpy_dtype(info.dtype)
    assert dtype is not None
    grid = ChunkGrid((info.nbytes // dtype.itemsize,), dtype, info.nbytes + 1)
    other = tensor_info(file, name)
    return reference_rows(file, other, grid, 0, grid.shape[0]).view(np.uint8)


def _beside(folder: Path, name: str) -> Path:
    """Return a path relative to a folder; stores know no `..`, and chains of them grow."""
    if not is_remote(folder):
        return Path(os.path.normpath(folder / name))
    parts = PurePosixPath(name).parts
    return functools.reduce(lambda at, p: at.parent if p == ".." else at / p, parts, folder)


def tensor_info(file: Checkpoint, name: str) -> TensorInfo:
    """Return what a checkpoint says of a tensor, by its name or an alias."""
    wanted = file.aliases.get(name, name)
    found = next((info for info in file.tensors if info.name == wanted), None)
    if found is None:
        raise FormatError(f"has no tensor {shown(name)}", path=file.path)
    return found


@dataclass(eq=False)
class Bases:
    """Bases of a compressed file, each looked for when a tensor needs it.

    Parameters
    ----------
    manifest : Manifest
        Of the file.
    path : Path
    where : str
        Its name, for error messages.
    open_file : callable
        Opens a checkpoint of any format; as `open_any`.
    search : sequence of Path
        Files and folders to look in, before the file's own folder.
    depth : int
        How many files this one is a base of, at least.
    opened : dict
        Files that it and its bases opened, by path and depth: several may need the same one.
    """

    manifest: Manifest
    path: Path
    where: str
    open_file: Callable[[Path, Sequence[Path], int, Opened], Checkpoint]
    search: Sequence[Path] = ()
    depth: int = 0
    opened: Opened = field(default_factory=dict)
    _found: dict[int, Checkpoint] = field(default_factory=dict)
    _is_complete: bool = False
    _checked: set[TensorReference] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def rows(self, record: TensorRecord, grid: ChunkGrid, start: int, stop: int) -> np.ndarray:
        """Return rows of a tensor's or bundle's reference; verify it once.

        Raises
        ------
        MissingBaseError
            If its base is not found.
        FormatError
            If that is damaged, or does not fit.
        """
        reference = record.reference
        assert reference is not None
        if record.name in self.manifest.bundles:
            used = {r.reference.base for r in self.manifest.tensors.values() if r.reference}
            files = {base: self.open(base) for base in used}
            joined = bundle_reference(self.manifest, record.name, grid, files)
            found = xxhash.xxh3_128_hexdigest(joined.reshape(-1).view(np.uint8))
            self._compare(reference, found[:DIGEST_DIGITS])
            return joined[start:stop]
        base = self.open(reference.base)
        info = tensor_info(base, reference.tensor)
        with self._lock:
            if reference not in self._checked:
                if not may_refer(record, info):
                    raise FormatError(
                        f"its reference, {info.dtype} {list(info.shape)}, does not fit",
                        path=self.where,
                        tensor=record.name,
                    )
                self._compare(reference, tensor_digest(base, reference.tensor))
                self._checked.add(reference)
        return reference_rows(base, info, grid, start, stop)

    def _compare(self, reference: TensorReference, found: str) -> None:
        if found != reference.digest:
            path = self._found[reference.base].path
            raise self._missing(
                reference.base, f"tensor {shown(reference.tensor)} of {path} is another"
            )

    def open(self, index: int) -> Checkpoint:
        """Return a base, found if it was not before."""
        with self._lock:
            if index not in self._found:
                self._found[index] = self._find(index)
            return self._found[index]

    def open_all(self) -> list[Path]:
        """Find the bases, and theirs; return where they are, the nearest first."""
        with self._lock:
            used = {r.reference.base for r in self.manifest.tensors.values() if r.reference}
            for index in () if self._is_complete else used:
                self.open(index).find_bases()
            self._is_complete = True
            return [path for path, _ in sorted(self.opened, key=lambda key: key[1])]

    def nbytes(self) -> int:
        """Return the size of the bases, and theirs, all of which are found."""
        self.open_all()
        return sum({path: file.nbytes for (path, _), file in self.opened.items()}.values())

    def close(self) -> None:
        """Release the files that were opened."""
        for file in self.opened.values():
            file.close()

    def _find(self, index: int) -> Checkpoint:
        if self.depth >= MAX_DEPTH:
            raise FormatError(
                f"is more than {MAX_DEPTH} bases deep; give an earlier base", path=self.where
            )
        base = self.manifest.bases[index]
        wrong: list[Path] = []
        for path in self._candidates(base):
            if path in wrong:
                continue
            with contextlib.suppress(TensorcompError):
                key = path, self.depth + 1
                file = self.opened.get(key) or self.open_file(
                    path, self.search, key[1], self.opened
                )
                if self._fits(index, file):
                    return self.opened.setdefault(key, file)
                if key not in self.opened:
                    file.close()
            wrong.append(path)
        given = [path for path in wrong if path in self.search]
        raise self._missing(index, f"{listed(list(map(str, given)))} is another" if given else "")

    def _missing(self, index: int, found: str) -> MissingBaseError:
        base = self.manifest.bases[index]
        places = [*map(str, self.search), str(self.path.parent)]
        found = found or f"found it neither by name nor by content in {listed(places)}"
        return MissingBaseError(
            f"is coded against {shown(base.name)} ({base.nbytes:,} bytes, digest {base.digest}): "
            f"{found}; give the file, or the folder it is in, by bases=…",
            path=self.where,
        )

    def _candidates(self, base: BaseRecord) -> Iterator[Path]:
        """Yield files that may be a base: those of its name first, then those of its size."""
        own = self.path
        folders = [path for path in self.search if path.is_dir()]
        yield from (path for path in self.search if path not in folders)
        if own != Path():
            folders.append(own.parent)
        for folder in folders:
            yield _beside(folder, base.name)
            if is_remote(folder):
                continue
            files = folder.glob("*" if folder == own.parent else "**/*")
            sizes: dict[Path, int] = {}
            with contextlib.suppress(OSError):
                sizes = {
                    path: path.stat().st_size
                    for path in files
                    if path.suffix in _SUFFIXES and path != own and path.is_file()
                }
            yield from sorted(
                sizes, key=lambda p: (p.name != Path(base.name).name, sizes[p] != base.nbytes, p)
            )

    def _fits(self, index: int, file: Checkpoint) -> bool:
        """Return whether a checkpoint has a base's tensors, as far as a quick look tells."""
        records = self.manifest.tensors.values()
        used = [r.reference for r in records if r.reference and r.reference.base == index]
        infos = {info.name: info for info in file.tensors}
        if not {file.aliases.get(one.tensor, one.tensor) for one in used} <= infos.keys():
            return False
        digests = [one for one in used if one.digest]
        known = [(one, file.known_digest(one.tensor)) for one in digests]
        if any(known_digest for _, known_digest in known):
            return all(known_digest in ("", one.digest) for one, known_digest in known)
        sizes = [infos[file.aliases.get(one.tensor, one.tensor)].nbytes for one in digests]
        # Relatives have equal tensors: a few do not tell them apart.
        few = sorted(zip(sizes, digests, strict=True))
        ends = itertools.accumulate(size for size, _ in few)
        looked = [one for (size, one), end in zip(few, ends, strict=True) if end - size < _LOOKED]
        return all(tensor_digest(file, one.tensor) == one.digest for one in looked)
