"""Define what is damaged: sound data, its layers, and the ways to read it."""

import functools
import os
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import xxhash

from tensorcomp.container.records import DIGEST_DIGITS

_IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
LIMIT = 1 << 24  # bytes that damaged data may claim to decode to


@dataclass(frozen=True)
class Layer:
    """A part of the data that damage reaches, and how often; other layers stay sound.

    Where it is guarded, checksums or digests must notice: what is read is as sound or refused.
    """

    name: str
    damage: Callable[[Any, Random], Any]
    weight: float = 1
    guarded: bool = True


@dataclass(frozen=True)
class Way:
    """A way to read: it returns a value to compare, or raises.

    One that checks less than the digests names another, which must refuse what it reads wrongly.
    """

    name: str
    read: Callable[[Any], Any]
    weight: float = 1
    sure: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Sound:
    """Sound data of a kind."""

    kind: str
    name: str
    data: Any
    layers: tuple[Layer, ...]
    ways: tuple[Way, ...]


def digest(data: Any) -> str:
    """Return the digest of bytes or an array, as manifests state it."""
    if isinstance(data, np.ndarray):
        data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return xxhash.xxh3_128_hexdigest(data)[:DIGEST_DIGITS]


def place_of(error: Exception) -> str:
    """Return an error's type and the innermost line of the library, or of the harness."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/tensorcomp/" in frame.filename] or frames
    return f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno}"


@functools.cache
def _scratch(pid: int) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"tensorcomp-damage-{pid}-", dir=_IN_MEMORY))


def scratch() -> Path:
    """Return a folder of this process, in memory where there is such."""
    folder = _scratch(os.getpid())
    folder.mkdir(exist_ok=True)
    return folder


def written(name: str, data: bytes) -> Path:
    """Return a file in that folder, written anew."""
    path = scratch() / name
    path.write_bytes(data)
    return path
