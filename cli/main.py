"""Run the console script ``tensorcomp``: its verbs, errors and exit status."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence

import click

import tensorcomp

from .command import Settings
from .exits import explain, say, signals_stop

# The first sentence of each verb's help, which a list of verbs shows without importing any.
VERBS: Mapping[str, str] = {
    "compress": "Make a checkpoint smaller: without losing a bit, or within an error budget.",
    "merge": "Put the parts of a compressed folder together; check that none is missing.",
    "decompress": "Restore the checkpoint that was compressed.",
    "plan": "Show what compress would do with each tensor; save it to edit and obey.",
    "inspect": "Show the tensors of a checkpoint.",
    "verify": "Decode everything and check every digest; write nothing.",
    "compare": "Measure how far the tensors of checkpoint B are from those of A.",
    "bench": "Measure strategies on a checkpoint: rate, error, speed, gap to R(D).",
    "calibrate": "Run a model on data and store the statistics of its weights.",
    "sparsity": "Show the zeros of a checkpoint, and what they save.",
    "gradients": "Compression of gradients in distributed training.",
    "series": "Many checkpoints of one training run, each as what changed.",
    "completion": "Print what makes a shell complete verbs, options and paths.",
}
# What people may call a verb or look for as one.
_HINTS = {
    "prune": "compress --prune SCORE --sparsity X",
    "quantize": "compress --bits-per-weight X",
    "diff": "compare",
    "extract": "decompress",
    "restore": "decompress",
    "estimate": "gradients estimate",
    "info": "inspect",
    "list": "inspect",
    "show": "inspect",
    "check": "verify",
    "benchmark": "bench",
}
# What models and plots are made with may have to clean up when the process ends.
_OTHERS = {"torch", "matplotlib"}


class Verbs(click.Group):
    """A group of `VERBS`, each imported when it is needed.

    The module and the function of each are called as it is.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs' names, in the order of the help page."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb."""
        if cmd_name not in VERBS:
            return None
        verb = getattr(importlib.import_module(f".{cmd_name}", __package__), cmd_name)
        assert isinstance(verb, click.Command)
        return verb

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or say which one it may be."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            from difflib import get_close_matches

            near = _HINTS.get(args[0]) or next(iter(get_close_matches(args[0], VERBS)), "")
            hint = near and f" (did you mean `tensorcomp {near}`?)"
            raise click.UsageError(f"No such command {args[0]!r}{hint}", error.ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs as click does, but from their table, and whole."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=Verbs,
    no_args_is_help=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(
    tensorcomp.__version__, message="tensorcomp %(version)s", help="Print the version."
)
@click.option("--debug", is_flag=True, help="Print a traceback with an error.")
@click.pass_obj
def app(settings: Settings | None, *, debug: bool) -> None:
    """Make neural-network checkpoints small, at a proved error or none at all.

    \b
    Example:
      tensorcomp compress model.safetensors
      tensorcomp decompress model.tc.safetensors -o restored.safetensors

    Exit status: 0 done, 1 a check failed, 2 wrong usage or unreadable input.
    """  # noqa: D301 - \b keeps the example's lines as they are
    if settings is not None:
        settings.debug = debug


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0 done, 1 a check failed, 2 wrong usage or unreadable input; 128 + N after signal N.
    """
    settings = Settings()
    status = None
    try:
        with signals_stop():
            given = None if arguments is None else list(arguments)
            status = app.main(given, "tensorcomp", standalone_mode=False, obj=settings)
    except BaseException as error:  # the one place where all of them end
        if settings.debug:
            import re
            import traceback

            from tensorcomp.io.locations import shown_url

            text = re.sub(r"\w+://\S+", lambda url: shown_url(url[0]), traceback.format_exc())
            print(text, file=sys.stderr)
        status, line = explain(error)
        say(line)
    return status or 0


def run() -> None:
    """Run the command line as the process's own job, and end the process."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # libraries' warnings mean nothing to a user
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    status = main()
    if status <= 128:
        if not _OTHERS.isdisjoint(sys.modules):
            sys.exit(status)
        with contextlib.suppress(AttributeError, OSError):
            sys.stdout.flush()
    # At once: taking NumPy and all other modules apart takes 30 ms; and where the program was
    # stopped, threads may still be at work, and stdout may have no reader.
    os._exit(status)
