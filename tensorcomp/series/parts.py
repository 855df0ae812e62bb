"""Store the files of a step as one checkpoint, and take them apart again.

A step may be one file, a folder of files, or a state in memory. Its tensors are those of all files,
one after the other; those of safetensors files have their own names, others ``FILE/NAME``. What
rebuilds each file is JSON in the metadata of the step's file.
"""

from __future__ import annotations

import contextlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate, TensorInfo
from tensorcomp.checkpoints.folder import walk_folder
from tensorcomp.checkpoints.layouts.layout import Layout, LayoutCheckpoint
from tensorcomp.checkpoints.open import restore
from tensorcomp.checkpoints.packing import unpack_structure
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.container.reader import CompressedFile, open_any
from tensorcomp.container.tensor_blob import checked_bytes
from tensorcomp.errors import PARSING_ERRORS, CheckpointError, FormatError, located
from tensorcomp.io.atomic_folder import atomic_folder
from tensorcomp.io.files import atomic_file
from tensorcomp.planning.roles.classify import roles_of
from tensorcomp.progress import Progress

Held = TypeVar("Held", bound=Checkpoint)
Place: TypeAlias = tuple[Checkpoint, TensorInfo]

KEY = "tensorcomp.series"
# Files of a state in memory.
MODEL_FILE, OPTIMIZER_FILE = "model.safetensors", "optimizer.safetensors"
EXTRA_FILE = "extra.safetensors"
_SUFFIX = ".safetensors"
_METADATA = {"format": "pt"}


def is_optimizer(role: str) -> bool:
    """Return whether tensors of a role are an optimizer's state."""
    return role.partition(".")[0] in ("moment", "optimizer", "step")


class View(Checkpoint):
    """Tensors of other checkpoints, perhaps under other names, as one file.

    Parameters
    ----------
    places : mapping of str to (Checkpoint, TensorInfo)
        Where each tensor is.
    template : SourceTemplate
        What rebuilds the file.
    nbytes : int
        Its size.
    aliases : mapping of str to str
    workers : Workers, optional
        Threads to decode chunks of compressed tensors on.
    """

    def __init__(
        self,
        places: Mapping[str, Place],
        template: SourceTemplate,
        nbytes: int,
        aliases: Mapping[str, str] = MappingProxyType({}),
        workers: Workers | None = None,
    ) -> None:
        self.places, self.kind, self.nbytes, self.aliases = places, template.format, nbytes, aliases
        self.tensors = tuple(replace(info, name=name) for name, (_, info) in places.items())
        self._template, self._workers = template, workers

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes."""
        source, info = self.places[name]
        return source.read(info.name)

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        """Yield a tensor's bytes."""
        source, info = self.places[name]
        if self._workers is None or not isinstance(source, CompressedFile):
            return source.iter_bytes(info.name)
        tensor = source.open_tensor(info.name)
        decoded = self._workers.in_order(tensor.decode_chunk, range(tensor.grid.count))
        return checked_bytes(tensor, (chunk for _, chunk in decoded))

    def is_exact(self, name: str) -> bool:
        """Return whether a tensor is what its file held."""
        source, info = self.places[name]
        return source.is_exact(info.name)

    def template(self) -> SourceTemplate:
        """Return what rebuilds the file."""
        return self._template


def joined(parts: Mapping[str, Checkpoint], about: Mapping[str, Any]) -> View:
    """Return the files of a step, by their paths, as one checkpoint.

    What is told `about` it, JSON values, is kept with it.
    """
    places: dict[str, Place] = {}
    aliases: dict[str, str] = {}
    described, has_state, nbytes = [], OPTIMIZER_FILE in parts, 0
    for file, part in parts.items():
        is_plain, template = part.kind == "safetensors" or len(parts) == 1, part.template()
        prefix = "" if is_plain else f"{_safe(file)}/"
        while not places.keys().isdisjoint(prefix + info.name for info in part.tensors):
            prefix = f"{file}/{prefix}"
        places |= {prefix + info.name: (part, info) for info in part.tensors}
        aliases |= {prefix + name: prefix + held for name, held in part.aliases.items()}
        has_state |= any(map(is_optimizer, roles_of(part.tensors).values()))
        nbytes += part.nbytes
        sizes = {"count": len(part.tensors), "nbytes": part.nbytes}
        rest = {
            "kind": template.kind,
            "structure": dict(template.structure),
            "attachments": {n: b64encode(d).decode() for n, d in template.attachments.items()},
        }
        names = {"file": file, "prefix": prefix, "aliases": dict(part.aliases)}
        described.append({**names, **sizes, **rest})
    told = {"source_bytes": nbytes, **about, "has_optimizer": has_state, "parts": described}
    whole = SourceTemplate("safetensors", {"metadata": {KEY: json.dumps(told)}})
    return View(places, whole, nbytes, aliases)


