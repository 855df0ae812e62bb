"""Find the bases of a compressed file by their content."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import xxhash

from tensorcomp._formatting import listed, shown
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.container.chunk_grid import ChunkGrid
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.records import DIGEST_DIGITS, BaseRecord, TensorRecord, TensorReference
from tensorcomp.container.reference_tensors import (
    bundle_reference,
    may_refer,
    reference_rows,
    tensor_digest,
    tensor_info,
)
from tensorcomp.errors import FormatError, MissingBaseError, TensorcompError
from tensorcomp.io.locations import is_remote

MAX_DEPTH = 64  # of a chain of bases
_LOOKED = 1 << 26  # bytes of small tensors by which a base that is not compressed is told
Opened = dict[tuple[Path, int], Checkpoint]
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz", ".gguf", ".h5", ".onnx")


def _beside(folder: Path, name: str) -> Path:
    """Return a path relative to a folder; stores know no `..`, and chains of them grow."""
    if not is_remote(folder):
        return Path(os.path.normpath(folder / name))
    parts = PurePosixPath(name).parts
    return functools.reduce(lambda at, p: at.parent if p == ".." else at / p, parts, folder)


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
            records = self.manifest.tensors.values()
            held = ((r.nbytes, r.reference) for r in records if r.bundle == record.name)
            joined = bundle_reference(
                grid, ((n, one and (self.open(one.base), one.tensor)) for n, one in held)
            )
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
