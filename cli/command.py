"""Define commands: groups of options, forms of output, logging, errors."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tensorcomp._formatting import escaped
from tensorcomp.errors import TensorcompError

from .exits import READER_GONE, Stopped, end_on_bus_errors
from .report import reported

if TYPE_CHECKING:
    import logging

    from tensorcomp._tables import Table

_FORMS = ("json", "csv", "markdown")
MOST_USED, OUTPUT = "Most used", "Output"
_RANKS = {MOST_USED: 0, OUTPUT: 2}  # groups of a help page, from the first to the last


class Settings:
    """Settings of the whole run, from its options."""

    debug = False
    quiet = False
    verbose = 0


def settings() -> Settings:
    """Return the settings of the run."""
    context = click.get_current_context(silent=True)
    return (context.find_object(Settings) if context else None) or Settings()


class Result(NamedTuple):
    """Result of a verb, in all forms of output."""

    json: Callable[[], dict[str, Any] | str]  # returns the object for programs, or its text
    table: Table | None = None
    notes: Sequence[str] = ()  # lines about the table, in text and in Markdown
    summary: Sequence[str] = ()  # lines that end the text
    failure: Exception | None = None  # raised once all is printed
    report: Callable[[], Any] = lambda: None  # returns what ``--report`` saves

    def lines(self, form: str | None, *, quiet: bool) -> Sequence[str]:
        """Return the lines of one of the forms, or those of the text.

        A quiet text is the table alone, or nothing where there is none.
        """
        if form == "json":
            return _json(self.json())
        if form == "csv" and self.table is not None:
            return self.table.csv()
        if form == "markdown" and self.table is not None:
            notes = [f"- {line}" for line in self.notes]
            return [*self.table.markdown(), *([""] if notes else []), *notes]
        table = [] if self.table is None else self.table.lines(stdout_width())
        below = [] if quiet else [*self.notes, *self.summary]
        return [*table, *([""] if table and below else []), *below]


class Option(click.Option):
    """An option that stands in a group of the help page.

    `argument` is how messages of the library call it, where that is not its parameter's name: a
    pattern.
    """

    def __init__(
        self, *args: Any, group: str = "Options", argument: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self.argument = argument or self.name


class Command(click.Command):
    """A verb whose function returns a `Result`, printed in the requested form."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give ``--replace`` a value, lest it take the next word for that."""
        stop = args.index("--") if "--" in args else len(args)
        words = [f"{word}=lossless" if word == "--replace" else word for word in args[:stop]]
        ctx.meta["arguments"] = list(args)
        return super().parse_args(ctx, words + args[stop:])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                groups.setdefault(getattr(param, "group", OUTPUT), []).append(record)
        for title, records in sorted(groups.items(), key=lambda group: _RANKS.get(group[0], 1)):
            with formatter.section(title):
                formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> None:
        """Run the verb, and print what it found."""
        forms = [form for form in _FORMS if ctx.params.pop(form, False)]
        chosen = settings()
        chosen.quiet = ctx.params.pop("quiet", False)
        chosen.verbose = ctx.params.pop("verbose", 0)
        report = ctx.params.pop("report", None)
        force = ctx.params.pop("force_report", False) or ctx.params.get("force", False)
        if len(forms) > 1:
            raise click.UsageError("--json, --csv and --markdown exclude each other", ctx)
        end_on_bus_errors()
        try:
            with _logging(chosen.verbose, ctx):
                run: Callable[[], Result] = functools.partial(super().invoke, ctx)
                result = run() if report is None else reported(ctx, report, run, force=force)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        except TensorcompError as error:
            error.message = _by_options(error.message, ctx)
            raise
        _print(result.lines(next(iter(forms), None), quiet=chosen.quiet))
        if result.failure is not None:
            raise result.failure


command = functools.partial(click.command, cls=Command)


def stdout_width() -> int | None:
    """Return the columns of the terminal that stdout is; None if it is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def _json(value: dict[str, Any] | str) -> list[str]:
    """Return the lines of JSON in ASCII, so that it is the same in every locale."""
    import json

    if isinstance(value, dict):
        return [json.dumps(value, allow_nan=False)]
    return json.dumps(json.loads(value), indent=1).split("\n")


def _print(lines: Iterable[str]) -> None:
    """Print lines; end quietly if whoever read them has gone, as ``head`` does."""
    try:
        for line in lines:
            print(line)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise Stopped(READER_GONE, "") from None
    except OSError as error:
        error.filename = "standard output"
        raise


def _by_options(message: str, ctx: click.Context) -> str:
    """Replace the library's arguments in a message by the verb's options.

    ``max_rel_l2`` becomes ``--max-rel-l2`` where that was given; always, ``force=True`` becomes
    ``--force``, ``codecs='all=…'`` becomes ``--codec 'all=…'``, and ``expected sparsity to be``
    becomes ``expected --sparsity to be``; ``'where'`` speaks of ``--where`` or ``--prune-where``.
    """
    for param in ctx.command.params:
        if isinstance(param, Option):
            name, option = param.argument or "", max(param.opts, key=len)
            given = "_" in name and _is_given(ctx.params.get(param.name or ""))
            value = "(?:=(?:True|…))?" if given else "=(?:True|…)"
            joint = "=" if name == "replace" else " "  # which takes no next word
            message = re.sub(rf"(?<![\w.-]){name}='", f"{option}{joint}'", message)
            message = re.sub(rf"(?<![\w.-]){name}{value}(?!\w)", option, message)
            message = message.replace(f"expected {name} to be", f"expected {option} to be")
            if name == "where":
                message = message.replace("'where'", option)
    return message


def _is_given(value: object) -> bool:
    """Return whether an option has a value."""
    return value is not None and value is not False and value != ()


def _escape(record: logging.LogRecord) -> bool:
    """Escape what cannot be printed in a message of the log."""
    record.msg, record.args = escaped(record.getMessage()), ()
    return True


@contextlib.contextmanager
def _logging(verbose: int, ctx: click.Context) -> Iterator[None]:
    """Show the verb and the log of ``tensorcomp`` on stderr, or its warnings only."""
    if settings().quiet and not verbose:
        yield
        return
    import logging

    logger, handler = logging.getLogger("tensorcomp"), logging.StreamHandler(sys.stderr)
    form = "tensorcomp: %(asctime)s %(message)s" if verbose else "tensorcomp: %(message)s"
    handler.setFormatter(logging.Formatter(form, "%H:%M:%S"))
    handler.addFilter(_escape)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    try:
        given = (f"{name}={value}" for name, value in ctx.params.items() if _is_given(value))
        logger.info("%s", " ".join([ctx.command_path, *given]))
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
