"""Recognise the files of compressed folders; write indexes of their shards."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tensorcomp.checkpoints.safetensors.file import SafetensorsFile
from tensorcomp.checkpoints.safetensors.header import MAX_HEADER_BYTES, PREFIX_BYTES, header_bytes
from tensorcomp.checkpoints.shards import read_index, require_shards
from tensorcomp.container.manifest import METADATA_KEY, is_compressed
from tensorcomp.errors import CheckpointError
from tensorcomp.io.locations import is_remote

if TYPE_CHECKING:
    from tensorcomp.container.model import Model

COMPRESSED = ".tc.safetensors"
SAFETENSORS = ".safetensors"
_INDEX = ".tc.json"  # model.safetensors.index.tc.json, which hosts find as the variant "tc"
_HEAD_BYTES = 1 << 16
_MOST_BYTES = PREFIX_BYTES + MAX_HEADER_BYTES


def is_compressed_file(path: Path) -> bool:
    """Return whether a file is one that `compress` wrote; never raise.

    Its metadata say so. An ordinary file costs a search in its header.
    """
    try:
        if is_remote(path):
            with SafetensorsFile(path) as remote:
                return is_compressed(remote)
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            head += file.read(max(min(header_bytes(head), _MOST_BYTES) - len(head), 0))
        return is_compressed_data(head, path)
    except (OSError, ValueError, CheckpointError):
        return False


def is_compressed_data(head: bytes, source: Path | bytes | None = None) -> bool:
    """Return whether bytes begin a file that `compress` wrote; never raise.

    They reach to its data, at least. The file is `source`, unless they are all of it.
    """
    if f'"{METADATA_KEY}"'.encode() not in head[: header_bytes(head)]:
        return False
    try:
        with SafetensorsFile(head if source is None else source) as checkpoint:
            return is_compressed(checkpoint)
    except CheckpointError:
        return False


def indexes_for_hosts(model: Model, written: Mapping[Path, Path]) -> dict[Path, str]:
    """Return the indexes to write beside the ones of a folder.

    ``model.safetensors.index.tc.json`` is ``model.safetensors.index.json`` with the new names of
    shards.

    Parameters
    ----------
    model : Model
    written : mapping of Path to Path
        What each shard becomes, relative to the folder.
    """
    texts = {}
    for file in model.others:
        index = read_index(model.path / file)
        target = file.with_name(file.name.removesuffix(".json") + _INDEX)
        if index is None or not (index.whole or "").endswith(SAFETENSORS) or target in model.others:
            continue
        names = {name: written.get(file.with_name(name), file).name for name in index.shards}
        if all(name.endswith(COMPRESSED) for name in names.values()):
            content = json.loads((model.path / file).read_bytes())
            content["weight_map"] = {
                key: names[name] for key, name in (index.weight_map or {}).items()
            }
            texts[target] = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return texts


def check_indexes(root: Path, files: Collection[Path], shards: frozenset[Path]) -> frozenset[Path]:
    """Require the shards that the indexes of a compressed folder name.

    Parameters
    ----------
    root : Path
    files : collection of Path
        All files, relative to the folder.
    shards : frozenset of Path
        Those that are compressed.

    Returns
    -------
    frozenset of Path
        The indexes that `compress` wrote: they do not belong to the model.

    Raises
    ------
    CheckpointError
        If some of an index's shards are there and others are not.
    """
    written = set()
    for file in files:
        index = read_index(root / file)
        if index is None or shards.isdisjoint(map(file.with_name, index.shards)):
            continue
        here = {other.name for other in files if other.parent == file.parent}
        # In a folder that is being replaced, some are restored already.
        restored = {name for name in index.shards if _restored(name) in here}
        require_shards(index, here | restored)
        if file.name.endswith(_INDEX):
            written.add(file)
    return frozenset(written)


def _restored(name: str) -> str:
    return name.removesuffix(COMPRESSED) + SAFETENSORS
