"""Recognise the files of compressed folders; write indexes of their shards."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tensorcomp._formatting import listed
from tensorcomp.checkpoints.base import Checkpoint
from tensorcomp.checkpoints.safetensors.file import SafetensorsFile
from tensorcomp.checkpoints.safetensors.header import MAX_HEADER_BYTES, PREFIX_BYTES
from tensorcomp.checkpoints.shards import read_index
from tensorcomp.container.manifest import METADATA_KEY, is_manifest
from tensorcomp.errors import CheckpointError

if TYPE_CHECKING:
    from tensorcomp.container.model import Model

COMPRESSED = ".tc.safetensors"
SAFETENSORS = ".safetensors"
_INDEX = ".tc.json"  # model.safetensors.index.tc.json, which hosts find as the variant "tc"
_HEAD_BYTES = 1 << 16


def is_compressed(checkpoint: Checkpoint) -> bool:
    """Return whether a safetensors file is one that `compress` wrote."""
    return is_manifest((checkpoint.metadata or {}).get(METADATA_KEY))


def is_compressed_file(path: Path) -> bool:
    """Return whether a file is one that `compress` wrote; never raise.

    Its metadata say so. An ordinary file costs a search in its header.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            size = int.from_bytes(head[:PREFIX_BYTES], "little")
            if size > MAX_HEADER_BYTES:
                return False
            head += file.read(max(size + PREFIX_BYTES - len(head), 0))
        if f'"{METADATA_KEY}"'.encode() not in head[: size + PREFIX_BYTES]:
            return False
        with SafetensorsFile(path) as checkpoint:
            return is_compressed(checkpoint)
    except (OSError, ValueError, CheckpointError):
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


def check_indexes(root: Path, files: Collection[Path], shards: Collection[Path]) -> frozenset[Path]:
    """Require the shards that the indexes of a compressed folder name.

    Parameters
    ----------
    root : Path
    files : collection of Path
        All files, relative to the folder.
    shards : collection of Path
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
        named = {file.with_name(name) for name in index.shards} if index is not None else set()
        if named.isdisjoint(shards):
            continue
        # In a folder that is being replaced, some are restored already.
        missing = [n.name for n in named if n not in files and _restored(n) not in files]
        if missing:
            raise CheckpointError(
                f"{len(missing):,} of {len(named):,} shards are missing: "
                f"{listed(sorted(missing))}; download them",
                path=root / file,
            )
        if file.name.endswith(_INDEX):
            written.add(file)
    return frozenset(written)


def _restored(shard: Path) -> Path:
    return shard.with_name(shard.name.removesuffix(COMPRESSED) + SAFETENSORS)
