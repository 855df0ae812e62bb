"""Match tensors of a source with those of bases; read references."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import xxhash

from tensorcomp.checkpoints.base import Checkpoint, TensorInfo
from tensorcomp.container.chunk_grid import ChunkGrid, chunk_grid
from tensorcomp.container.model import BasePaths, open_model
from tensorcomp.container.records import (
    DIGEST_DIGITS,
    BaseRecord,
    TensorRecord,
    TensorReference,
)
from tensorcomp.container.reference_tensors import (
    base_digest,
    bundle_reference,
    may_refer,
    reference_rows,
    tensor_digest,
)
from tensorcomp.io.locations import location

_LOOKED_AT = 256  # elements by which renamed tensors are told
_NEAR = 0.5  # of their norm that those may differ by


class Match(NamedTuple):
    """Tensor of a base that one of a source is coded against."""

    base: int
    info: TensorInfo


@dataclass(frozen=True, eq=False)
class References:
    """References of the tensors of a source.

    Parameters
    ----------
    files : sequence of Checkpoint
        The bases; open.
    matches : mapping of str to Match
        By names of the source's tensors.
    """

    files: Sequence[Checkpoint] = ()
    matches: Mapping[str, Match] = field(default_factory=dict)

    def read(
        self, name: str, grid: ChunkGrid, members: Sequence[TensorInfo] = ()
    ) -> np.ndarray | None:
        """Return the reference of a tensor, or of a bundle of members, if any."""
        if not members:
            found = self.matches.get(name)
            if found is None:
                return None
            file = self.files[found.base]
            return reference_rows(file, found.info, grid, 0, grid.shape[0])
        if not any(info.name in self.matches for info in members):
            return None
        matches = ((info.nbytes, self.matches.get(info.name)) for info in members)
        return bundle_reference(
            grid, ((n, one and (self.files[one.base], one.info.name)) for n, one in matches)
        )

    def of_tensor(self, name: str) -> TensorReference:
        """Return what the manifest records of a tensor's reference."""
        base, info = self.matches[name]
        return TensorReference(base, tensor_digest(self.files[base], info.name), info.name)

    def of_bundled(self, name: str) -> TensorReference | None:
        """Return what the manifest records of the reference of a tensor in a bundle."""
        found = self.matches.get(name)
        return None if found is None else TensorReference(found.base, "", found.info.name)

    def records(self, tensors: Mapping[str, TensorRecord]) -> tuple[BaseRecord, ...]:
        """Return the records of the bases; none if no tensor uses them."""
        used = [record.reference for record in tensors.values() if record.reference is not None]
        if not used:
            return ()
        return tuple(
            BaseRecord(
                file.known_as or file.path.name,
                file.nbytes,
                base_digest({one.tensor: one.digest for one in used if one.base == index}),
            )
            for index, file in enumerate(self.files)
        )


NO_REFERENCES = References()


def of_bundle(name: str, joined: np.ndarray) -> TensorReference:
    """Return what the manifest records of a bundle's reference."""
    found = xxhash.xxh3_128_hexdigest(joined.reshape(-1).view(np.uint8))
    return TensorReference(0, found[:DIGEST_DIGITS], name)


@contextlib.contextmanager
def opened_bases(
    base: str | os.PathLike[str] | Checkpoint, bases: BasePaths = ()
) -> Iterator[Sequence[Checkpoint]]:
    """Open the shards of a base.

    Raises
    ------
    CheckpointError, FormatError
        If it cannot be read.
    """
    if isinstance(base, Checkpoint):
        yield (base,)
        return
    model = open_model(location(base), bases=bases)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(model.open(shard, depth=1)) for shard in model.shards]
        for file in files:
            file.find_bases()
        yield files


def match_tensors(source: Checkpoint, files: Sequence[Checkpoint]) -> References:
    """Match tensors by name, and renamed ones by shape and some values."""
    named: dict[str, Match] = {}
    for index, file in enumerate(files):
        infos = {info.name: info for info in file.tensors}
        for name, info in {**{a: infos[t] for a, t in file.aliases.items()}, **infos}.items():
            named.setdefault(name, Match(index, info))
    matches, left = {}, []
    for info in source.tensors:
        found = named.get(info.name)
        if found is not None and may_refer(info, found.info):
            matches[info.name] = found
        else:
            left.append(info)
    taken = {(match.base, match.info.name) for match in matches.values()}
    free = [one for one in named.values() if (one.base, one.info.name) not in taken]
    for info in left:
        renamed = _renamed(source, info, files, free)
        if renamed is not None:
            matches[info.name] = renamed
    used = sorted({match.base for match in matches.values()})
    numbered = {name: Match(used.index(m.base), m.info) for name, m in matches.items()}
    return References([files[index] for index in used], numbered)


def _renamed(
    source: Checkpoint, info: TensorInfo, files: Sequence[Checkpoint], free: Sequence[Match]
) -> Match | None:
    """Return the tensor of another name whose values are nearest, if they are near."""
    fit = [
        match for match in free if match.info.shape == info.shape and may_refer(info, match.info)
    ]
    if not fit or not info.nbytes:
        return None
    grid = chunk_grid(info.dtype, info.shape, info.nbytes)
    step = max(grid.shape[0] * grid.row_elements // _LOOKED_AT, 1)
    own = _looked_at(source.read(info.name).view(grid.dtype), step)
    best, least = None, _NEAR * float(np.linalg.norm(own))
    for match in fit:
        rows = reference_rows(files[match.base], match.info, grid, 0, grid.shape[0])
        distance = float(np.linalg.norm(_looked_at(rows.reshape(-1), step) - own))
        if distance < least or (distance == least == 0):
            best, least = match, distance
    return best


def _looked_at(values: np.ndarray, step: int) -> np.ndarray:
    found = values[::step].astype(np.float64)
    return np.nan_to_num(found, posinf=0, neginf=0)
