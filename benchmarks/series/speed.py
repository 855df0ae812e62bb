"""Speed of coding a checkpoint beside its base, and of giving it back, beside peers and a copy.

    python -m benchmarks.series.speed FOLDER [--rounds 5]

MB/s of the new checkpoint, medians of rounds in which the codecs take turns: of tensorcomp, the
verbs from file to file in memory (planning, digests and syncs are in them), loading to memory, and
the codec alone on the chunks of all large tensors; peers work from memory to memory. On a machine
that others use, bytes by time of processors say more: a core's speed, whatever else it does.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from benchmarks.common.reporting import (
    Columns,
    Found,
    JsonPath,
    Limit,
    Markdown,
    Sheet,
    end,
    note,
    number,
)
from benchmarks.series.lossless import label
from benchmarks.series.pairs import BF16, FP32, TINY, Element, Pair
from benchmarks.series.peers import Alone, Moonclip, Peer, Tensorcomp, Z4ai, ZipNN

COPY, CODEC, LOAD = "a copy of the bytes", "tensorcomp, codec alone", "tensorcomp, to memory"
PAIRS = (
    Pair("MiniLM, base to 60 steps", "minilm/step_000000", "minilm/step_000060", BF16),
    Pair("MiniLM, a step at 2e-6", *(f"minilm/{name}" for name in TINY), element=BF16),
    Pair("MiniLM, base to 60 steps", "minilm/step_000000", "minilm/step_000060", FP32),
)
WANTED = {  # MB/s of the codec, encode and decode, two threads
    label(PAIRS[0].title, BF16): (600, 1000),
    label(PAIRS[1].title, BF16): (1500, 2000),
}


class Times(NamedTuple):
    """Seconds by the wall's clock, and of all threads on processors."""

    wall: float
    processor: float


@dataclass(frozen=True)
class SpeedRow:
    """Times of a codec on a pair, and the bytes of the new checkpoint."""

    pair: str
    codec: str
    plain: int
    encode: tuple[Times, ...]
    decode: tuple[Times, ...]

    def speeds(self, clock: str) -> tuple[float, float]:
        """Return MB/s of encoding and decoding by a clock; NaN for what was not timed."""
        encode, decode = (
            self.plain / median(getattr(times, clock) for times in taken) / 1e6
            if taken
            else float("nan")
            for taken in (self.encode, self.decode)
        )
        return encode, decode


Job = Callable[[], Any]


def timed(job: Job) -> Times:
    """Return the times of a call; its result is alive when the clocks stop."""
    begun, used = time.perf_counter(), time.process_time()
    result = job()
    taken = Times(time.perf_counter() - begun, time.process_time() - used)
    del result
    return taken


def copy_job(path: Path, threads: int) -> Job:
    """Return a job that copies a file's bytes in memory."""
    parts = np.array_split(np.fromfile(path, np.uint8), threads)

    def copy() -> list[Any]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(np.copy, parts))

    return copy


@dataclass(frozen=True)
class Chunk:
    """A chunk, as it is encoded and decoded."""

    coder: Any
    array: Any
    reference: Any
    payload: Any

    def encode(self) -> Any:
        """Return the payload, in pieces."""
        return self.coder.encode(self.array, None, self.reference)

    def decode(self) -> Any:
        """Return the array."""
        from tensorcomp.codecs.base import spec_of

        return self.coder.decode(self.payload, spec_of(self.array), None, self.reference)


def chunks_of(peer: Tensorcomp) -> Iterator[Chunk]:
    """Yield the chunks of all tensors of their own that are coded against the base."""
    from tensorcomp.container.reader import CompressedFile

    with CompressedFile(peer.packed, [peer.base]) as file:
        for record in file.manifest.tensors.values():
            if record.reference is None or record.bundle is not None:
                continue
            blob = file.open_tensor(record.name)
            for index in range(blob.grid.count if blob.reference is not None else 0):
                reference = blob.reference(*blob.grid.bounds(index)).copy()
                payload = np.array(blob.blob.payload(index))
                yield Chunk(blob.coder, blob.decode_chunk(index), reference, payload)


def codec_jobs(peer: Tensorcomp, threads: int) -> tuple[Job, Job, int]:
    """Return jobs that encode and decode all chunks of large tensors, and the chunks' bytes."""
    chunks = list(chunks_of(peer))

    def encode() -> list[Any]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(Chunk.encode, chunks))

    def decode() -> list[Any]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(Chunk.decode, chunks))

    for chunk, decoded in zip(chunks, decode(), strict=True):
        if decoded.tobytes() != chunk.array.tobytes():
            raise ValueError("a chunk was not restored")
    return encode, decode, sum(chunk.array.nbytes for chunk in chunks)


