"""Store the files of a step as one checkpoint, and take them apart again.

A step may be one file, a folder of files, or a state in memory. Its tensors are those of all files,
one after the other; those of safetensors files have their own names, others ``FILE/NAME``. What
rebuilds each file is JSON in the metadata of the step's file.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, TypeVar

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

Held = TypeVar("Held", bound=Checkpoint)

KEY = "tensorcomp.series"
# Files of a state in memory.
MODEL_FILE, OPTIMIZER_FILE = "model.safetensors", "optimizer.safetensors"
EXTRA_FILE = "extra.safetensors"
_SUFFIX = ".safetensors"
_METADATA = {"format": "pt"}


def is_optimizer(role: str) -> bool:
    """Return whether tensors of a role are an optimizer's state."""
    return role.partition(".")[0] in ("moment", "optimizer", "step")


class JoinedCheckpoint(Checkpoint):
    """Files of a step as one checkpoint.

    Parameters
    ----------
    parts : mapping of str to Checkpoint
        By their paths.
    about : mapping
        JSON values that are kept with the step.
    """

    def __init__(self, parts: Mapping[str, Checkpoint], about: Mapping[str, Any]) -> None:
        self._places: dict[str, tuple[Checkpoint, str]] = {}
        infos: list[TensorInfo] = []
        described: list[dict[str, Any]] = []
        aliases: dict[str, str] = {}
        for file, part in parts.items():
            own = [info.name for info in part.tensors]
            is_plain = part.kind == "safetensors" or len(parts) == 1
            prefix = "" if is_plain and self._places.keys().isdisjoint(own) else f"{file}/"
            for info in part.tensors:
                name = prefix + info.name
                self._places[name] = part, info.name
                infos.append(_named(info, name))
            aliases |= {prefix + name: prefix + held for name, held in part.aliases.items()}
            described.append(_part_to_json(file, prefix, part))
        self.tensors, self.aliases = tuple(infos), aliases
        self.nbytes = sum(part.nbytes for part in parts.values())
        has_state = any(map(is_optimizer, roles_of(infos).values()))
        held = {"has_optimizer": has_state or OPTIMIZER_FILE in parts, "parts": described}
        self._about = {"source_bytes": self.nbytes, **about, **held}

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes."""
        part, own = self._places[name]
        return part.read(own)

    def template(self) -> SourceTemplate:
        """Return what makes a safetensors file of all, and tells its parts."""
        return SourceTemplate("safetensors", {"metadata": {KEY: json.dumps(self._about)}})


def _named(info: TensorInfo, name: str) -> TensorInfo:
    return replace(info, name=name)


def _part_to_json(file: str, prefix: str, part: Checkpoint) -> dict[str, Any]:
    template = part.template()
    plain = template.attachments.items()
    return {
        "file": file,
        "prefix": prefix,
        "count": len(part.tensors),
        "aliases": dict(part.aliases),
        "nbytes": part.nbytes,
        "kind": template.kind,
        "structure": dict(template.structure),
        "attachments": {name: base64.b64encode(data).decode() for name, data in plain},
    }


class Part(Checkpoint):
    """One file of a step that is open, as it was before it was joined to others.

    Parameters
    ----------
    step : CompressedFile
    about : mapping
        The part's description.
    infos : sequence of TensorInfo
        Its tensors in the step.
    workers : Workers, optional
        Threads to decode chunks on.
    """

    def __init__(
        self,
        step: CompressedFile,
        about: Mapping[str, Any],
        infos: tuple[TensorInfo, ...],
        workers: Workers | None = None,
    ) -> None:
        self._step, self._prefix, self._workers = step, str(about["prefix"]), workers
        self.stored_names = tuple(info.name for info in infos)
        names = [name.removeprefix(self._prefix) for name in self.stored_names]
        self.tensors = tuple(map(_named, infos, names))
        packed = about["attachments"].items()
        attachments = {name: base64.b64decode(data, validate=True) for name, data in packed}
        self._template = SourceTemplate(about["kind"], dict(about["structure"]), attachments)
        self.kind, self.nbytes = self._template.format, int(about["nbytes"])
        self.aliases = dict(about["aliases"])

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes."""
        return self._step.read(self._prefix + name)

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        """Yield a tensor's bytes."""
        tensor = self._step.open_tensor(self._prefix + name)
        if self._workers is None or tensor.grid.count == 1:
            return checked_bytes(tensor)
        decoded = self._workers.in_order(tensor.decode_chunk, range(tensor.grid.count))
        return checked_bytes(tensor, (chunk for _, chunk in decoded))

    def is_exact(self, name: str) -> bool:
        """Return whether a tensor is what the file held."""
        return self._step.is_exact(self._prefix + name)

    def template(self) -> SourceTemplate:
        """Return what rebuilds the file."""
        return self._template


