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
from dataclasses import asdict, dataclass, field, replace
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
from tensorcomp.io.files import atomic_file, reading
from tensorcomp.series.parts import about_step, is_optimizer

NAME, PREVIOUS, _LOCK = "series.json", "series.json.1", "series.lock"
BASE = -1  # number of a base that is no step
_FILE = re.compile(r"(?:step-(\d{1,18})|base)(?:\.(\d{1,9}))?\.tc\.safetensors")
_VERSION = 1


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
    def of(
        cls, steps: Iterable[Step], trash: Mapping[str, float] = MappingProxyType({})
    ) -> Journal:
        """Return the journal of steps in any order; their depths are counted."""
        found = {step.file: step for step in steps}

        def depth(step: Step, seen: int = 0) -> int:
            if seen > len(found):
                raise FormatError(f"step {step.step} is its own base; rebuild the journal")
            if step.base is None:
                return 0
            base = found.get(step.base)
            return 1 if base is None else 1 + depth(base, seen + 1)

        ordered = sorted(found.values(), key=lambda step: step.step)
        return cls(tuple(replace(step, depth=depth(step)) for step in ordered), dict(trash))

    def find(self, step: int) -> Step:
        """Return the record of a step; raise `CheckpointError` if there is none."""
        for one in self.steps:
            if one.step == step:
                return one
        raise CheckpointError(f"has no step {step}; its steps are {_span(self.steps)}")

    def chain(self, step: Step) -> list[Step]:
        """Return the steps that a step is decoded from: keyframe first, itself last."""
        files = {one.file: one for one in self.steps}
        chain = [step]
        while (base := files.get(chain[0].base or "")) is not None:
            chain.insert(0, base)
        return chain


def _span(steps: tuple[Step, ...]) -> str:
    own = [step.step for step in steps if step.step != BASE]
    return f"{own[0]} to {own[-1]}" if own else "none"


def file_name(step: int, generation: int = 0) -> str:
    """Return the name of a step's file; what is written again has another."""
    name = "base" if step == BASE else f"step-{step:08}"
    return f"{name}.{generation}.tc.safetensors" if generation else f"{name}.tc.safetensors"


def is_step_file(name: str) -> bool:
    """Return whether a file is that of a step, by its name."""
    return _number(name) is not None


def free_name(folder: Path, step: int) -> str:
    """Return the name of the first generation of a step that no file has."""
    taken = {generation for found, generation, _ in _step_files(folder) if found == step}
    return file_name(step, max(taken, default=-1) + 1)


def _step_files(folder: Path) -> Iterator[tuple[int, int, str]]:
    """Yield the step, generation and name of every file of a step."""
    with reading(folder):
        names = [path.name for path in folder.iterdir()]
    for name in names:
        if found := _FILE.fullmatch(name):
            yield int(found[1] or BASE), int(found[2] or 0), name


def load_journal(folder: Path) -> Journal:
    """Return the journal, made again from the files where it is lost or damaged."""
    try:
        journal = read_journal(folder / NAME)
    except MissingFileError:
        journal = Journal()
    except FormatError as error:
        LOGGER.warning("%s; made again from the files", error)
        journal = Journal()
    known = {step.step for step in journal.steps}
    new: dict[int, list[str]] = {}
    for step, _, name in sorted(_step_files(folder)) if folder.is_dir() else ():
        if step not in known and name not in journal.trash:
            new.setdefault(step, []).append(name)
    return _with_files(journal, folder, new) if new else journal


def _with_files(journal: Journal, folder: Path, new: Mapping[int, list[str]]) -> Journal:
    """Add steps that are known by their files: the first generation that has its base."""
    added: dict[int, Step] = {one.step: one for one in journal.steps}
    for number in sorted(new):
        for name in new[number]:
            try:
                step = describe(folder / name)
            except TensorcompError as error:
                LOGGER.warning("%s; left out", error)
                continue
            base = _number(step.base or "")
            own = step if base is None else added.get(base, step)
            added[number] = step if own is step else replace(step, base=own.file)
            break
    return Journal.of(added.values(), journal.trash)


def _number(name: str) -> int | None:
    """Return the number of the step that a file is of, by its name; None of another file."""
    found = _FILE.fullmatch(name)
    return None if found is None else int(found[1] or BASE)


def describe(path: Path) -> Step:
    """Return the record of a step from its file.

    Raises
    ------
    CheckpointError, FormatError
        If it cannot be read, is not the file of a step, or its base is not there.
    """
    with CompressedFile(path) as file:
        about = about_step(file)
        base = about["base"] if file.manifest.bases else None
        if is_step_file(base or ""):  # else it is elsewhere
            file.find_bases()
        errors = dict(zip(("weights", "moments"), about.get("errors", (0.0, 0.0)), strict=True))
        before, has_optimizer = dict(errors), bool(about["has_optimizer"])
        for record in file.manifest.blobs.values():
            kind = "moments" if is_optimizer(record.role) else "weights"
            # What a rewritten step had lost before adds to what it lost then.
            errors[kind] = max(errors[kind], before[kind] + record.rel_l2)
        return Step(
            step=int(about["step"]),
            file=path.name,
            time=float(about["time"]),
            policy=str(about["policy"]),
            nbytes=file.nbytes,
            source_bytes=int(about["source_bytes"]),
            digest=file_digest(path),
            base=base,
            weights_error=errors["weights"],
            moments_error=errors["moments"],
            has_optimizer=has_optimizer,
            metric=about.get("metric"),
        )


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
        if value["format"] > _VERSION:
            raise FormatError("is of a newer format; install a newer tensorcomp", path=path)
        journal = Journal(tuple(Step(**step) for step in value["steps"]), value["trash"])
        if _to_text(journal).encode() != data:
            raise ValueError("other bytes than were written")
    except PARSING_ERRORS as error:
        raise FormatError(f"the journal is damaged ({error})", path=path) from error
    return journal


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
    with (folder / _LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