def load_job(peer: Tensorcomp) -> Job:
    """Return a job that loads the compressed file, given its base."""
    import tensorcomp

    return lambda: tensorcomp.load_file(peer.packed, bases=peer.base, threads=peer.threads)


def measured(pair: Pair, folder: Path, rounds: int, threads: int) -> list[SpeedRow]:
    """Time all codecs on a pair, turn by turn."""
    base, new = pair.paths(folder)
    name, plain = label(pair.title, pair.element), new.stat().st_size
    peers: list[Peer] = []
    for kind in (ZipNN, Z4ai, Alone, Tensorcomp):
        peers.append(kind(base, new, pair.element, threads))
    sizes = {peer.name: plain for peer in peers}
    jobs: dict[str, tuple[Job | None, Job | None]] = {}
    for peer in peers:
        peer.encode()
        if not peer.exact(peer.decode()):
            raise ValueError(f"{peer.name} does not restore {name}")
        jobs[peer.name] = peer.encode, peer.decode
    ours = peers[-1]
    assert isinstance(ours, Tensorcomp)
    encode, decode, sizes[CODEC] = codec_jobs(ours, threads)
    jobs |= {LOAD: (None, load_job(ours)), CODEC: (encode, decode)}
    copy = copy_job(new, threads)
    jobs[COPY], sizes[COPY], sizes[LOAD] = (copy, copy), plain, plain
    taken: dict[str, tuple[list[Times], list[Times]]] = {key: ([], []) for key in jobs}
    for turn, (key, pair_of_jobs) in itertools.product(range(rounds + 1), jobs.items()):
        for times, job in zip(taken[key], pair_of_jobs, strict=True):
            if job is None or (key == Z4ai.name and turn != 1):  # which takes seconds
                continue
            found = timed(job)
            times += [found] if turn else []
    for peer in peers:
        peer.close()
    taken[Moonclip.name], sizes[Moonclip.name] = moonclip(base, new, pair.element, rounds), plain
    return [
        SpeedRow(name, key, sizes[key], tuple(encodes), tuple(decodes))
        for key, (encodes, decodes) in taken.items()
    ]


def moonclip(
    base: Path, new: Path, element: Element, rounds: int
) -> tuple[list[Times], list[Times]]:
    """Time saves into new stores, each of which has the base, and loads."""
    encodes, decodes = [], []
    for _ in range(rounds):
        peer = Moonclip(base, new, element, 1)
        encodes.append(timed(peer.encode))
        decodes.append(timed(peer.decode))
        peer.close()
    return encodes, decodes


COLUMNS: Columns = {
    "pair": lambda row: row.pair,
    "codec": lambda row: row.codec,
    "encode, MB/s": lambda row: number(row.speeds("wall")[0], 0),
    "decode, MB/s": lambda row: number(row.speeds("wall")[1], 0),
    "encode, MB per s of a core": lambda row: number(row.speeds("processor")[0], 0),
    "decode, MB per s of a core": lambda row: number(row.speeds("processor")[1], 0),
}


def limits(rows: list[SpeedRow], threads: int) -> list[Limit]:
    """Judge the codec alone: by the wall's clock, and by the processors' as if they were free."""
    return [
        Limit(f"{row.pair}: {what}, MB/s{how}", speed * factor, wanted, at_most=False)
        for row in rows
        if row.codec == CODEC and row.pair in WANTED
        for clock, factor, how in (("wall", 1, ""), ("processor", threads, ", free cores"))
        for what, speed, wanted in zip(
            ("encode", "decode"), row.speeds(clock), WANTED[row.pair], strict=True
        )
    ]


def main(
    folder: Annotated[Path, typer.Argument(help="Where `benchmarks.series.data` wrote.")],
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each codec.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each codec.")] = 2,
    *,
    markdown: Markdown = False,
    json_path: JsonPath = None,
) -> None:
    """Time all codecs on three pairs."""
    memory = Path("/dev/shm")
    tempfile.tempdir = str(memory) if memory.is_dir() else None
    rows: list[SpeedRow] = []
    for pair in PAIRS:
        note(label(pair.title, pair.element))
        rows += measured(pair, folder, rounds, threads)
    sheet = Sheet.of("MB/s of the new checkpoint, given its base", rows, COLUMNS)
    about = {
        "threads": f"{threads}; moonclip and z4ai's decoder have no such setting",
        "rounds": f"median of {rounds}, interleaved; z4ai once",
    }
    packages = ("tensorcomp", "zipnn", "z4ai", "moonclip")
    found = Found([sheet], limits(rows, threads), {"speeds": rows})
    end(found, packages, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
