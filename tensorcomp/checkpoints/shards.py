"""The shards of one model: which files an index names, and whether they hold what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorcomp.checkpoints.access import file_size, reading
from tensorcomp.checkpoints.naming import listed, shown
from tensorcomp.checkpoints.safetensors_header import read_header
from tensorcomp.errors import CheckpointError

# model.safetensors.index.json, pytorch_model.bin.index.json, and diffusers' variants of them:
# model.safetensors.index.fp16.json
_INDEX_NAME = re.compile(r"(?P<whole>.+\.(?:safetensors|bin))\.index(?:\.[\w-]+)?\.json", re.DOTALL)
_SHARD_NAME = re.compile(
    r"(?P<stem>.+?)-(?P<number>\d{5,})-of-(?P<count>\d{5,})(?P<suffix>\..+)", re.DOTALL
)
_MAX_INDEX_BYTES = 100_000_000


@dataclass(frozen=True)
class Index:
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


def read_index(path: Path) -> Index | None:
    """Return the index in a JSON file, or None if its name is not an index's.

    Raises
    ------
    CheckpointError
        If it cannot be read, is no index, or names files outside its own folder.
    """
    match = _INDEX_NAME.fullmatch(path.name)
    if match is None:
        return None
    if file_size(path) > _MAX_INDEX_BYTES:
        raise CheckpointError(f"{path}: is too large for an index of shards")
    try:
        with reading(path):
            content: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not valid JSON: {error}") from error
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict):
        raise CheckpointError(f'{path}: has no "weight_map" of tensors to shards')
    shards = set()
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_plain_name(shard):
            raise CheckpointError(
                f"{path}: says that tensor {shown(tensor)} is in {shown(shard)}, which is not the "
                "name of a file beside it"
            )
        shards.add(shard)
    return Index(path.parent, str(path), frozenset(shards), weight_map, match["whole"])


def numbered_shards(folder: Path, names: Iterable[str]) -> list[Index]:
    """Return the models whose shards, named ``<stem>-00001-of-00003<suffix>``, no index names."""
    groups: dict[tuple[str, str, str], set[int]] = {}
    for name in names:
        match = _SHARD_NAME.fullmatch(name)
        if match:
            key = match["stem"], match["count"], match["suffix"]
            groups.setdefault(key, set()).add(int(match["number"]))
    indexes = []
    for (stem, count, suffix), numbers in groups.items():
        first = min(1, *numbers, 1)
        # A name may claim any count: more names than could be shown are not made up.
        last = min(int(count) + first - 1, max(numbers) + _SHOWN_MISSING)
        expected = numbers | set(range(first, last + 1)) if last < _MAX_SHARDS else numbers | {first}
        shards = (f"{stem}-{number:0{len(count)}}-of-{count}{suffix}" for number in expected)
        where = f"{folder / stem}-*-of-{count}{suffix}"
        indexes.append(Index(folder, where, frozenset(shards), None))
    return indexes
