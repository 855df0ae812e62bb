"""``tensorcomp bench``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from .options.common import force, forms, path, refuse_two_forms, source


@click.command()
@source
@click.option(
    "--plot", type=path, metavar="FILE", help="Draw the table into a .png, .svg or .pdf file."
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Code every tensor, not a sample of 8 million weights.",
)
@click.option("--peers/--no-peers", default=True, help="Other libraries that are installed.")
@click.option(
    "--codec",
    "codecs",
    multiple=True,
    metavar="TREE",
    help="Measure this tree too; may be repeated.",
)
@click.option(
    "--profile",
    default="transformer",
    metavar="NAME",
    help="Says which tensors may lose something.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Tensors coded at once.",
)
@force
@forms
def bench(
    source: Path,
    *,
    plot: Path | None,
    everything: bool,
    peers: bool,
    codecs: tuple[str, ...],
    profile: str,
    threads: int,
    force: bool,
    json: bool,
    csv: bool,
    markdown: bool,
) -> None:
    """Measure every strategy on a checkpoint: bits per weight, error, speed, gap to R(D).

    Each strategy codes all tensors that may lose something under the profile; the others are
    coded losslessly and count as well. What a strategy's codec cannot code is coded losslessly,
    and the table says for how many tensors. Of a large checkpoint some tensors of every role and
    some rows of large tensors stand for all.

    NNCodec, GGUF's formats (by the package gguf) and ZipNN are measured in the same run where they
    are installed. Plots are drawn by matplotlib: pip install 'tensorcomp[plot]'.

    \b
    Examples:
      tensorcomp bench model.safetensors --plot rates.png
      tensorcomp bench model.safetensors --codec 'affine(4, 64, codes=ans)' --no-peers
    """  # noqa: D301 - \b keeps the example's lines as they are
    refuse_two_forms(json=json, csv=csv, markdown=markdown)
    from tensorcomp._formatting import printable
    from tensorcomp.benchmark import run as benching
    from tensorcomp.benchmark import tables
    from tensorcomp.benchmark.peers import PEERS
    from tensorcomp.benchmark.plot import check_plot, draw_benchmark
    from tensorcomp.io.atomic import atomic_file, refuse_existing
    from tensorcomp.planning.strategies import STRATEGIES, own_strategy

    from .output import show, show_json, stdout_width
    from .progress import progress

    begun = time.perf_counter()
    own = [own_strategy(template) for template in codecs]
    if plot is not None:
        check_plot(plot)
        refuse_existing(plot, force=force)
    with progress("measuring") as shown:
        found = benching.bench(
            source,
            profile=profile,
            strategies=(*STRATEGIES, *own),
            peers=PEERS if peers else (),
            most=None if everything else benching.SAMPLE,
            threads=threads,
            progress=shown,
        )
    if plot is not None:
        with atomic_file(plot, force=force) as file:
            draw_benchmark(found, file, plot.suffix.lower().removeprefix("."))
    seconds = time.perf_counter() - begun
    if json:
        show_json(tables.benchmark_json(found, seconds))
    elif csv:
        show(tables.benchmark_csv(found))
    elif markdown:
        show(tables.benchmark_markdown(found))
    else:
        saved = "" if plot is None else f"; drawn as {printable(str(plot))}"
        table = tables.benchmark_table(found, stdout_width())
        notes = tables.benchmark_notes(found)
        show([*table, "", *notes, f"Measured in {seconds:.1f} s{saved}"])
