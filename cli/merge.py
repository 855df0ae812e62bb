"""``tensorcomp merge``."""

from __future__ import annotations

from pathlib import Path

from .command import Result, command
from .compress import written
from .options import as_json, force, output, report, source


@command()
@source
@output("Where compress was told to write, if INPUT is what it read.")
@force
@report
@as_json
def merge(source: Path, out: Path | None, *, force: bool) -> Result:
    """Put the parts of a compressed folder together; check that none is missing.

    INPUT is the folder that was compressed by compress --part, or its output NAME.tc, or
    NAME.tc.partial. Missing, damaged and outdated shards are named, with the parts that would make
    them; then, and where a plan's size is exceeded, nothing is changed. NAME.tc.report.json says
    what became of each shard, where and in what time.

    \b
    Example:
      tensorcomp compress model --part 0/2
      tensorcomp compress model --part 1/2
      tensorcomp merge model
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import printable
    from tensorcomp.api import merge as parts

    result = parts.merge(source, out, force=force)
    return written(result, f"{printable(str(source))} merged to", result.seconds)
