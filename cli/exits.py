"""Give every error an exit status, and one line on stderr that says why."""

from __future__ import annotations

import contextlib
import re
import sys

import click

from tensorcomp._formatting import escaped
from tensorcomp.errors import TensorcompError, VerificationError

from .signals import Stopped

CHECK_FAILED = 1
BAD_USAGE = 2  # or an input that cannot be read


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit status for an error, and the line to print; it may be empty.

    Parameters
    ----------
    error : BaseException
        Whatever ended a verb.
    """
    if isinstance(error, Stopped):
        return error.status, error.line
    if isinstance(error, SystemExit):  # of click's shell completion
        return error.code if isinstance(error.code, int) else 0, ""
    if isinstance(error, VerificationError):
        return CHECK_FAILED, str(error)
    if isinstance(error, TensorcompError):
        return BAD_USAGE, str(error)
    if isinstance(error, click.UsageError):
        return BAD_USAGE, _usage_line(error)
    if isinstance(error, MemoryError):
        return BAD_USAGE, "not enough memory; fewer --threads need less"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return BAD_USAGE, f"{place}{error.strerror or error}"
    return BAD_USAGE, (
        f"unexpected {type(error).__name__}: {error}; please report this, with what "
        "`tensorcomp --debug …` prints"
    )


def by_options(message: str, ctx: click.Context) -> str:
    """Return a message about arguments of the library in terms of the verb's options.

    ``max_rel_l2`` becomes ``--max-rel-l2`` where that was given, ``force=True`` always
    ``--force``.
    """
    for param in ctx.command.params:
        name = param.name or ""
        if not isinstance(param, click.Option):
            continue
        option = max(param.opts, key=len)
        given = "_" in name and is_given(ctx.params.get(name))
        value = "(?:=(?:True|…))?" if given else "=(?:True|…)"
        message = re.sub(rf"(?<![\w.-]){name}{value}(?!\w)", option, message)
    return message


def is_given(value: object) -> bool:
    """Return whether an option has a value."""
    return value is not None and value is not False and value != ()


def say(line: str) -> None:
    """Print a line on stderr, whatever a file's name brings into it."""
    if sys.stderr is not None and line:  # None where the shell has closed it
        with contextlib.suppress(OSError):
            print(f"tensorcomp: {escaped(' '.join(line.split()))}", file=sys.stderr, flush=True)


def _usage_line(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx is not None else "tensorcomp"
    return f"{error.format_message().rstrip('.')}; see {command} --help"
