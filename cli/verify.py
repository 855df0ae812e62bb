"""``tensorcomp verify``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options.common import json, path, source, threads

if TYPE_CHECKING:
    from tensorcomp.api.verify import Check


@click.command()
@source
@click.option("--against", type=path, metavar="ORIGINAL", help="Compare with the original as well.")
@threads
@json
def verify(source: Path, *, against: Path | None, threads: int | None, json: bool) -> None:
    """Decode everything and check every digest; write nothing.

    INPUT is a compressed file or folder. The exit status is 0 if it is sound, 1 if a tensor is
    damaged or differs from the original (a lossy one, by more than the file says), 2 if a file
    cannot be read at all.

    \b
    Example:
      tensorcomp verify model.tc.safetensors --against model.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable
    from tensorcomp.api import verify as verification
    from tensorcomp.errors import VerificationError
    from tensorcomp.reports.as_json import to_json

    from .output import show, show_json
    from .progress import progress
    from .summaries import summarise

    begun = time.perf_counter()
    with progress("verifying") as shown:
        checks = verification.verify(source, against, threads=threads, progress=shown)
    seconds = time.perf_counter() - begun
    failed = [check for check in checks if check.error is not None]
    if json:
        value = to_json(summarise(source), seconds)
        show_json({**value, "sound": not failed, "errors": [_to_json(check) for check in failed]})
    if failed:
        if len(failed) > 1 and not json:
            show(printable(str(check.error)) for check in failed)
        others = f" (and {len(failed) - 1} more of {len(checks)} checks failed)"
        raise VerificationError(f"{failed[0].error}{others if len(failed) > 1 else ''}")
    if not json:
        equal = ""
        if against is not None:
            relation = "within its errors of" if summarise(source).lossy else "equal to"
            equal = f" and {relation} {printable(str(against))}"
        name, number = printable(str(source)), len(checks)
        show([f"{name} is sound{equal}: {number} tensors checked in {seconds:.1f} s"])


def _to_json(check: Check) -> dict[str, Any]:
    return {"file": check.file.name, "name": check.name, "error": check.error}
