"""Make commands: options in groups, forms of output, logging, errors in terms of options."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import click

from tensorcomp.errors import TensorcompError

from .exits import by_options, is_given
from .output import FORMS, Result, print_result

MOST_USED = "Most used"
OUTPUT = "Output"


class Settings:
    """What options say about the whole run."""

    debug = False
    quiet = False
    verbose = 0


def settings() -> Settings:
    """Return the settings of the run."""
    context = click.get_current_context(silent=True)
    return (context.find_object(Settings) if context else None) or Settings()


class Option(click.Option):
    """An option that stands in a group of the help page."""

    def __init__(self, *args: Any, group: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


option = functools.partial(click.option, cls=Option)


class Command(click.Command):
    """A verb: its function returns a `Result`, which is printed in the form that is asked for."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                groups.setdefault(getattr(param, "group", OUTPUT), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb, and print what it found."""
        forms = [form for form in FORMS if ctx.params.pop(form, False)]
        chosen = settings()
        chosen.quiet = ctx.params.pop("quiet", False)
        chosen.verbose = ctx.params.pop("verbose", 0)
        if len(forms) > 1:
            raise click.UsageError("--json, --csv and --markdown exclude each other", ctx)
        try:
            with _logging(chosen.verbose, _asked(ctx)):
                result = super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        except TensorcompError as error:
            error.message = by_options(error.message, ctx)
            raise
        if isinstance(result, Result):
            print_result(result, forms[0] if forms else "text", quiet=chosen.quiet)


command = functools.partial(click.command, cls=Command)


def _asked(ctx: click.Context) -> str:
    """Return the verb and the options that are given."""
    given = (f"{name}={value}" for name, value in ctx.params.items() if is_given(value))
    return " ".join([ctx.command_path, *given])


@contextlib.contextmanager
def _logging(verbose: int, line: str) -> Iterator[None]:
    """Show what is logged under the name ``tensorcomp`` on stderr, a line first, if asked."""
    if not verbose:
        yield
        return
    import logging

    logger, handler = logging.getLogger("tensorcomp"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("tensorcomp: %(asctime)s %(message)s", "%H:%M:%S"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    try:
        logger.info("%s", line)
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
