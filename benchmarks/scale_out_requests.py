"""Count what parts of a model ask of an S3 server, and work out a thousand workers.

    python -m benchmarks.scale_out_requests [--markdown]

A real server answers parts of models of several shards, one tensor of 128 KiB in each; a proxy
counts what it is asked. What grows with the number of shards is found from two models. S3 answers
at least 5,500 reads and 3,500 writes a second of each prefix.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from safetensors.numpy import save

import tensorcomp
from benchmarks.common.reporting import Columns, Found, JsonPath, Limit, Markdown, Sheet, end
from tensorcomp.container import job_folder

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

WORKERS = 1000
READS, WRITES = 5500, 3500  # a second
ROUND_TRIP = 0.03  # seconds, of requests one after another
FEW, MANY = 4, 12  # shards
MOST_SECONDS = 6.0


@dataclass(frozen=True)
class Asked:
    """Requests of one step, of a model of as many shards as workers."""

    step: str
    reads: float
    writes: float
    times: int

    @property
    def seconds(self) -> float:
        """Return the seconds that the server takes for all of them at its limits."""
        return self.times * max(self.reads / READS, self.writes / WRITES)

    @property
    def waiting(self) -> float:
        """Return the seconds of one process that asks for one thing after another."""
        return ROUND_TRIP * (self.reads + self.writes)


def counted(store: Any, shards: int) -> dict[str, tuple[int, int]]:
    """Return reads and writes of the first part, of another one, of that again, and of merging."""
    store.clear()
    for shard in range(shards):
        weights = np.random.default_rng(shard).standard_normal((128, 256), np.float32)
        store.put(
            f"m/model-{shard + 1:05}-of-{shards:05}.safetensors", save({f"{shard}.w": weights})
        )
    store.put("m/config.json", b"{}")
    found = {}

    def note(step: str, run: Callable[[], Any]) -> None:
        store.requests.clear()
        run()
        writes = sum(request.method in ("PUT", "POST", "DELETE") for request in store.requests)
        found[step] = len(store.requests) - writes, writes

    def part(number: int) -> Callable[[], Any]:
        return lambda: tensorcomp.compress(store.url("m"), part=(number, shards), threads=1)

    note("first part", part(0))
    for number in range(1, shards):
        note("each other part", part(number))
    note("a part that is done", part(1))
    note("merge", lambda: tensorcomp.merge(store.url("m")))
    return found


def of_thousand(few: tuple[int, int], many: tuple[int, int]) -> list[float]:
    """Return reads and writes for as many shards as workers, in proportion."""
    return [
        most + (most - least) / (MANY - FEW) * (WORKERS - MANY)
        for least, most in zip(few, many, strict=True)
    ]


CELLS: Columns = {
    "step": lambda row: row.step,
    "times": lambda row: f"{row.times:,}",
    "reads": lambda row: f"{row.reads:,.0f}",
    "writes": lambda row: f"{row.writes:,.0f}",
    "one process, 30 ms a request, s": lambda row: f"{row.waiting:,.2f}",
    "all at once, at S3's limits, s": lambda row: f"{row.seconds:,.2f}",
}


def main(*, markdown: Markdown = False, json_path: JsonPath = None) -> None:
    """Print the requests of a thousand workers on a thousand shards."""
    from object_store import object_store

    job_folder._WAIT = 0.0
    with object_store() as store:
        few, many = (counted(store, shards) for shards in (FEW, MANY))
    times = {"each other part": WORKERS - 1, "a part that is done": WORKERS}
    rows = [Asked(step, *of_thousand(few[step], many[step]), times.get(step, 1)) for step in few]
    other = next(row for row in rows if row.step == "each other part")
    limits = [
        Limit("a worker's requests, one after another, s", other.waiting, MOST_SECONDS),
        Limit("all workers' requests at once, s", other.seconds, MOST_SECONDS),
    ]
    title = f"Requests of {WORKERS:,} workers on {WORKERS:,} shards of one small tensor"
    found = Found([Sheet.of(title, rows, CELLS)], limits, {"steps": rows})
    about = {"counted": f"on models of {FEW} and {MANY} shards; more in proportion"}
    packages = ("tensorcomp", "s3fs", "moto")
    end(found, packages, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
