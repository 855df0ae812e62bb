"""``tensorcomp verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .command import Result, command
from .options import as_json, bases, metrics, option, source, threads

if TYPE_CHECKING:
    from tensorcomp.api.verify import Check


@command()
@source
@option("--against ORIGINAL", "Compare with the original as well.")
@option(
    "--stats FILE",
    "The statistics that it was compressed with: with --against, check errors of outputs as well.",
    dest="statistics",
)
@threads
@bases
@metrics
@as_json
def verify(
    source: Path,
    *,
    against: Path | None,
    statistics: Path | None,
    threads: int | None,
    bases: tuple[Path, ...],
    metrics: Path | None,
) -> Result:
    """Decode everything and check every digest; write nothing.

    INPUT is a compressed file or folder. The exit status is 0 if it is sound, 1 if a tensor is
    damaged or differs from the original (a lossy one, by more than the file says), 2 if a file
    cannot be read at all.

    \b
    Example:
      tensorcomp verify model.tc.safetensors --against model.safetensors
    """  # noqa: D301 - \b keeps the example's lines as they are
    from tensorcomp._formatting import counted, printable, seconds_text
    from tensorcomp.api import verify as verification
    from tensorcomp.api.inspect import inspect as summarise
    from tensorcomp.errors import VerificationError

    from .progress import progress

    with progress("verifying", metrics=metrics) as watch:
        checks = verification.verify(
            source,
            against,
            statistics=statistics,
            threads=threads,
            bases=bases,
            progress=watch,
        )
        failed = [check for check in checks if check.error is not None]
        watch.tell(failures=len(failed))

    def to_json() -> dict[str, Any]:
        return {
            **summarise(source).to_dict(),
            "seconds": round(watch.seconds, 6),
            "sound": not failed,
            "errors": list(map(_error, failed)),
        }

    if failed:
        more = f" (and {len(failed) - 1:,} more of {len(checks):,} checks failed)"
        listed = [printable(str(check.error)) for check in failed] if len(failed) > 1 else []
        failure = VerificationError(f"{failed[0].error}{more if listed else ''}")
        return Result(to_json, summary=listed, failure=failure)
    relation, summary = "", summarise(source)
    if against is not None:
        how = "within its errors of" if summary.lossy else "equal to"
        relation = f" and {how} {printable(str(against))}"
    line = (
        f"{printable(str(source))} is sound{relation}: {counted(len(checks), 'tensor')} checked in "
        f"{seconds_text(watch.seconds)}"
    )
    outputs = any(row.output_error for row in summary.tensors) and statistics is None
    lacking = "--stats" if against is not None else "--against and --stats"
    remark = f"output errors were not checked: give {lacking}"
    return Result(to_json, summary=(line, remark) if outputs else (line,))


def _error(check: Check) -> dict[str, Any]:
    return {"file": check.file.name, "name": check.name, "chunk": check.chunk, "error": check.error}
