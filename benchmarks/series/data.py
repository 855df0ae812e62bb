"""Make all series of the benchmarks; twelve minutes on one core.

    python -m benchmarks.series.data FOLDER [--seed 0]

With other seeds the figures are others, and what must be reached stays what it is.
"""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common.reporting import note
from benchmarks.series import digits, finetunes, language, merged, sentences


def main(
    folder: Annotated[Path, typer.Argument(help="Where the series go.")],
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
) -> None:
    """Make the series ``merged``, ``digits``, ``minilm``, ``lm`` and ``ft``."""
    for name, job in (
        ("merged", lambda: merged.make(folder, seed, 2048)),
        ("digits", lambda: digits.make(folder, seed, 1000)),
        ("minilm", lambda: sentences.make(folder, seed, 60)),
        ("lm", lambda: language.make(folder, seed, 1500)),
        ("ft", lambda: finetunes.make(folder, seed + 1, 150)),
    ):
        note(f"{name}:")
        job()


if __name__ == "__main__":
    typer.run(main)
