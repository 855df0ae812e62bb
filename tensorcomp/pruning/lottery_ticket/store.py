"""Keep the rounds of a lottery ticket in a folder, which may outlive the run.

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
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from tensorcomp.api.load import load_file
from tensorcomp.api.save import save_file
from tensorcomp.errors import CheckpointError, PruningError
from tensorcomp.io.files import atomic_file, refuse_nul
from tensorcomp.pruning.lottery_ticket.rewind_point import RewindPoint
from tensorcomp.pruning.lottery_ticket.training import Weights
from tensorcomp.pruning.result import PruningResult

_SETTINGS = "settings.json"
_POINT = "rewind.pt"
_POINT_DIGEST = "rewind.pt.xxh3"


class TicketStore:
    """A folder of the rounds of a search; what is missing is made and kept.

    Without a folder a temporary one is made, which goes with the store. Settings, of JSON's own
    types, must be the same to go on with what is there.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="tensorcomp-ticket-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        refuse_nul(folder)
        self._folder = folder
        own = json.loads(json.dumps(settings))
        path = folder / _SETTINGS
        if path.is_file():
            _check_same(path, own)
            return
        if folder.exists() and (
            not folder.is_dir() or any(not item.name.startswith(".") for item in folder.iterdir())
        ):
            raise PruningError(f"{folder}: holds no lottery ticket; name another folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"{folder}: cannot be made: {error.strerror}") from error
        with atomic_file(path, force=False) as file:
            file.write((json.dumps(own, indent=1) + "\n").encode("utf-8"))

    def point(self, make: Callable[[], RewindPoint]) -> RewindPoint:
        """Return the rewind point."""
        path, digest = self._folder / _POINT, self._folder / _POINT_DIGEST
        if not path.is_file():
            point = make()
            for target, data in ((digest, _digest(point.data)), (path, point.data)):
                with atomic_file(target, force=True) as file:
                    file.write(data)
            return point
        data = path.read_bytes()
        if not digest.is_file() or digest.read_bytes() != _digest(data):
            raise PruningError(f"{path}: the rewind point is damaged; remove it to make it again")
        return RewindPoint(data)

    def masks(self, name: str, make: Callable[[], PruningResult]) -> PruningResult:
        """Return the masks of a round."""
        path = self._path(f"{name}.masks")
        if path.is_file():
            return PruningResult.load(path)
        result = make()
        result.save(path)
        return result

    def weights(self, name: str, make: Callable[[], Weights]) -> Callable[[], Weights]:
        """Return a reader of the weights of a round."""
        if not self._path(name).is_file():
            save_file(make(), self._path(name))
        return partial(self._read, name)

    def _read(self, name: str) -> Weights:
        return dict(sorted(load_file(self._path(name), framework="pt").items()))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.tc.safetensors"


def _digest(data: bytes) -> bytes:
    return xxhash.xxh3_128_hexdigest(data).encode("ascii") + b"\n"


def _check_same(path: Path, own: Mapping[str, Any]) -> None:
    """Require that a file of settings holds these."""
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise PruningError(f"{path}: is not JSON: {error}; name another folder") from error
    found = found if isinstance(found, dict) else {}
    for key in {**own, **found}:
        was, now = _short(found.get(key)), _short(own.get(key))
        if found.get(key) != own.get(key):
            raise PruningError(
                f"{path.parent}: was made with {key} = {was}, not {now}; name another folder"
            )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
