"""Read indexes of shards, and check shards against them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tensorcomp._formatting import listed, shown
from tensorcomp.checkpoints.safetensors.file import SafetensorsFile
from tensorcomp.errors import CheckpointError, located
from tensorcomp.io.files import file_size, reading

# model.safetensors.index.json, pytorch_model.bin.index.json, and variants of them:
# model.safetensors.index.fp16.json
_INDEX_NAME = re.compile(r"(?P<whole>.+\.(?:safetensors|bin))\.index(?:\.[\w-]+)*\.json", re.DOTALL)
_SHARD_NAME = re.compile(
    r"(?P<stem>.+?)-[0-9]{5}-of-(?P<count>[0-9]{5})(?P<suffix>\..+)", re.DOTALL
)
_MAX_INDEX_BYTES = 100_000_000


class Index(NamedTuple):
    """The shards of one model in one folder.

    Attributes
    ----------
    folder : Path
        Where the shards are.
    where : str
        The index file, or the shards' common name where there is none; for error messages.
    shards : frozenset of str
        Names of the shard files.
    weight_map : mapping of str to str, or None
        The shard of each tensor; None where no index file says.
    whole : str or None
        The name that the model would have in one file.
    """

    folder: Path
    where: str
    shards: frozenset[str]
    weight_map: Mapping[str, str] | None
    whole: str | None = None


def is_index(name: str) -> bool:
    """Return whether a file's name is that of an index of shards."""
    return _INDEX_NAME.fullmatch(name) is not None


def read_index(path: Path) -> Index | None:
    """Return the index in a JSON file, or None if its name is not an index's.

    Raises `CheckpointError` if it is damaged, or names files outside its own folder.
    """
    match = _INDEX_NAME.fullmatch(path.name)
    if match is None:
        return None
    with located(path=path), reading(path):
        if file_size(path) > _MAX_INDEX_BYTES:
            raise CheckpointError("is too large for an index of shards")
        weight_map = _weight_map(path.read_bytes())
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_plain_name(shard):
            raise CheckpointError(
                f"says that tensor {shown(tensor)} is in {shown(shard)}, which is not the name of "
                "a file beside it",
                path=path,
            )
    shards = frozenset(weight_map.values())
    return Index(path.parent, str(path), shards, weight_map, match["whole"])


def _weight_map(text: bytes) -> dict[str, Any]:
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"is not valid JSON: {error}") from error
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict):
        raise CheckpointError('has no "weight_map" of tensors to shards')
    return weight_map


def numbered_shards(folder: Path, names: Iterable[str]) -> list[Index]:
    """Return the models among files named ``<stem>-00001-of-00003<suffix>``."""
    groups: dict[tuple[str, str, str], set[str]] = {}
    for name in names:
        match = _SHARD_NAME.fullmatch(name)
        if match:
            groups.setdefault((match["stem"], match["count"], match["suffix"]), set()).add(name)
    indexes = []
    for (stem, count, suffix), found in groups.items():
        first = 0 if f"{stem}-00000-of-{count}{suffix}" in found else 1
        expected = {
            f"{stem}-{number:05}-of-{count}{suffix}" for number in range(first, int(count) + first)
        }
        where = f"{folder / stem}-*-of-{count}{suffix}"
        indexes.append(Index(folder, where, frozenset(expected | found), None))
    return indexes


def check_shards(index: Index, present: Collection[str]) -> None:
    """Require that shards exist, hold each tensor once, and fit the index.

    Parameters
    ----------
    index : Index
        From `read_index` or `numbered_shards`.
    present : collection of str
        Names of all the files in the index's folder.

    Raises
    ------
    CheckpointError
        Listing the shards or tensors that are missing, that stand twice, or that the index does
        not know.
    """
    with located(path=index.where):
        _check_names(index, present)
        files = [index.folder / name for name in index.shards]
        if all(file.suffix == ".safetensors" and file.exists() for file in files):
            _check_tensors(index)


def require_shards(index: Index, present: Collection[str]) -> None:
    """Require that all shards of an index are among the names that are there."""
    missing = sorted(index.shards.difference(present))
    if missing:
        raise CheckpointError(
            f"{len(missing):,} of {len(index.shards):,} shards are missing: {listed(missing)}; "
            "download them",
            path=index.where,
        )


def _check_names(index: Index, present: Collection[str]) -> None:
    require_shards(index, present)
    if index.weight_map is None:
        return
    series = {_series(shard) for shard in index.shards} - {None}
    unnamed = sorted(set(present) - index.shards)
    stale = [name for name in unnamed if name == index.whole or _series(name) in series]
    if stale:
        raise CheckpointError(
            f"is stale: it does not name {listed(stale)} beside it; remove the index or those "
            "files, whichever is old"
        )


def _check_tensors(index: Index) -> None:
    holders: dict[str, str] = {}
    for shard in sorted(index.shards):
        for name in SafetensorsFile(index.folder / shard).header.offsets:
            other = holders.setdefault(name, shard)
            if other != shard:
                raise CheckpointError(
                    f"tensor {shown(name)} stands in both {shown(other)} and {shown(shard)}; "
                    "remove one of them"
                )
    if index.weight_map is None:
        return
    lacking = [name for name, shard in index.weight_map.items() if holders.get(name) != shard]
    if lacking:
        raise CheckpointError(
            f"{len(lacking):,} tensors are not in the shards that it names: {listed(lacking)} (the "
            f"first should be in {shown(index.weight_map[lacking[0]])}); download both again"
        )
    unknown = [name for name in holders if name not in index.weight_map]
    if unknown:
        raise CheckpointError(
            f"is stale: it lacks {len(unknown)} tensors that the shards hold: {listed(unknown)}; "
            "write it again"
        )


def _series(shard: str) -> tuple[str, str] | None:
    """Return the parts of a shard's name that its model's shards share."""
    match = _SHARD_NAME.fullmatch(shard)
    return (match["stem"], match["suffix"]) if match else None


def _is_plain_name(name: str) -> bool:
    """Return whether a name stays in its folder on every system."""
    return name not in ("", ".", "..") and not set(name) & set("/\\\0:")
