"""Open steps with the chain of bases that they need; find damaged files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tensorcomp.api.verify import verify as verify_file
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import CheckpointError, MissingFileError, TensorcompError, VerificationError
from tensorcomp.progress import Progress
from tensorcomp.series.journal import (
    NAME,
    PREVIOUS,
    Journal,
    Step,
    describe,
    file_digest,
    read_journal,
    unknown_files,
)
from tensorcomp.series.parts import about_step


@dataclass(frozen=True)
class Fault:
    """A damaged file of a series, and the steps that it takes with it.

    Parameters
    ----------
    file : str
    error : str
    steps : tuple of int
        All steps whose chain it is in.
    """

    file: str
    error: str
    steps: tuple[int, ...] = ()


def search_paths(folder: Path, journal: Journal, step: Step) -> tuple[Path, ...]:
    """Return where to look for bases that have another name than at first."""
    chain = journal.chain(step)
    outside = chain[0].base
    paths = [folder / one.file for one in chain[:-1] if one.file.count(".") > 2]
    return (*([folder / outside] if outside is not None else ()), *paths)


@contextlib.contextmanager
def opened(folder: Path, journal: Journal, step: Step) -> Iterator[CompressedFile]:
    """Open a step whose whole chain is there and is what it was coded against.

    Raises
    ------
    CheckpointError, FormatError
        If a file of the chain is missing, damaged or another.
    """
    search = search_paths(folder, journal, step)
    with CompressedFile(folder / step.file, search) as file:
        about = about_step(file)
        if (about["step"], about["time"]) != (step.step, step.time):
            raise CheckpointError(
                f"is another file than that of step {step.step}; put that back", path=file.where
            )
        file.find_bases()
        yield file


def faults_of(
    folder: Path, journal: Journal, progress: Progress, *, deep: bool = False
) -> list[Fault]:
    """Return damaged files: all bytes are read and, if `deep`, decoded."""
    faults = []
    for name in (NAME, PREVIOUS):
        try:
            read_journal(folder / name)
        except MissingFileError:
            if name == NAME:
                faults.append(Fault(name, f"{name} is missing; the next change writes it again"))
        except TensorcompError as error:
            faults.append(Fault(name, str(error)))
    deep |= bool(faults)  # of a journal made again, digests are those of files as they are now
    for number, name in unknown_files(folder, journal):
        try:
            describe(folder / name)
        except TensorcompError as error:
            faults.append(Fault(name, str(error), (number,)))
    progress.begin(len(journal.steps), sum(step.nbytes for step in journal.steps))
    broken: set[str] = set()  # files that take others with them, which are not told of again
    for step in journal.steps:
        bases = {one.file for one in journal.chain(step)} - {step.file}
        try:
            _check(folder, journal, step, deep=deep, alone=not broken.isdisjoint(bases))
        except TensorcompError as error:
            hurt = [one.step for one in journal.steps if step in journal.chain(one)]
            faults.append(Fault(step.file, str(error), tuple(hurt)))
            broken.add(step.file)
        progress.advance(step.file, step.nbytes)
    return faults


def _check(folder: Path, journal: Journal, step: Step, *, deep: bool, alone: bool) -> None:
    path = folder / step.file
    if file_digest(path) != step.digest:
        raise VerificationError("is damaged: its bytes are not those that were written", path=path)
    if alone:
        return
    with opened(folder, journal, step):
        pass
    if deep:
        bases = search_paths(folder, journal, step)
        for check in verify_file(path, bases=bases):
            if check.error is not None:
                raise CheckpointError(check.error, path=path)