class Weights(Checkpoint):
    """Weights of a checkpoint, without an optimizer's state.

    Parameters
    ----------
    source : Checkpoint
    """

    def __init__(self, source: Checkpoint) -> None:
        self._source = source
        roles = roles_of(source.tensors)
        rest = set(unpack_structure(source.template()).get("hidden", ()))
        rest.update(name for name, role in roles.items() if is_optimizer(role))
        kept = {info.name: info for info in source.tensors if info.name not in rest}
        # A safetensors file has no aliases: a tied tensor is there under both names.
        tied = {name: kept[held] for name, held in source.aliases.items() if held in kept}
        self._names = {name: info.name for name, info in (kept | tied).items()}
        self.tensors = tuple(_named(info, name) for name, info in (kept | tied).items())
        header = build_header(self.tensors, _METADATA)
        self.nbytes = len(header) + sum(info.nbytes for info in self.tensors)

    def read(self, name: str) -> np.ndarray:
        """Return a tensor's bytes."""
        return self._source.read(self._names[name])

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        """Yield a tensor's bytes."""
        return self._source.iter_bytes(self._names[name])

    def template(self) -> SourceTemplate:
        """Return what a safetensors file of the weights needs besides them."""
        return SourceTemplate("safetensors", {"metadata": _METADATA})


def without_optimizer(parts: Mapping[str, Checkpoint]) -> dict[str, Checkpoint]:
    """Return the files of a step without those of an optimizer's state.

    Of a file that holds weights as well, these are left, as a safetensors file.
    """
    kept: dict[str, Checkpoint] = {}
    for file, part in parts.items():
        roles = roles_of(part.tensors)
        if file == OPTIMIZER_FILE or any(map(is_optimizer, roles.values())):
            weights = Weights(part)
            if weights.tensors:
                kept[f"{file.removesuffix(_SUFFIX)}{_SUFFIX}"] = weights
        else:
            kept[file] = part
    return kept


def weights_of(parts: Mapping[str, Checkpoint]) -> Checkpoint:
    """Return the weights of a step as one safetensors file."""
    found = weight_files(parts)
    return Weights(JoinedCheckpoint({name: Weights(part) for name, part in found.items()}, {}))


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
    files = [file for file in walk_folder(path)[0] if (path / file).stat().st_size]
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


def open_parts(file: CompressedFile, workers: Workers | None = None) -> dict[str, Part]:
    """Return the files of an open step, by their paths."""
    parts: dict[str, Part] = {}
    start = 0
    with located(path=file.where):
        try:
            for about in about_step(file)["parts"]:
                stop = start + about["count"]
                parts[_safe(about["file"])] = Part(file, about, file.tensors[start:stop], workers)
                start = stop
        except PARSING_ERRORS as error:
            raise FormatError(f"what it says of its files is damaged ({error!r})") from error
    return parts


def _safe(file: str) -> str:
    """Return a path that stays in its folder."""
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in file:
        raise FormatError(f"names a file outside its folder: {shown(file)}")
    return file


def write_parts(parts: Mapping[str, Checkpoint], out: Path, *, force: bool) -> None:
    """Write a file, or a folder of several, as they were."""
    if len(parts) == 1:
        (part,) = parts.values()
        with atomic_file(out, force=force) as file:
            restore(part.template(), part, file)
        return
    with atomic_folder(out, [PurePath(name) for name in parts], force=force) as folder:
        for name, part in parts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(folder / name, force=True) as file:
                restore(part.template(), part, file)
