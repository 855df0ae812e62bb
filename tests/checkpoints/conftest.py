import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tensorcomp.checkpoints.base import Checkpoint, SourceTemplate
from tensorcomp.checkpoints.open import open_checkpoint, restore
from tensorcomp.errors import CheckpointError


class DecodedTensors:
    """A source that holds every tensor of a checkpoint and gives it in odd chunks."""

    def __init__(self, checkpoint: Checkpoint, chunk: int = 7919) -> None:
        self.tensors = checkpoint.tensors
        self.data = {info.name: checkpoint.read(info.name).copy() for info in checkpoint.tensors}
        self.chunk = chunk

    def is_exact(self, name: str) -> bool:
        return True

    def iter_bytes(self, name: str) -> Iterator[np.ndarray]:
        data = self.data[name]
        for start in range(0, len(data), self.chunk):
            yield data[start : start + self.chunk]


def through_json(template: SourceTemplate) -> SourceTemplate:
    """Return the template as a manifest would bring it back."""
    return SourceTemplate(
        template.kind, json.loads(json.dumps(template.structure)), template.attachments
    )


@pytest.fixture
def damage() -> Callable[..., None]:
    """Return a function that requires that a damaged file reads well or is refused in one line."""

    def run(path: Path, *, flips: int, seed: int, cut_every: int = 0) -> None:
        whole = path.read_bytes()
        random = np.random.default_rng(seed)
        damaged = [whole[:size] for size in range(1, len(whole), cut_every)] if cut_every else []
        for position in random.integers(0, len(whole), flips):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << random.integers(8)
            damaged.append(bytes(flipped))
        messages: list[str] = []
        for data in damaged:
            path.write_bytes(data)
            try:
                with open_checkpoint(path) as checkpoint:
                    for info in checkpoint.tensors:
                        checkpoint.read(info.name)
            except CheckpointError as error:
                messages.append(str(error))
        assert messages
        assert not any("\n" in message for message in messages)

    return run


@pytest.fixture
def decoded() -> type[DecodedTensors]:
    return DecodedTensors


@pytest.fixture
def round_trip(tmp_path: Path) -> Callable[[Path], Path]:
    """Return a function that restores a file elsewhere from its tensors and template alone."""

    def run(path: Path) -> Path:
        out = tmp_path / "restored"
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.path == path
            assert checkpoint.nbytes == path.stat().st_size
            for info in checkpoint.tensors:
                data = checkpoint.read(info.name)
                assert data.dtype == np.uint8
                assert data.shape == (info.nbytes,)
                assert not data.flags.writeable
            stored = {info.name for info in checkpoint.tensors}
            assert len(stored) == len(checkpoint.tensors)
            assert stored.issuperset(checkpoint.aliases.values())
            assert stored.isdisjoint(checkpoint.aliases)
            source, template = DecodedTensors(checkpoint), through_json(checkpoint.template())
        restore(template, source, out)
        return out

    return run
