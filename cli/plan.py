"""``tensorcomp plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .command import Result, command
from .options import all_forms, options_of, output, plan_options, report, source


@command()
@source
@output("Save the plan as JSON.", "FILE")
@plan_options
@report
@all_forms
def plan(source: Path, out: Path | None, *, force: bool, **asked: Any) -> Result:
    """Show what compress would do with each tensor; save it to edit and obey.

    Trees are tried on samples; nothing is compressed. The saved plan holds for each tensor its
    tree, its bound, the predicted bytes and error, and why. Edit a tree or a bound, and give the
    file to tensorcomp compress --plan; what is pruned first must be said to it again.

    \b
    Example:
      tensorcomp plan model.safetensors --bits-per-weight 4 -o plan.json
      tensorcomp compress model.safetensors --plan plan.json
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable, seconds_text
    from tensorcomp.api import plan as planning
    from tensorcomp.io.files import atomic_file, refuse_existing
    from tensorcomp.reports.inspect_tables import planned_line

    from .progress import progress

    if out is not None:
        refuse_existing(out, force=force)
    options = options_of(asked)
    with progress("planning") as watch:
        found = planning.plan(source, options=options)
    text = found.to_json()
    if out is not None:
        with atomic_file(out, force=force) as file:
            file.write(text.encode())
    saved = "" if out is None else f"; saved as {printable(str(out))}"
    planned = f"planned in {seconds_text(watch.seconds)}{saved}"
    line = f"{printable(str(source))}: {found.totals()}, {planned}"
    summary = (line, *found.copied_line(), *planned_line(found))
    return Result(lambda: text, found.table(), summary=summary, report=lambda: found)
