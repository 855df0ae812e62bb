"""Find the tensors of torch files, zipped, legacy or distributed.

Pickles are never loaded (see `pickle_reader` and `torch_tensors`). A tensor is known by the path
to it: dict keys, list indices and attributes, joined by dots.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tensorcomp._formatting import shown, unique_name
from tensorcomp._log import LOGGER
from tensorcomp.checkpoints.base import file_bytes
from tensorcomp.checkpoints.layouts.layout import Array, Layout
from tensorcomp.checkpoints.layouts.pickle_objects import Made, walk
from tensorcomp.checkpoints.layouts.pickle_reader import BytesReader, read_pickle
from tensorcomp.checkpoints.layouts.torch_tensors import (
    NestedObjects,
    Storage,
    StoredTensor,
    read_objects,
    storages,
)
from tensorcomp.checkpoints.layouts.zip_members import archives, packed_notes, stored_members
from tensorcomp.checkpoints.safetensors.header import METADATA_KEY
from tensorcomp.dtypes import dtype_bits
from tensorcomp.errors import CheckpointError, located

_LEAST_REST = 4096  # bytes of a storage outside its tensors that are an array, too


@dataclass
class _Found:
    """Arrays and aliases found so far, under names of their own."""

    arrays: list[Array] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: {METADATA_KEY})
    notes: list[str] = field(default_factory=list)
    objects: NestedObjects | None = None

    def add(
        self,
        objects: Any,
        place: Callable[[str], tuple[int, int] | None],
        root: tuple[str, ...] = (),
        *,
        swapped: bool = False,
    ) -> None:
        """Add the tensors that objects hold; `place` says where a storage's bytes are."""
        tensors: dict[Storage, list[tuple[str, StoredTensor]]] = {}
        for path, item in walk(objects):
            if isinstance(item, (StoredTensor, Storage)):
                text = ".".join([*root, *path]) if root or path else "tensor"
                name = unique_name(text, self.taken)
                storage = item if isinstance(item, Storage) else item.storage
                held = tensors.setdefault(storage, [])
                if isinstance(item, StoredTensor):
                    held.append((name, item))
                elif not held:
                    held.append((name, StoredTensor(storage, 0, (storage.size,), (1,))))
        self.objects = NestedObjects(objects, {})
        seen: dict[str, Storage] = {}
        for storage, held in tensors.items():
            found = place(storage.key)
            bits = dtype_bits(storage.dtype or "")
            # One storage seen as two types is taken as the first.
            if found is not None and bits and seen.setdefault(storage.key, storage) == storage:
                start, nbytes = found
                if nbytes == storage.size * bits // 8:
                    self._add_storage(storage, start, bits // 8, held, swapped)

    def _add_storage(
        self,
        storage: Storage,
        start: int,
        width: int,
        tensors: Sequence[tuple[str, StoredTensor]],
        swapped: bool,
    ) -> None:
        """Add the tensors of a storage that do not overlap, larger ones first, and the rest."""
        assert storage.dtype is not None
        assert self.objects is not None
        kept = self.objects.names
        edges: list[int] = []  # of what is taken, in pairs
        dtype, swapped = storage.dtype, swapped and width > 1

        def add(name: str, begin: int, shape: tuple[int, ...], axes: tuple[int, ...] = ()) -> None:
            place = start + begin * width, math.prod(shape) * width
            self.arrays.append(Array(name, dtype, shape, *place, axes, swapped))

        for name, tensor in sorted(tensors, key=lambda held: -math.prod(held[1].shape)):
            size = math.prod(tensor.shape)
            begin, end = tensor.offset, tensor.offset + size
            axes = tensor.axes
            if axes is None or end > storage.size:
                continue
            if tensor in kept:
                self.aliases[name] = kept[tensor]
                continue
            at = bisect_left(edges, end) if size else 0
            if size and (at % 2 or (at and edges[at - 1] > begin)):
                continue
            if size:
                edges[at:at] = [begin, end]
                kept[tensor] = name
            is_plain = axes == tuple(range(len(axes)))
            add(name, begin, tensor.shape, () if is_plain else axes)
        for begin, end in zip([0, *edges[1::2]], [*edges[::2], storage.size], strict=True):
            if (end - begin) * width >= _LEAST_REST:
                add(unique_name(f"{tensors[0][0]}.storage", self.taken), begin, (end - begin,))

    def layout(self, kind: str) -> Layout:
        """Return what was found; the objects are of use where they are those of one pickle."""
        objects = self.objects if kind == "torch" else None
        return Layout(kind, self.arrays, self.aliases, objects, self.notes or None)


def torch_layout(path: Path) -> Layout:
    """Find the tensors of a torch file, or TorchScript program."""
    data = file_bytes(path)
    if data[:2].tobytes() != b"PK":
        return _legacy_layout(path, data)
    found = _Found()
    _add_zip(found, path, data, 0, data.size)
    found.notes += packed_notes(path)
    return found.layout("torch")


def _add_zip(
    found: _Found,
    path: Path,
    data: np.ndarray,
    start: int,
    stop: int,
    root: tuple[str, ...] = (),
) -> None:
    """Add the tensors of the archive at a place of the file."""
    members = stored_members(path, start, stop)

    def content(name: str) -> BytesReader:
        member = members[name]
        return BytesReader(data[member.start : member.start + member.size])

    for name in members:
        pickle = PurePosixPath(name)
        if pickle.name not in ("data.pkl", "constants.pkl"):
            continue
        folder = f"{pickle.with_suffix('')}/"
        places = {
            member.removeprefix(folder): (at.start, at.size)
            for member, at in members.items()
            if member.startswith(folder)
        }
        order = str(pickle.with_name("byteorder"))
        swapped = order in members and content(order).read(4) == b"big"
        try:
            objects = read_objects(content(name))
        except CheckpointError as error:
            found.notes.append(f"{shown(name)} {error.message}; its tensors compressed as bytes")
        else:
            found.add(objects, places.get, root, swapped=swapped)


def _legacy_layout(path: Path, data: np.ndarray) -> Layout:
    """Find the tensors of a torch file that is no zip archive.

    Four pickles (a magic number, the version, the machine, the objects) and that of the storages'
    keys are followed by each storage: the number of its elements in 8 bytes, and its bytes.
    """
    found, file = _Found(), BytesReader(data)
    with located(path=path):
        _, _, system, objects, keys = (read_objects(file) for _ in range(5))
        known = {storage.key: storage for storage in storages(objects)}
        places = {}
        for key in keys if isinstance(keys, list) else ():
            storage = known.get(key)
            count = int.from_bytes(file.read(8), "little")
            if storage is None:
                break
            nbytes = storage.size * (dtype_bits(storage.dtype or "") or 0) // 8
            if count not in (storage.size, nbytes):  # elements, or bytes of untyped storages
                break
            places[key] = file.position, nbytes
            file.position += nbytes
        if file.position > data.size:
            raise CheckpointError(
                "ends before the last of its tensors; it is cut short: get it again"
            )
        swapped = isinstance(system, dict) and system.get("little_endian") is False
        found.add(objects, places.get, swapped=swapped)
    return found.layout("torch")


def distributed_layout(path: Path) -> Layout:
    """Find the tensors of a part of a distributed checkpoint, archives in a row."""
    names, data = _names_by_offset(path), file_bytes(path)
    found = _Found()
    for number, (start, stop) in enumerate(archives(data)):
        _add_zip(found, path, data, start, stop, (names.get(start, str(number)),))
    return found.layout("distcp")


def _names_by_offset(path: Path) -> dict[int, str]:
    """Return the names of the tensors by where they begin, as the folder's metadata say."""
    names = {}
    for key, place in _places(path.with_name(".metadata")).items():
        name, offset = _attribute(key, "fqn", None), _attribute(place, "offset", None)
        is_here = _attribute(place, "relative_path", None) == path.name
        if is_here and isinstance(name, str) and isinstance(offset, int):
            names[offset] = name
    return names


def stored_files(metadata: Path) -> set[str]:
    """Return the files that the metadata of a distributed checkpoint name.

    There are none without metadata.
    """
    return {_attribute(place, "relative_path", "") for place in _places(metadata).values()}


def _places(metadata: Path) -> dict[Any, Any]:
    """Return where each tensor of a distributed checkpoint lies; nothing if nothing says it."""
    if not metadata.is_file():
        return {}
    try:
        value = read_pickle(BytesReader(file_bytes(metadata)))
    except CheckpointError as error:
        LOGGER.warning("%s: %s; tensors are numbered", metadata, error.message)
        return {}
    places: dict[Any, Any] = _attribute(value, "storage_data", {})
    return places


def _attribute(value: Any, name: str, default: Any) -> Any:
    """Return an attribute of an object that a pickle describes."""
    state = value.state if isinstance(value, Made) else None
    found = state.get(name, default) if isinstance(state, dict) else default
    return found if default is None or isinstance(found, type(default)) else default
