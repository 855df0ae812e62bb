"""Put a compressed or restored file in the place of its source."""

from __future__ import annotations

import contextlib
import filecmp
import io
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tensorcomp._formatting import bytes_text
from tensorcomp.api.verify import verify
from tensorcomp.container.model import Model
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import CheckpointError, PlanError, TensorcompError, VerificationError
from tensorcomp.io.files import (
    atomic_file,
    free_bytes,
    held,
    reading,
    refuse_existing,
    sync,
    writing,
)
from tensorcomp.io.locations import is_remote
from tensorcomp.pipeline.summary import summarise

Replace: TypeAlias = bool | Literal["lossy"]

LINKED = "has links: to delete what they lead to, or are, frees nothing; leave out replace=True"
LOSES = (
    "expected nothing to be lost where the original is deleted, got what may lose; "
    "replace='lossy' allows it"
)


@dataclass
class Replacement:
    """A file, and the one that takes its place.

    At every instant one of them is whole: the new file gets its name once it is verified and on the
    disk, and then the old one is deleted.

    Parameters
    ----------
    source, target : Path
    replace : bool or "lossy"
    force : bool
        Replace a target that exists already.
    threads : int, optional
    restore : bool
        Whether the source is the compressed one, and not the target.

    Raises
    ------
    CheckpointError
        If deleting the source would free nothing.
    """

    source: Path
    target: Path
    replace: Replace
    threads: int | None
    force: bool
    restore: bool = False

    def __post_init__(self) -> None:
        self._before = self._state()
        self.size = self._before[2]
        if self.source.is_symlink() or self.source.lstat().st_nlink > 1:
            raise CheckpointError(LINKED, path=self.source)

    def is_left(self) -> bool:
        """Return whether the new file must be written; else a killed run has."""
        if self.restore:
            self._is_exact(self.source)
        if self.force or not self.target.exists():
            return True
        try:
            exact = self._check(self.target)
        except TensorcompError:
            refuse_existing(self.target, force=False)
            raise
        if exact:
            self._finish()
        return not exact  # of another budget, perhaps: made again, and compared

    @contextlib.contextmanager
    def create(self) -> Iterator[io.BufferedRandom]:
        """Open the new file; verify it at the end, name it, and delete the source."""
        with atomic_file(self.target, force=True) as file:
            yield file
            file.flush()
            new = Path(file.name)
            self._check(new)
            self._check_unchanged()
            is_same = self.target.exists() and filecmp.cmp(new, self.target, shallow=False)
            refuse_existing(self.target, force=self.force or is_same)
            shutil.copymode(self.source, new)
        self._finish()

    def _check(self, new: Path) -> bool:
        """Verify a new file on the disk; return whether it has lost nothing."""
        compressed, plain = (self.source, new) if self.restore else (new, self.source)
        exact = self._is_exact(compressed)
        # What a lossy file decodes to has another error than it records: none.
        against = plain if exact or not self.restore else None
        for check in verify(compressed, against, threads=self.threads):
            if check.error is not None:
                raise VerificationError(check.error)
        return exact

    def _is_exact(self, compressed: Path) -> bool:
        with CompressedFile(compressed) as file:
            exact = not summarise(file).lossy
        if not exact and self.replace != "lossy":
            raise PlanError(LOSES, path=self.source)
        return exact

    def _state(self) -> tuple[int, ...]:
        with reading(self.source):
            status = self.source.lstat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _check_unchanged(self) -> None:
        if self._state() != self._before:
            raise CheckpointError("was changed while it was read; run again", path=self.source)

    def _finish(self) -> None:
        sync(self.target, self.target.parent)
        with held(self.source if self.restore else self.target), writing(self.source):
            self._check_unchanged()
            if not self.target.is_file():
                raise CheckpointError("another run has removed it", path=self.target)
            self.source.unlink()


def require_room(targets: Sequence[Path], needed: int, target: Path) -> None:
    """Require free bytes; leftovers of killed runs count as free."""
    free = free_bytes(target.parent, targets)
    if free < needed:
        raise CheckpointError(
            f"expected about {bytes_text(needed)} free in {target.parent}, got {bytes_text(free)}; "
            "free some space, or give another folder by out=…",
            path=target,
        )


def check_model(model: Model, out: object) -> None:
    """Require local files without links, and no output given elsewhere."""
    if is_remote(model.path):
        raise CheckpointError(
            "expected local files to replace, got those of a store; leave out replace=True",
            path=model.path,
        )
    if not set(model.shards).isdisjoint(model.links.values()):
        raise CheckpointError(LINKED, path=model.path)
    if out is not None:
        raise CheckpointError("expected no out=… beside replace=True, got both; leave out one")
