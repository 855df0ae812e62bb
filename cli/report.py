"""Save a report of what a verb found: the option, and how it is run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorcomp.errors import TensorcompError

if TYPE_CHECKING:
    from .command import Result


def reported(ctx: click.Context, path: Path, run: Callable[[], Result], *, force: bool) -> Result:
    """Run a verb and save a report; nothing is run where that cannot be written.

    A report that fails at the end is the result's failure, so that the rest is printed.
    """
    from tensorcomp._formatting import printable
    from tensorcomp.io.files import atomic_file

    if path.suffix.lower() not in (".html", ".md"):
        raise click.UsageError(f"{path}: expected a name that ends in .html or .md", ctx)
    for name, value in ctx.params.items():
        if isinstance(value, Path) and os.path.realpath(value) == os.path.realpath(str(path)):
            raise click.UsageError(f"{path} is {name}, too; give --report another name", ctx)
    result = None
    try:
        with atomic_file(path, force=force) as file:
            result = run()
            file.write(_text(ctx, path, result).encode())
    except TensorcompError as error:
        if error.path == str(path):
            error.message = error.message.replace("out=…", "--report")
        if result is None:
            raise
        return result._replace(failure=error)
    return result._replace(summary=(*result.summary, f"report: {printable(str(path))}"))


def _text(ctx: click.Context, path: Path, result: Result) -> str:
    from tensorcomp.io.locations import shown_url
    from tensorcomp.reports.save import report_text

    names = {param.name or "": param for param in ctx.command.params if param.name in ctx.params}
    source, line = ctx.get_parameter_source, click.core.ParameterSource.COMMANDLINE
    given = [(names[name], ctx.params[name]) for name in names if source(name) is line]
    inputs = [value for param, value in given if isinstance(param, click.Argument)]
    options = [
        (max(param.opts, key=len), v) for param, v in given if isinstance(param, click.Option)
    ]
    return report_text(
        result.report(),
        path,
        title=" and ".join(value.name or str(value) for value in inputs),
        command=shlex.join([*ctx.command_path.split(), *map(shown_url, ctx.meta["arguments"])]),
        settings={name: ", ".join(v) if isinstance(v, tuple) else str(v) for name, v in options},
    )
