"""Open models, compressed or not, and name their outputs."""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tensorcomp._formatting import printable, shown
from tensorcomp._log import LOGGER
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.checkpoints.folder import scan_folder, walk_folder
from tensorcomp.checkpoints.open import describe_unknown, detect_format, open_checkpoint
from tensorcomp.container.compressed_folder import (
    COMPRESSED,
    SAFETENSORS,
    check_indexes,
    is_compressed_file,
)
from tensorcomp.container.job_folder import refuse_partial
from tensorcomp.container.manifest import is_compressed
from tensorcomp.container.reader import CompressedFile, open_any
from tensorcomp.errors import CheckpointError, MissingFileError
from tensorcomp.io.files import file_size
from tensorcomp.io.locations import is_remote, location

BasePaths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
FOLDER = ".tc"
# Suffixes that are of one format only, and those that a format has by default.
_FORMATS = {SAFETENSORS: "safetensors", ".pt": "torch", ".pth": "torch"} | {
    f".{name}": name for name in ("npz", "npy", "gguf", "onnx", "keras")
}
_SUFFIXES = {"torch": ".pt", "hdf5": ".h5", "onnx-data": ".onnx.data", "bytes": ".bin"}


class Copied(NamedTuple):
    """Files of a folder that are not compressed.

    Parameters
    ----------
    files, bytes : int
        Their number and size.
    unread : dict of str to str
        Those that are checkpoints which cannot be read, and why.
    """

    files: int
    bytes: int
    unread: dict[str, str]


@dataclass(frozen=True)
class Model:
    """Checkpoint files of a model; a single file is its only shard.

    Parameters
    ----------
    path : Path
        The file or folder.
    shards : tuple of Path
        Relative to `path`; of a single file, its name.
    others : tuple of Path
        The folder's other files, relative to it.
    is_folder : bool
    unread : dict of str to str
        Those of `others` that are checkpoints which cannot be read, and why.
    links : mapping of Path to Path
        Further names of shards and of other files.
    copies : mapping of Path to Path
        Local copies of shards in an object store; see `with_copies`.
    replaced : mapping of Path to Path
        Shards whose place compressed files have taken, and which.
    bases : sequence of Path
        Files and folders to find bases of compressed shards in.
    indexes : frozenset of Path
        Indexes that `compress` wrote for hosts, in none of the above.
    """

    path: Path
    shards: tuple[Path, ...]
    others: tuple[Path, ...] = ()
    is_folder: bool = False
    unread: dict[str, str] = field(default_factory=dict)
    links: Mapping[Path, Path] = field(default_factory=dict)
    replaced: Mapping[Path, Path] = field(default_factory=dict)
    indexes: frozenset[Path] = frozenset()
    copies: Mapping[Path, Path] = field(default_factory=dict)
    bases: Sequence[Path] = ()

    @functools.cached_property
    def copied(self) -> Copied | None:
        """The folder's other files; None for a single file."""
        if not self.is_folder:
            return None
        nbytes = sum(file_size(self.path / file) for file in self.others)
        return Copied(len(self.others), nbytes, self.unread)

    @property
    def names(self) -> tuple[Path, ...]:
        """All names of the shards."""
        return (*self.shards, *(link for link, file in self.links.items() if file in self.shards))

    def file(self, shard: Path) -> Path:
        """Return the path of a shard, or of what has taken its place."""
        if shard in self.copies:
            return self.copies[shard]
        return self.path / self.replaced.get(shard, shard) if self.is_folder else self.path

    def label(self, shard: Path) -> str | None:
        """Return the name of a shard, where it is one of a folder's."""
        return shard.as_posix() if self.is_folder else None

    def open(self, shard: Path, depth: int = 0) -> Checkpoint:
        """Open a shard, a base of `depth` files; a compressed one is read decoded."""
        return open_any(self.file(shard), self.bases, depth)

    def keys(self) -> dict[Path, dict[str, str]]:
        """Return for each shard a key of each tensor, unique in the model.

        That is their name; behind the shard's path and a colon, where several shards have the name.
        """
        names = {shard: self._names(shard) for shard in self.shards}
        shards_with = Counter(name for shard in names.values() for name in shard)

        def key(shard: Path, name: str) -> str:
            return name if shards_with[name] == 1 else f"{shard.as_posix()}:{name}"

        return {shard: {name: key(shard, name) for name in own} for shard, own in names.items()}

    def _names(self, shard: Path) -> list[str]:
        with self.open(shard) as checkpoint:
            return [info.name for info in checkpoint.tensors]


