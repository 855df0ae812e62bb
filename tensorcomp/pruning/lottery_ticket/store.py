"""Where the rounds of a lottery ticket are kept: in memory, or in a folder that outlives the run.

A folder holds

- ``settings.json``: what the ticket is looked for with, so that no other search continues it;
- ``rewind.pt``: the rewind point, a torch file, and ``rewind.pt.xxh3``, its digest;
- ``round-NN.masks.tc.safetensors``: what a round keeps, from round 1 on;
- ``round-NN.tc.safetensors``: its trained weights, written last: the round is done if it is there;
- ``round-NN.control.tc.safetensors``: the trained weights of its control, where one was asked for.

Each appears whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
import xxhash

from tensorcomp.api.load import load_file
from tensorcomp.api.save import save_file
from tensorcomp.errors import CheckpointError, PruningError
from tensorcomp.io.atomic import atomic_file
from tensorcomp.pruning.lottery_ticket.rewind_point import RewindPoint
from tensorcomp.pruning.result import PruningResult

Weights = dict[str, torch.Tensor]

_SETTINGS = "settings.json"
_POINT = "rewind.pt"
_POINT_DIGEST = "rewind.pt.xxh3"


class Shelf(Protocol):
    """What keeps the rewind point and, by name, masks and weights."""

    def point(self) -> RewindPoint | None:
        """Return the rewind point, if it is there."""

    def put_point(self, point: RewindPoint) -> None:
        """Keep the rewind point."""

    def masks(self, name: str) -> PruningResult | None:
        """Return masks, if they are there."""

    def put_masks(self, name: str, result: PruningResult) -> None:
        """Keep masks."""

    def has_weights(self, name: str) -> bool:
        """Return whether weights are there."""

    def weights(self, name: str) -> Weights:
        """Return weights that are there, as tensors of the caller's own."""

    def put_weights(self, name: str, weights: Weights) -> None:
        """Keep weights."""


class MemoryShelf:
    """A shelf in memory."""

    def __init__(self) -> None:
        self._point: RewindPoint | None = None
        self._masks: dict[str, PruningResult] = {}
        self._weights: dict[str, Weights] = {}

    def point(self) -> RewindPoint | None:
        """Return the rewind point, if it is there."""
        return self._point

    def put_point(self, point: RewindPoint) -> None:
        """Keep the rewind point."""
        self._point = point

    def masks(self, name: str) -> PruningResult | None:
        """Return masks, if they are there."""
        return self._masks.get(name)

    def put_masks(self, name: str, result: PruningResult) -> None:
        """Keep masks."""
        self._masks[name] = result

    def has_weights(self, name: str) -> bool:
        """Return whether weights are there."""
        return name in self._weights

    def weights(self, name: str) -> Weights:
        """Return weights that are there, as tensors of the caller's own."""
        return _own(self._weights[name])

    def put_weights(self, name: str, weights: Weights) -> None:
        """Keep weights."""
        self._weights[name] = _own(weights)


class FolderShelf:
    """A shelf in a folder, made if it is not there.

    Parameters
    ----------
    folder : pathlib.Path
    settings : mapping of str to object
        JSON's own types; what must be the same to go on with what is there.

    Raises
    ------
    PruningError
        If the folder is of other settings, or holds something else.
    CheckpointError
        If it cannot be written.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        own = json.loads(json.dumps(settings))
        path = folder / _SETTINGS
        if path.is_file():
            _check_same(folder, _read(path), own)
            return
        if folder.exists() and (
            not folder.is_dir() or any(not item.name.startswith(".") for item in folder.iterdir())
        ):
            raise PruningError(
                f"{folder}: is there already and holds no lottery ticket; name another folder"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"{folder}: cannot be made: {error.strerror}") from error
        with atomic_file(path, force=False) as file:
            file.write((json.dumps(own, indent=1) + "\n").encode("utf-8"))

    def point(self) -> RewindPoint | None:
        """Return the rewind point, if it is there.

        Raises
        ------
        PruningError
            If it is damaged.
        """
        path = self._folder / _POINT
        if not path.is_file():
            return None
        data, digest = path.read_bytes(), self._folder / _POINT_DIGEST
        if not digest.is_file() or digest.read_bytes() != _digest(data):
            raise PruningError(
                f"{path}: the rewind point is damaged; remove it, and it is made again"
            )
        return RewindPoint(data)

    def put_point(self, point: RewindPoint) -> None:
        """Keep the rewind point."""
        for name, data in ((_POINT_DIGEST, _digest(point.data)), (_POINT, point.data)):
            with atomic_file(self._folder / name, force=True) as file:
                file.write(data)

    def masks(self, name: str) -> PruningResult | None:
        """Return masks, if they are there."""
        path = self._path(f"{name}.masks")
        return PruningResult.load(path) if path.is_file() else None

    def put_masks(self, name: str, result: PruningResult) -> None:
        """Keep masks."""
        result.save(self._path(f"{name}.masks"))

    def has_weights(self, name: str) -> bool:
        """Return whether weights are there."""
        return self._path(name).is_file()

    def weights(self, name: str) -> Weights:
        """Return weights that are there, as tensors of the caller's own."""
        return _own(load_file(self._path(name), framework="pt"))

    def put_weights(self, name: str, weights: Weights) -> None:
        """Keep weights."""
        save_file(weights, self._path(name))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.tc.safetensors"


def _digest(data: bytes) -> bytes:
    return xxhash.xxh3_128_hexdigest(data).encode("ascii") + b"\n"


def _own(weights: Weights) -> Weights:
    return {name: weights[name].detach().clone() for name in sorted(weights)}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise PruningError(f"{path}: is no JSON: {error}; name another folder") from error
    return found if isinstance(found, dict) else {}


def _check_same(folder: Path, found: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    for key in {**own, **found}:
        if found.get(key) != own.get(key):
            raise PruningError(
                f"{folder}: was made with {key} = {_short(found.get(key))}, not "
                f"{_short(own.get(key))}; name another folder, or go on as it was begun"
            )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
