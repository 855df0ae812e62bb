"""Keep the journal of a series: which file holds which step, and its base.

``series.json`` is replaced atomically, and the one before is kept as ``series.json.1``. All that it
says of a step is in the step's file, too, so that a lost journal is made again from the files.
Files of steps that it does not know, as a killed `Series.add` leaves them, are taken in; further
files of a step that it knows are left to `gc`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import xxhash

from tensorcomp._log import LOGGER
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import (
    PARSING_ERRORS,
    CheckpointError,
    FormatError,
    MissingFileError,
    TensorcompError,
)
from tensorcomp.io.files import atomic_file, reading, writing
from tensorcomp.series.parts import about_step, is_optimizer

NAME, PREVIOUS, _LOCK = "series.json", "series.json.1", "series.lock"
BASE = -1  # number of a base that is no step
_FILE = re.compile(r"(?:step-(\d{1,18})|base)(?:\.(\d{1,9}))?\.tc\.safetensors")
_OTHER = -2  # of a file that is of no step
_VERSION = 1
# What the file of a step tells of it, as it is in its record.
_TOLD = ("step", "time", "policy", "source_bytes", "has_optimizer", "metric")
_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Step:
    """Record of a step of a series.

    Parameters
    ----------
    step : int
        -1 is a base that is no step.
    file : str
        Name of its file in the series.
    time : float
        When it was added, in seconds since 1970.
    policy : str
        By which it was encoded.
    nbytes, source_bytes : int
        Of its file, and of what was added.
    digest : str
        XXH3-128 of its file.
    base : str or None
        Name of the file that it is coded against, or the path of one elsewhere; None of a keyframe.
    weights_error, moments_error : float
        Largest rel-L2 of a tensor; 0 if exact.
    has_optimizer : bool
        Whether it holds an optimizer's state.
    metric : float or None
        As it was given: lower is better.
    depth : int
        Number of files to be decoded before its own.
    """

    step: int
    file: str
    time: float
    policy: str
    nbytes: int
    source_bytes: int
    digest: str
    base: str | None = None
    weights_error: float = 0.0
    moments_error: float = 0.0
    has_optimizer: bool = False
    metric: float | None = None
    depth: int = 0

    @property
    def ratio(self) -> float:
        """Bytes of what was added / bytes of the file."""
        return self.source_bytes / max(self.nbytes, 1)

    @property
    def resumable(self) -> str:
        """State of training in it: ``exact``, ``bounded`` or ``weights only``."""
        if not self.has_optimizer:
            return "weights only"
        return "bounded" if self.weights_error or self.moments_error else "exact"


@dataclass(frozen=True)
class Journal:
    """Steps of a series in order, and files that may be removed.

    Parameters
    ----------
    steps : tuple of Step
    trash : mapping of str to float
        Files that no step needs, and since when.
    """

    steps: tuple[Step, ...] = ()
    trash: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, steps: Iterable[Step], trash: Mapping[str, float] = _NOTHING) -> Journal:
        """Return the journal of steps in any order; their depths are counted."""
        counted: dict[str, Step] = {}
        for step in sorted(steps, key=lambda step: step.step):
            base = counted.get(step.base or "")
            below = 0 if step.base is None else 1
            counted[step.file] = replace(step, depth=below + (0 if base is None else base.depth))
        return cls(tuple(counted.values()), trash)

    def find(self, step: int) -> Step:
        """Return the record of a step; raise `CheckpointError` if there is none."""
        for one in self.steps:
            if one.step == step:
                return one
        known = [one.step for one in self.steps if one.step != BASE]
        span = f"{len(known)} from {known[0]} to {known[-1]}" if known else "none"
        raise CheckpointError(f"has no step {step}; it has {span}: see series ls")

    def chain(self, step: Step) -> list[Step]:
        """Return the steps that a step is decoded from: keyframe first, itself last."""
        chain = [step]
        for one in reversed(self.steps):
            if one.step < chain[0].step and one.file == chain[0].base:
                chain.insert(0, one)
        return chain


def is_step_file(name: str) -> bool:
    """Return whether a file is that of a step, by its name."""
    return number_of(name) != _OTHER


def free_name(folder: Path, step: int) -> str:
    """Return a new name for a step's file, of the next generation if need be."""
    last = max((count for found, count, _ in _step_files(folder) if found == step), default=-1)
    name = "base" if step == BASE else f"step-{step:08}"
    return f"{name}{f'.{last + 1}' if last >= 0 else ''}.tc.safetensors"


