"""The console script ``tensorcomp``: verbs, and how errors become a line and an exit status."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Sequence

import click

import tensorcomp

from .command import Settings
from .exits import explain, say
from .signals import signals_stop
from .verbs import Verbs

# What models and plots are made with may have to clean up when the process ends.
_OTHERS = {"torch", "matplotlib"}


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
    """Make neural-network checkpoints small, at an error that is proved or none at all.

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

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process by default.

    Returns
    -------
    int
        0 done, 1 a check failed, 2 wrong usage or unreadable input; 128 + N after signal N.
    """
    settings = Settings()
    status = None
    try:
        with signals_stop():
            status = app.main(
                None if arguments is None else list(arguments),
                prog_name="tensorcomp",
                standalone_mode=False,
                obj=settings,
            )
    except BaseException as error:  # the one place where all of them end
        if settings.debug:
            import traceback

            traceback.print_exc()
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
