"""Checkpoints compressed against a base, without loss: bytes of the whole file beside the peers'.

    python -m benchmarks.series.data FOLDER
    python -m benchmarks.series.lossless FOLDER

Every file is decoded again and compared with its original, byte for byte; moonclip's tensors bit by
bit. Ratios are bytes of the plain file over all that is stored of it.
"""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common.reporting import (
    ABSENT,
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
from benchmarks.series.pairs import PAIRS, Pair, whole_states
from benchmarks.series.peers import PEERS, Peer, Smallest, Tensorcomp, Training

FM_DELTA, WANTED, IDEAL = "FM-Delta, once", "wanted", "ideal, once"
OURS = (Tensorcomp.name, Smallest.name, Training.name)
STATES = ((600, 750), (1200, 1350))


@dataclass(frozen=True)
class SizeRow:
    """Bytes that a codec makes of a checkpoint beside its base."""

    pair: str
    element: str
    codec: str
    plain: int
    nbytes: int
    exact: bool
    error: str | None = None

    @property
    def ratio(self) -> float:
        """Return bytes before over bytes after."""
        return self.plain / self.nbytes

    @property
    def key(self) -> str:
        """Return the name of the row in tables."""
        return label(self.pair, self.element)


def label(title: str, element: str) -> str:
    """Name a pair in a table."""
    return f"{title}, {'bf16' if element == 'bfloat16' else 'fp32'}"


def measured(pair: Pair, folder: Path, kind: type[Peer], threads: int) -> SizeRow:
    """Encode a pair by a codec, decode and compare; failures are reported."""
    base, new = pair.paths(folder)
    plain = new.stat().st_size
    try:
        peer = kind(base, new, pair.element, threads)
        try:
            peer.encode()
            exact = peer.exact(peer.decode())
            return SizeRow(pair.title, pair.element, kind.name, plain, peer.size(), exact)
        finally:
            peer.close()
    except Exception as error:  # a peer may fail in any way
        note(f"{kind.name} on {label(pair.title, pair.element)}: {error!r}")
        return SizeRow(pair.title, pair.element, kind.name, plain, plain, False, repr(error))


def cell(row: SizeRow) -> str:
    """Write a ratio, or what went wrong."""
    if row.error is not None:
        return "FAILS"
    return number(row.ratio, 1 if row.ratio >= 100 else 2) if row.exact else "NOT EXACT"


def sizes_sheet(pairs: Iterable[Pair], rows: Iterable[SizeRow]) -> Sheet:
    """Tabulate ratios, pairs down and codecs across."""
    cells = {(row.key, row.codec): cell(row) for row in rows}
    for pair in pairs:
        name = label(pair.title, pair.element)
        for title, value in (
            (FM_DELTA, pair.fm_delta),
            (IDEAL, pair.ideal),
            (WANTED, pair.wanted),
        ):
            cells[name, title] = ABSENT if value is None else f"{value:g}"
    title = "Ratio of the whole file, given the base"
    return Sheet.pivot(title, "pair", cells)


def bytes_sheet(rows: Iterable[SizeRow]) -> Sheet:
    """Tabulate what tensorcomp's files take."""
    columns: Columns = {
        "pair": lambda row: row.key,
        "plain": lambda row: f"{row.plain:,}",
        "with its base": lambda row: f"{row.nbytes:,}",
    }
    ours = [row for row in rows if row.codec == Tensorcomp.name and row.exact]
    return Sheet.of("Bytes of tensorcomp's files", ours, columns)


def limits(pairs: Iterable[Pair], rows: Sequence[SizeRow]) -> list[Limit]:
    """Judge tensorcomp where something is wanted, and against each peer everywhere."""
    found = []
    for pair in pairs:
        name = label(pair.title, pair.element)
        own = {row.codec: row for row in rows if row.key == name}
        judged = Training.name if pair.is_state else Tensorcomp.name
        ours = own.get(judged)
        if ours is None or not ours.exact:
            found.append(Limit(f"{name}: restored exactly", 0, 1, at_most=False))
            continue
        if pair.wanted is not None:
            found.append(Limit(f"{name}: ratio", ours.ratio, pair.wanted, at_most=False))
        others = [r.ratio for r in own.values() if r.exact and r.codec not in OURS]
        best = max([*others, pair.fm_delta or 0])
        found.append(Limit(f"{name}: ratio / the best peer's", ours.ratio / best, 1, at_most=False))
    return found


def main(
    folder: Annotated[Path, typer.Argument(help="Where `benchmarks.series.data` wrote.")],
    pair: Annotated[
        list[str] | None, typer.Option(help="Only pairs with this in their name (repeatable).")
    ] = None,
    codec: Annotated[
        list[str] | None, typer.Option(help="Only codecs with this in their name (repeatable).")
    ] = None,
    threads: Annotated[int, typer.Option(min=1)] = 2,
    *,
    markdown: Markdown = False,
    json_path: JsonPath = None,
) -> None:
    """Compress every pair by every codec and compare."""
    kinds = [kind for kind in PEERS if not codec or any(text in kind.name for text in codec)]
    rows: list[SizeRow] = []
    with tempfile.TemporaryDirectory() as scratch:
        states = [whole_states(folder, Path(scratch), *steps) for steps in STATES]
        pairs = [
            one
            for one in (*PAIRS, *states)
            if not pair or any(text in label(one.title, one.element) for text in pair)
        ]
        for one in pairs:
            note(label(one.title, one.element))
            rows += [
                measured(one, folder, kind, threads)
                for kind in kinds
                if one.is_state or kind is not Training
            ]
    found = Found(
        [sizes_sheet(pairs, rows), bytes_sheet(rows)], limits(pairs, rows), {"sizes": rows}
    )
    packages = dict.fromkeys(kind.package for kind in kinds)
    end(found, packages, {"threads": str(threads)}, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