def _step_files(folder: Path) -> Iterator[tuple[int, int, str]]:
    """Yield the step, generation and name of every file of a step."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if found := _FILE.fullmatch(path.name):
            yield int(found[1] or BASE), int(found[2] or 0), path.name


def load_journal(folder: Path) -> Journal:
    """Return the journal, made again from the files where it is lost or damaged.

    Of a step that it does not know, the first generation is taken whose base is there.
    """
    journal = Journal()
    try:
        journal = read_journal(folder / NAME)
    except MissingFileError:
        pass
    except FormatError as error:
        LOGGER.warning("%s; made again from the files", error)
    known = {step.step: step for step in journal.steps}
    for number, name in unknown_files(folder, journal):
        if number not in known:
            try:
                known[number] = describe(folder / name)
            except TensorcompError as error:
                LOGGER.warning("%s; left out", error)
    return Journal.of(known.values(), journal.trash)


def unknown_files(folder: Path, journal: Journal) -> list[tuple[int, str]]:
    """Return the number and name of files of steps that a journal does not have."""
    known = {step.step for step in journal.steps}
    files = sorted(_step_files(folder))
    return [(n, name) for n, _, name in files if n not in known and name not in journal.trash]


def number_of(name: str) -> int:
    """Return the number of the step that a file is of, by its name."""
    found = _FILE.fullmatch(name)
    return _OTHER if found is None else int(found[1] or BASE)


def describe(path: Path) -> Step:
    """Return the record of a step from its file.

    Raises
    ------
    CheckpointError, FormatError
        If it cannot be read, is not the file of a step, or its base is not there.
    """
    with CompressedFile(path) as file:
        about = about_step(file)
        if about["step"] != number_of(path.name):
            raise FormatError(f"holds step {about['step']}, not that of its name", path=path)
        base = about["base"] if file.manifest.bases else None
        if is_step_file(base or ""):  # else it is elsewhere
            base = file.find_bases()[0].name  # of what generation it may be
        # What a rewritten step had lost before adds to what it lost then.
        before = about.get("errors", (0.0, 0.0))
        lost = {False: 0.0, True: 0.0}
        for record in file.manifest.blobs.values():
            kind = is_optimizer(record.role)
            lost[kind] = max(lost[kind], record.rel_l2)
        sizes: dict[str, Any] = {"nbytes": file.nbytes, "digest": file_digest(path)}
        errors = before[0] + lost[False], before[1] + lost[True]
        told: dict[str, Any] = {name: about.get(name) for name in _TOLD}
        if not all(isinstance(told[name], int) for name in ("step", "source_bytes")):
            raise FormatError("is not the file of a step of a series", path=path)
        told |= dict(zip(("weights_error", "moments_error"), errors, strict=True))
        return Step(file=path.name, base=base, **told, **sizes)


def file_digest(path: Path) -> str:
    """Return the XXH3-128 of a file's bytes."""
    digest = xxhash.xxh3_128()
    with reading(path), path.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return str(digest.hexdigest())


def _to_text(journal: Journal) -> str:
    steps = ",\n".join(json.dumps(asdict(step)) for step in journal.steps)
    body = f'"format": {_VERSION}, "trash": {json.dumps(dict(journal.trash))}, "steps": [\n{steps}]'
    return f'{{{body},\n"digest": "{xxhash.xxh3_128_hexdigest(body.encode())}"}}\n'


def read_journal(path: Path) -> Journal:
    """Read a journal.

    Raises
    ------
    MissingFileError
        If there is none.
    FormatError
        If a byte of it is not as it was written, or it is of a newer format.
    """
    with reading(path):
        data = path.read_bytes()
    try:
        value: dict[str, Any] = json.loads(data)
        if value["format"] > _VERSION:  # not taken for damaged, lest it be replaced
            raise CheckpointError("is of a newer format; install a newer tensorcomp", path=path)
        journal = Journal(tuple(Step(**step) for step in value["steps"]), value["trash"])
        if _to_text(journal).encode() != data or not _is_sound(journal):
            raise ValueError("other bytes than were written")
    except PARSING_ERRORS as error:
        raise FormatError(f"the journal is damaged ({error})", path=path) from error
    return journal


def _is_sound(journal: Journal) -> bool:
    """Return whether values have their types, and files are those of steps, once each."""
    return (
        all(
            type(getattr(step, one.name)).__name__.removesuffix("Type")
            in str(one.type).split(" | ")
            for step in journal.steps
            for one in fields(step)
        )
        and [step.step for step in journal.steps] == [number_of(s.file) for s in journal.steps]
        and len({step.step for step in journal.steps}) == len(journal.steps)
        and all(is_step_file(n) and isinstance(t, float) for n, t in journal.trash.items())
    )


def write_journal(folder: Path, journal: Journal) -> None:
    """Replace the journal atomically; keep the sound one that was there."""
    with contextlib.suppress(TensorcompError):
        before = _to_text(read_journal(folder / NAME))
        with atomic_file(folder / PREVIOUS, force=True) as file:
            file.write(before.encode())
    with atomic_file(folder / NAME, force=True) as file:
        file.write(_to_text(journal).encode())


@contextlib.contextmanager
def writing_alone(folder: Path) -> Iterator[None]:
    """Wait until no other writer is at work in a series; readers need no lock.

    The system lets go of the lock of a writer that was killed.
    """
    try:
        import fcntl
    except ImportError:  # on Windows
        yield
        return
    with contextlib.ExitStack() as stack:
        with writing(folder / _LOCK):
            file = stack.enter_context((folder / _LOCK).open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
