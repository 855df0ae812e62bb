"""Folders of shards for what is compressed in parts."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def make_shards(folder: Path, count: int = 4, *, seed: int = 0) -> Path:
    """Write shards of several sizes; one tensor's name is in all of them."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    names = [f"model-{number + 1:05}-of-{count:05}.safetensors" for number in range(count)]
    weight_map = {}
    for number, name in enumerate(names):
        key = f"layers.{number}.mlp.weight"
        weights = generator.standard_normal((64 * (1 + number), 256), np.float32)
        save_file({key: weights}, folder / name)
        weight_map[key] = name
    for number in range(2):
        more = {"shared.weight": generator.standard_normal((48, 256), np.float32)}
        save_file(more, folder / f"adapter{number}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text("{}")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file of a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
