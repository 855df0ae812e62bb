"""``tensorcomp bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .command import Result, command
from .options import all_forms, force, option, printing, report, source


@command()
@source
@printing("--plot FILE", "Draw the table into a .png, .svg or .pdf file.", argument="out")
@option("--all", "Code every tensor, not a sample of 8 million weights.", dest="everything")
@option("--codec TREE", "Measure this tree too; may be repeated.", dest="codecs", multiple=True)
@option("--profile NAME", "Says which tensors may lose something.", default="transformer")
@option(
    "--stats FILE",
    "Statistics by tensorcomp calibrate: predict the loss of each strategy, and try some by them.",
    dest="statistics",
)
@option("--threads N", "Tensors coded at once.", default=1)
@force
@report
@all_forms
def bench(
    source: Path,
    *,
    plot: Path | None,
    everything: bool,
    codecs: tuple[str, ...],
    force: bool,
    **asked: Any,
) -> Result:
    """Measure strategies on a checkpoint: rate, error, speed, gap to R(D).

    Each strategy codes all tensors that may lose something under the profile; the others are
    coded losslessly and count as well. What a strategy's codec cannot code is coded losslessly,
    and the table says for how many tensors. Of a large checkpoint some tensors of every role and
    some rows of large tensors stand for all.

    Plots are drawn by matplotlib: pip install 'tensorcomp[plot]'.

    \b
    Examples:
      tensorcomp bench model.safetensors --plot rates.png
      tensorcomp bench model.safetensors --codec 'affine(4, 64, codes=ans)'
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable, seconds_text
    from tensorcomp.benchmark import run as benching
    from tensorcomp.benchmark import tables
    from tensorcomp.benchmark.plot import check_plot, draw_benchmark
    from tensorcomp.benchmark.report import benchmark_report
    from tensorcomp.io.files import atomic_file, refuse_existing
    from tensorcomp.pipeline.strategies import own_strategy, strategies

    from .progress import progress

    own = [own_strategy(template) for template in codecs]
    if plot is not None:
        check_plot(plot)
        refuse_existing(plot, force=force)
    asked |= {"strategies": (*strategies(), *own)}
    with progress("measuring") as watch:
        most = None if everything else benching.SAMPLE
        found = benching.bench(source, most=most, progress=watch, **asked)
    saved = ""
    if plot is not None:
        saved = f"; drawn as {printable(str(plot))}"
        with atomic_file(plot, force=force) as file:
            draw_benchmark(found, file, plot.suffix.lower().removeprefix("."))
    return Result(
        lambda: {**tables.benchmark_json(found), "seconds": round(watch.seconds, 6)},
        tables.benchmark_table(found),
        notes=tuple(tables.benchmark_notes(found)),
        summary=(f"Measured in {seconds_text(watch.seconds)}{saved}",),
        report=lambda: benchmark_report(found),
    )
