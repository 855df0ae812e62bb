"""Kill writers of an object store at random instants; a real S3 server keeps what they leave.

    python -m benchmarks.hardening.stores [--tries 20] [--seed 1] [--markdown]

Needs `moto[server]`, `s3fs` and `boto3` (tests/ecosystem.txt). A file must be the old one or the
new one, whole. A folder without a mark must be whole, and each file in one with a mark; the same
command must complete it. A run that was asked to stop leaves no upload that is not complete.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from safetensors.numpy import save_file

from benchmarks.common.reporting import Found, JsonPath, Limit, Markdown, Sheet, end, note
from tensorcomp.io.files import UNFINISHED

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
from object_store import ObjectStore, object_store

FILE, FOLDER = "x.tc.safetensors", "m.tc/"
SHARD = "model-00001-of-00003"
Files = dict[str, bytes]


class Writer(NamedTuple):
    """What a run writes, and what was there before: the old files, or none."""

    name: str
    options: tuple[str, ...] = ("--force",)
    fresh: bool = False

    @property
    def is_folder(self) -> bool:
        """Whether it writes a folder."""
        return "folder" in self.name


WRITERS = (
    Writer("compress a file, as a stream"),
    Writer("compress a file by way of a local one", ("--force", "--min-snr", "60")),
    Writer("compress a folder", (), fresh=True),
    Writer("compress a folder over another"),
    Writer("compress a folder by way of a local one", ("--force", "--target-ratio", "1.5")),
)


def make_model(folder: Path, seed: int) -> None:
    """Write a model of three shards, of several parts of an upload each."""
    generator = np.random.default_rng(seed)
    folder.mkdir()
    for number in (1, 2, 3):
        values = generator.standard_normal((5000, 1200), np.float32).astype(np.float16)
        save_file({f"{number}.w": values}, folder / f"model-{number:05}-of-00003.safetensors")
    (folder / "config.json").write_text(f'{{"seed": {seed}}}')


def contents(store: ObjectStore, prefix: str) -> Files:
    return {key.removeprefix(prefix): store.get(key) for key in store.keys(prefix)}


def written(folder: Path, writer: Writer, store: ObjectStore, model: str) -> Files:
    """Return what an unbroken run writes of a model."""
    store.clear()
    ended = start(folder, writer, store, model)
    if ended.wait():
        raise RuntimeError(ended.communicate()[1])
    return contents(store, FOLDER if writer.is_folder else "")


def start(folder: Path, writer: Writer, store: ObjectStore, model: str = "new") -> Any:
    source = folder / model if writer.is_folder else folder / model / f"{SHARD}.safetensors"
    place = store.url(FOLDER.rstrip("/") if writer.is_folder else FILE)
    command = [sys.executable, "-m", "tensorcomp", "compress", source, "-o", place]
    return subprocess.Popen(
        [*command, *writer.options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def faults(
    writer: Writer,
    store: ObjectStore,
    old: Files,
    new: Files,
    begin: Callable[[], Any],
    after: float,
) -> list[str]:
    """Stop a run after some seconds, check what it left, and run it again."""
    prefix = FOLDER if writer.is_folder else ""
    store.clear()
    for name, data in old.items():
        store.put(prefix + name, data)
    process, number = begin(), random.choice((signal.SIGKILL, signal.SIGTERM))
    time.sleep(after)
    process.send_signal(number)
    line = process.communicate()[1]
    found = contents(store, prefix)
    marked = found.pop(UNFINISHED, None) is not None
    wrong = []
    if process.returncode not in (0, -number, 128 + number):
        wrong.append(f"ended with {process.returncode}: {line}")
    if number == signal.SIGTERM and store.uploads():
        wrong.append("left an upload")
    if any(data not in (old.get(name), new.get(name)) for name, data in found.items()):
        wrong.append("left a file that is neither old nor new")
    if not marked and found not in (old, new):
        wrong.append("left a folder without a mark that is not whole")
    if process.returncode and (again := begin()).wait():
        wrong.append(f"cannot be run again: {again.communicate()[1]}")
    if contents(store, prefix) != new:
        wrong.append("is not complete in the end")
    return wrong


def main(
    tries: int = 20, seed: int = 1, json_path: JsonPath = None, markdown: Markdown = False
) -> None:
    """Stop every writer so many times; end with status 1 if anything was found."""
    generator, rows = random.Random(seed), []
    random.seed(seed)
    with tempfile.TemporaryDirectory() as name, object_store() as store:
        folder = Path(name)
        for number, model in enumerate(("old", "new")):
            make_model(folder / model, number)
        for writer in WRITERS:
            old = {} if writer.fresh else written(folder, writer, store, "old")
            begun = time.perf_counter()
            new = written(folder, writer, store, "new")
            seconds, bad = time.perf_counter() - begun, 0
            begin = partial(start, folder, writer, store)
            for _ in range(tries):
                after = generator.uniform(0.3, seconds)
                found = faults(writer, store, old, new, begin, after)
                bad += bool(found)
                for fault in found:
                    note(f"{writer.name}, after {after:.2f} s: {fault}")
            rows.append((writer.name, f"{tries}", f"{bad}"))
            note(str(rows[-1]))
    found_all = Found(
        [Sheet("Writers of object stores", ("writer", "stops", "faults"), tuple(rows))]
    )
    found_all.limits = [Limit("stops with a fault", sum(int(row[2]) for row in rows), 0)]
    end(found_all, ["tensorcomp", "s3fs", "moto"], markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