def weights_in(source: Checkpoint) -> View:
    """Return the weights of a file, without an optimizer's state, as another."""
    roles = roles_of(source.tensors)
    rest = set(unpack_structure(source.template()).get("hidden", ()))
    rest.update(name for name, role in roles.items() if is_optimizer(role))
    kept = {info.name: info for info in source.tensors if info.name not in rest}
    # A safetensors file has no aliases: a tied tensor is there under both names.
    kept |= {name: kept[held] for name, held in source.aliases.items() if held in kept}
    nbytes = len(build_header(list(kept.values()), _METADATA))
    nbytes += sum(info.nbytes for info in kept.values())
    template = SourceTemplate("safetensors", {"metadata": _METADATA})
    return View({name: (source, info) for name, info in kept.items()}, template, nbytes)


def without_optimizer(parts: Mapping[str, Checkpoint]) -> dict[str, Checkpoint]:
    """Return the files of a step without those of an optimizer's state.

    Of a file that holds weights as well, these are left, as a safetensors file.
    """
    kept: dict[str, Checkpoint] = {}
    for file, part in parts.items():
        roles = roles_of(part.tensors)
        if file == OPTIMIZER_FILE or any(map(is_optimizer, roles.values())):
            weights = weights_in(part)
            if weights.tensors:
                kept[f"{file.removesuffix(_SUFFIX)}{_SUFFIX}"] = weights
        else:
            kept[file] = part
    return kept


def weights_of(parts: Mapping[str, Checkpoint]) -> Checkpoint:
    """Return the weights of a step as one safetensors file."""
    found = weight_files(parts)
    return weights_in(joined({name: weights_in(part) for name, part in found.items()}, {}))


def weight_files(parts: Mapping[str, Held]) -> dict[str, Held]:
    """Return the files that hold weights: safetensors files, or else all."""
    held = {name: part for name, part in parts.items() if name not in (OPTIMIZER_FILE, EXTRA_FILE)}
    return {name: part for name, part in held.items() if part.kind == "safetensors"} or held


def open_files(path: Path, stack: contextlib.ExitStack) -> dict[str, Checkpoint]:
    """Open a checkpoint file, or all files of a folder, unknown ones as bytes.

    Raises
    ------
    CheckpointError
        If there is none, or one cannot be read.
    """
    if not path.is_dir():
        return {path.name: stack.enter_context(open_any(path))}
    files = walk_folder(path)[0]
    if not files:
        raise CheckpointError("is an empty folder; give that of a checkpoint", path=path)
    return {file.as_posix(): stack.enter_context(_opened(path / file)) for file in files}


def _opened(path: Path) -> Checkpoint:
    try:
        return open_any(path)
    except CheckpointError:  # a text, or damaged: kept as it is
        return LayoutCheckpoint(path, Layout("bytes", ()))


def about_step(file: CompressedFile) -> dict[str, Any]:
    """Return what the file of a step says of it.

    Raises `FormatError` if it is no file of a step.
    """
    try:
        return dict(json.loads(file.manifest.template.structure["metadata"][KEY]))
    except PARSING_ERRORS as error:
        raise FormatError("is not the file of a step of a series", path=file.where) from error


def open_parts(file: CompressedFile, workers: Workers | None = None) -> dict[str, View]:
    """Return the files of an open step, by their paths."""
    parts: dict[str, View] = {}
    start = 0
    with located(path=file.where):
        try:
            for about in about_step(file)["parts"]:
                infos, prefix = file.tensors[start : start + about["count"]], about["prefix"]
                places = {info.name.removeprefix(prefix): (file, info) for info in infos}
                packed = {name: b64decode(data) for name, data in about["attachments"].items()}
                template = SourceTemplate(about["kind"], about["structure"], packed)
                sizes = about["nbytes"], about["aliases"]
                parts[_safe(about["file"])] = View(places, template, *sizes, workers)
                start += len(infos)
        except PARSING_ERRORS as error:
            raise FormatError(f"what it says of its files is damaged ({error!r})") from error
    return parts


def _safe(file: str) -> str:
    """Return a path that stays in its folder."""
    path = PurePosixPath(file)
    is_text = file.isascii() or file == file.encode(errors="replace").decode()
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in file or not is_text:
        raise FormatError(
            f"expected a file in its folder, in Unicode without backslash, got {shown(file)}"
        )
    return file


def write_parts(
    parts: Mapping[str, Checkpoint], out: Path, progress: Progress, *, force: bool
) -> None:
    """Write a file, or a folder of several, as they were."""
    progress.begin(len(parts), sum(part.nbytes for part in parts.values()))
    if len(parts) == 1:
        ((name, part),) = parts.items()
        with atomic_file(out, force=force) as file:
            restore(part.template(), part, file)
        progress.advance(name, part.nbytes)
        return
    with atomic_folder(out, [PurePath(name) for name in parts], force=force) as folder:
        for name, part in parts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(folder / name, force=True) as file:
                restore(part.template(), part, file)
            progress.advance(name, part.nbytes)
