"""The verbs by name, each imported when it is run or its own help is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

# The first sentence of each verb's help, which a list of verbs shows without importing any.
VERBS: Mapping[str, str] = {
    "compress": "Make a checkpoint smaller: without losing a bit, or within an error budget.",
    "decompress": "Restore the checkpoint that was compressed.",
    "plan": "Show what compress would do with each tensor, and save it to be edited and obeyed.",
    "inspect": "Show the tensors of a checkpoint.",
    "verify": "Decode everything and check every digest; write nothing.",
    "compare": "Measure how far the tensors of checkpoint B are from those of A.",
    "bench": "Measure every strategy on a checkpoint: bits per weight, error, speed, gap to R(D).",
    "calibrate": (
        "Run a model once on data and store the statistics by which its weights are scored."
    ),
    "sparsity": "Show the zeros of a checkpoint, and what they save.",
    "gradients": "Compression of gradients in distributed training.",
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


class Verbs(click.Group):
    """A group of `VERBS`: the module and the function of each are called as it is."""

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