def open_model(
    path: str | os.PathLike[str],
    *,
    compressed: bool | None = None,
    stand_ins: bool = False,
    bases: BasePaths = (),
) -> Model:
    """Return the model at a path: a file, or the shards of a folder.

    Parameters
    ----------
    path : str or path-like
    compressed : bool, optional
        Whether a folder's compressed files or its other checkpoints are meant; by default those, if
        there are any.
    stand_ins : bool
        Whether compressed files may have taken the place of a folder's other checkpoints.
    bases : path or iterable of paths
        Files and folders to find bases of compressed shards in.

    Raises
    ------
    CheckpointError
        If a folder holds none, or its shards and indexes do not agree.
    """
    path, search = location(path), base_paths(bases)
    if not path.is_dir():
        return Model(path, (Path(path.name),), bases=search)
    refuse_partial(path)
    replaced: dict[Path, Path] = {}
    indexes: frozenset[Path] = frozenset()
    if compressed is not False or stand_ins:  # else scan_folder alone walks the folder
        files, links = walk_folder(path)
        shards = tuple(file for file in files if _is_shard(path, file, by_name=stand_ins))
        indexes = check_indexes(path, files, frozenset(shards))
        if stand_ins:
            restored = restored_shards(Model(path, shards, is_folder=True))[0]
            replaced = {original: shard for shard, original in restored.items()}
        elif shards:
            others = tuple(file for file in files if file not in indexes.union(shards))
            return Model(
                path,
                shards,
                others,
                is_folder=True,
                links=links,
                indexes=indexes,
                bases=search,
            )
    found = scan_folder(path, replaced, indexes)
    if compressed:
        raise CheckpointError(
            f"{path}: holds no *{COMPRESSED} file; give a folder that was compressed"
        )
    gone = {shard: other for shard, other in replaced.items() if not (path / shard).exists()}
    return Model(path, found.weights, found.others, True, found.unread, found.links, gone)


def base_paths(bases: BasePaths) -> tuple[Path, ...]:
    """Return the paths of bases as a tuple.

    Raises
    ------
    MissingFileError
        If one is not there.
    """
    given = [bases] if isinstance(bases, (str, os.PathLike)) else bases
    paths = tuple(map(location, given))
    for path in paths:
        if not path.exists():
            raise MissingFileError("expected a file or folder of bases, found nothing", path=path)
    return paths


def _is_shard(root: Path, file: Path, *, by_name: bool) -> bool:
    """Return whether a file is a compressed shard; one that kept its name has taken no place."""
    if file.name.endswith(COMPRESSED) or by_name:
        return file.name.endswith(COMPRESSED)
    return file.suffix == SAFETENSORS and is_compressed_file(root / file)


def default_output(source: Path) -> Path:
    """Return the default output path of `compress`."""
    if source.is_dir():
        return source.resolve().with_name(source.resolve().name + FOLDER)
    return compressed_path(source, detect_format(source))


def compressed_path(source: Path, kind: str) -> Path:
    """Return the path of a compressed file, such as model.pt.tc.safetensors.

    A name that is not usual for the kind of file is kept whole, before a second dot.
    """
    usual = source.name.removesuffix(SAFETENSORS) + COMPRESSED
    is_usual = restored_name(usual, kind) == source.name
    return source.with_name(usual if is_usual else f"{source.name}.{COMPRESSED}")


