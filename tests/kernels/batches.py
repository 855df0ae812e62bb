"""Batches of damaged inputs: of kernels' calls, of chunks' payloads, of whole files."""

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

import corpus
import numpy as np
from mutations import damage, damage_length

from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import TensorcompError
from tensorcomp.kernels import native

CALLS, PAYLOADS, FILES = 60, 30, 4  # of a batch; calls: of each kernel
MOST_DECODED = 1 << 24  # bytes that a file may claim
SIGNS = b'0123456789-"[]{}:,e.'
NUMBERS = (-(1 << 63), -1, 0, 1, 7, 12, 13, 16, 31, 32, 63, 64, 1 << 16, (1 << 31) - 1, 1 << 62)


class Source(Protocol):
    """Where damaged inputs come from."""

    def run(self, seed: int, number: int, at: Path | None) -> Counter[str]:
        """Try the inputs of a batch; with `at`, write each there before it is tried."""


def sources(kinds: list[str]) -> dict[str, Source]:
    """Return the named sources."""
    makers: dict[str, Callable[[], Source]] = {
        "kernels": Kernels,
        "payloads": Payloads,
        "files": Files,
    }
    return {kind: makers[kind]() for kind in kinds}


def _random(seed: int, kind: str, number: int) -> Random:
    return Random(f"{seed} {kind} {number}")


@dataclass
class Hostile:
    """An argument whose bytes are damaged; its length too where nothing else has the same."""

    index: int
    data: bytes
    dtype: np.dtype
    shape: tuple[int, ...] | None  # None: may change

    def damaged(self, random: Random) -> np.ndarray:
        data = bytearray(self.data)
        if self.shape is None and random.random() < 0.25:
            damage_length(data, bytes(reversed(self.data)), random)
            del data[len(data) - len(data) % self.dtype.itemsize :]
        else:
            damage(data, random)
        if not data:
            return np.empty(self.shape or 0, self.dtype)
        found = np.frombuffer(data, self.dtype)
        return found if self.shape is None else found.reshape(self.shape)


@dataclass
class Replay:
    """A call of a kernel to be done again with other bytes."""

    name: str
    args: corpus.Call
    hostile: list[Hostile]
    numbers: list[int]  # hostile too

    @classmethod
    def of(cls, name: str, args: corpus.Call) -> "Replay":
        line = corpus.parameters_of(name)
        letters = Counter(letter for p in line for letter in p.shape)
        arrays = [k for k, p in enumerate(line) if p.hostile and isinstance(args[k], np.ndarray)]
        hostile = []
        for k in arrays:
            apart = len(line[k].shape) == 1 and line[k].shape[0].isalpha()
            apart = apart and letters[line[k].shape[0]] == 1
            shape = None if apart else args[k].shape
            hostile.append(Hostile(k, args[k].tobytes(), args[k].dtype, shape))
        numbers = [k for k, p in enumerate(line) if p.hostile and p.kind == "int"]
        return cls(name, args, hostile, numbers)

    def damaged(self, random: Random) -> list[Any]:
        args = list(self.args)
        every = random.random() < 0.15
        chosen = self.hostile if every else [self.hostile[int(random.random() * len(self.hostile))]]
        for part in chosen:
            args[part.index] = part.damaged(random)
        if self.numbers and random.random() < 0.05:
            args[random.choice(self.numbers)] = random.choice(NUMBERS)
        return args


class Kernels:
    """Recorded calls of every kernel that is given bytes of a file."""

    def __init__(self) -> None:
        found = corpus.calls(corpus.payloads())
        self.replays = {
            name: [Replay.of(name, call) for call in calls] for name, calls in found.items()
        }

    def run(self, seed: int, number: int, at: Path | None) -> Counter[str]:
        random, counts = _random(seed, "kernels", number), Counter[str]()
        for name, replays in self.replays.items():
            kernel = getattr(native, name)
            for k in range(CALLS if replays else 0):
                args = replays[(number * CALLS + k) % len(replays)].damaged(random)
                if at is not None:
                    at.write_text(f"{name}{tuple(map(_shown, args))}")
                with contextlib.suppress(ValueError):
                    kernel(*args)
                counts[name] += 1
        return counts


def _shown(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray):
        return argument
    data = argument.tobytes()
    return f"{argument.dtype}{list(argument.shape)} {data[:400].hex()}{'…' * (len(data) > 400)}"


class Payloads:
    """Chunks' payloads, decoded by their trees."""

    def __init__(self) -> None:
        self.payloads = corpus.payloads()

    def run(self, seed: int, number: int, at: Path | None) -> Counter[str]:
        random = _random(seed, "payloads", number)
        for _ in range(PAYLOADS):
            sound, other = random.choice(self.payloads), random.choice(self.payloads)
            data = bytearray(sound.data)
            if random.random() < 0.2:
                damage_length(data, other.data, random)
            else:
                damage(data, random)
            if at is not None:
                at.write_text(f"{sound.coder.trees} {sound.dtype} {sound.shape} {data.hex()}")
            with contextlib.suppress(TensorcompError):
                sound.decode(bytes(data))
        return Counter(payloads=PAYLOADS)


class Files:
    """Whole files, opened and decoded as loading does it."""

    def __init__(self) -> None:
        self.files = [path.read_bytes() for path in corpus.GOLDEN]

    def run(self, seed: int, number: int, at: Path | None) -> Counter[str]:
        random = _random(seed, "files", number)
        for _ in range(FILES):
            data = _damaged_file(random.choice(self.files), random)
            if at is not None:
                at.write_text(data.hex())
            try:
                with CompressedFile(data) as file:
                    file.check_expansion(MOST_DECODED)
                    for info in file.tensors:
                        for _part in file.iter_bytes(info.name):
                            pass
            except TensorcompError:
                pass
        return Counter(files=FILES)


def _damaged_file(sound: bytes, random: Random) -> bytes:
    """Damage the text of the header more often than all the rest."""
    data = bytearray(sound)
    end = 8 + int.from_bytes(sound[:8], "little")
    what = random.random()
    if what < 0.6:
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            data[random.randrange(8, end)] = random.choice(SIGNS)
    elif what < 0.8:
        body = data[end:]
        damage(body, random)
        data[end:] = body
    elif what < 0.9:
        damage(data, random)
    else:
        damage_length(data, sound[::-1], random)
    return bytes(data)