def output_names(model: Model, *, keep_names: bool) -> dict[Path, Path]:
    """Return the path that each name of a shard has in a compressed folder.

    Safetensors files alone can keep theirs: a host takes others for what their names say.
    """
    written = {}
    for shard in model.names:
        kind = detect_format(model.file(shard))
        same = kind == "safetensors" and restored_name(shard.name, kind) == shard.name
        written[shard] = shard if keep_names and same else compressed_path(shard, kind)
    return written


def restored_name(name: str, kind: str) -> str:
    """Return the name of the file of this kind that a compressed file restores."""
    stem, suffix = name.removesuffix(COMPRESSED), _SUFFIXES.get(kind, f".{kind}")
    if stem == name:  # `compress` was given that
        return name if name.endswith(suffix) else name + suffix
    if stem.endswith(".") and stem.strip("."):
        return stem[:-1]
    return stem if "." in stem and kind != "safetensors" else stem + suffix


def refuse_suffix(source: Path, target: Path, kind: str) -> None:
    """Require that an output's name is not that of another kind of checkpoint."""
    is_named_so = kind not in ("bytes", "distcp")  # by content alone
    if is_named_so and _FORMATS.get(target.suffix.lower(), kind) != kind:
        names = f"expected a name for a {printable(kind)} file, got {shown(target.name)}"
        raise CheckpointError(f"{names}; give another by out=…", path=source)


def restored_shards(model: Model) -> tuple[dict[Path, Path], int]:
    """Return the restored path of each compressed shard, and the decoded bytes.

    The paths are by all names of a shard.
    """
    restored, nbytes = {}, 0
    for shard in model.names:
        with CompressedFile(model.file(shard)) as opened:
            restored[shard] = shard.with_name(restored_name(shard.name, opened.template().format))
            nbytes += sum(info.nbytes for info in opened.tensors) if shard not in model.links else 0
    return restored, nbytes


@contextlib.contextmanager
def open_original(path: Path) -> Iterator[Checkpoint]:
    """Open a checkpoint that is not compressed.

    Raises `CheckpointError` if it cannot be read, or is compressed.
    """
    with open_checkpoint(path) as checkpoint:
        if is_compressed(checkpoint):
            raise CheckpointError(
                "tensorcomp has compressed it already; decompress it first", path=path
            )
        notes = checkpoint.notes
        if notes is None and checkpoint.tensors and not checkpoint.arrays:
            is_known = checkpoint.kind != "bytes"
            what = f"of the format {checkpoint.kind}, and has no arrays" if is_known else ""
            notes = (f"is {what or describe_unknown(path)}; compressed as bytes",)
        for note in notes or ():
            _warn(path, note)
        yield checkpoint


@functools.lru_cache(1 << 10)
def _warn(path: Path, note: str) -> None:
    """Say once what of a file is taken as bytes."""
    LOGGER.warning("%s: %s", printable(str(path)), note)


def refuse_itself(source: Path, target: Path) -> None:
    """Raise `CheckpointError` if an output would replace its input."""
    if is_remote(target) != is_remote(source):
        return
    if target.exists() and source.exists() and target.samefile(source):
        raise CheckpointError(
            "the output would replace the input; give another by out=…", path=source
        )


def refuse_bases(files: Iterable[Checkpoint], target: Path) -> None:
    """Raise `CheckpointError` if an output would replace files or their bases."""
    if not target.exists():
        return
    remote = is_remote(target)
    outer = target if remote else Path(os.path.realpath(target))
    for path in (one for file in files for one in (file.path, *file.find_bases())):
        if path == Path() or is_remote(path) != remote:  # in memory, or elsewhere
            continue
        real = path if remote else Path(os.path.realpath(path))
        if real.is_relative_to(outer):
            raise CheckpointError(
                "the output would replace this base; give another by out=…", path=path
            )
