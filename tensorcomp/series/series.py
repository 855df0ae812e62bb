"""Keep the checkpoints of a training run in a folder, each as what changed."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

from tensorcomp._threads import Workers
from tensorcomp.api.load import safe_open
from tensorcomp.container.bases import MAX_DEPTH
from tensorcomp.container.reader import open_any
from tensorcomp.errors import CheckpointError, OptionError
from tensorcomp.io.files import reading
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.progress import Progress
from tensorcomp.series import gc
from tensorcomp.series.add import add_step, step_metadata, trainer_state
from tensorcomp.series.chain import Fault, faults_of, opened, search_paths
from tensorcomp.series.follow import Follower
from tensorcomp.series.journal import (
    BASE,
    Journal,
    Step,
    load_journal,
    writing_alone,
)
from tensorcomp.series.parts import open_files, open_parts, weights_of, write_parts
from tensorcomp.series.state import Snapshot, restore_state, state_parts
from tensorcomp.series.write import EXACT, Base

DEFAULT_GRACE = 3600.0  # seconds


class Series:
    """Checkpoints of one training run; a context manager.

    A folder of ordinary compressed files, one a step, and a journal (see `journal`). Each step is
    coded against the one before, as that is decoded, and every so many steps stand alone. Readers
    need no lock; writers wait for each other.

    Parameters
    ----------
    path : str or path-like
        The folder, made when the first step is added.
    keyframe_every : int
        Steps from one keyframe to the next, 64 at most: a step is decoded after fewer others.
    policy : {"exact", "resume", "archive"}
        What steps may lose. ``resume`` bounds the error of weights by their change and codes the
        optimizer's state coarsely; ``archive`` drops first moments as well.
    threads : int, optional
        To encode and decode on; all available processors by default.

    Raises
    ------
    OptionError
        If `keyframe_every` or `policy` is none of these.

    Examples
    --------
    >>> import torch
    >>> from tensorcomp import Series
    >>> model = torch.nn.Linear(8, 8)
    >>> with Series("run") as series:
    ...     series.add(1, model=model, extra={"epoch": 0})
    ...     series.flush()
    ...     series.restore(1, model)
    {'epoch': 0}
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keyframe_every: int = 16,
        policy: str = EXACT,
        threads: int | None = None,
    ) -> None:
        if not isinstance(keyframe_every, int) or not 1 <= keyframe_every <= MAX_DEPTH:
            raise OptionError(f"expected keyframe_every of 1 to {MAX_DEPTH}, got {keyframe_every}")
        self.path = Path(path)
        CompressOptions(policy=policy)  # which checks it
        self._every, self._policy, self._threads = keyframe_every, policy, threads
        self._add = partial(add_step, self.path, keyframe_every, threads)
        self._snapshot = Snapshot()
        self._pool = ThreadPoolExecutor(1, "tensorcomp-series")
        self._pending: list[Future[Step]] = []  # one at most
        weakref.finalize(self, _warn_of_failures, self._pending)

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for what is being written; raise its error, unless there is another."""
        with contextlib.nullcontext() if kind is None else contextlib.suppress(Exception):
            self.flush()
        self._pool.shutdown()

    def add(
        self,
        step: int,
        model: Any = None,
        optimizer: Any = None,
        extra: Any = None,
        *,
        metric: float | None = None,
        policy: str | None = None,
    ) -> None:
        """Copy a state and return; it is encoded and written on a thread.

        One state at a time is written: this waits for the one before. What went wrong with that is
        raised here, and nothing is added then. The last one is awaited when the process ends.

        Parameters
        ----------
        step : int
            Its number, which no other step has.
        model, optimizer : object with ``state_dict`` or a state dict, optional
        extra : optional
            Any nesting of dicts, lists, tuples, plain values, tensors and NumPy arrays: states of
            schedulers, random generators, positions in data.
        metric : float, optional
            By which `thin` may keep the best steps; lower is better. NaN and infinity are none.
        policy : str, optional
            Another than the series' own.

        Raises
        ------
        InputTypeError
            If the state holds other values.
        """
        self.flush()
        parts = state_parts(self._snapshot, model, optimizer, extra)
        about = step_metadata(step, policy or self._policy, metric)
        try:
            self._pending.append(self._pool.submit(self._add, parts, about))
        except RuntimeError as error:
            raise CheckpointError("is closed; open the series anew", path=self.path) from error

    def flush(self) -> None:
        """Wait until what was added is on the disk.

        Raises
        ------
        CheckpointError
            If it could not be written, or the step exists already.
        """
        while self._pending:
            self._pending.pop().result()

    def add_path(
        self,
        path: str | os.PathLike[str],
        step: int | None = None,
        *,
        base: str | os.PathLike[str] | None = None,
        external_base: bool = False,
        metric: float | None = None,
        policy: str | None = None,
        progress: Progress | None = None,
    ) -> Step:
        """Add a checkpoint file, or all files of a folder.

        Parameters
        ----------
        path : str or path-like
        step : int, optional
            By default that of ``trainer_state.json``, or the number that ends the name.
        base : str or path-like, optional
            What the first step was tuned from. It is copied into the series, once.
        external_base : bool
            Leave the base where it is: without it, no step can be read.
        metric, policy
            As for `add`.
        progress : Progress, optional

        Raises
        ------
        CheckpointError
            If it cannot be read, the step exists already, or its number is not known.
        """
        self.flush()
        path = Path(path)
        own_step, own_metric = trainer_state(path)
        number = own_step if step is None else step
        if number is None:
            raise CheckpointError("expected a name that ends in the step; give step=…", path=path)
        known = own_metric if metric is None else metric
        outside, about = None, step_metadata(number, policy or self._policy, known)
        if base is not None and external_base:
            with reading(Path(base)):
                place = Path(base).resolve(strict=True)
            outside = Base(str(place), partial(open_any, place), float("inf"))
        elif base is not None and not any(one.step == BASE for one in self._journal().steps):
            self._add_files(Path(base), {**step_metadata(0), "step": BASE}, None, progress)
        return self._add_files(path, about, outside, progress)

    def _add_files(
        self, path: Path, about: Mapping[str, Any], base: Base | None, progress: Progress | None
    ) -> Step:
        with contextlib.ExitStack() as stack:
            return self._add(open_files(path, stack), about, base, progress, stack.close)

    def _journal(self) -> Journal:
        return load_journal(self.path)

    @property
    def steps(self) -> list[Step]:
        """Records of all steps, in order."""
        return [step for step in self._journal().steps if step.step != BASE]

    @property
    def latest(self) -> int | None:
        """The newest step; None where there is none."""
        return self.steps[-1].step if self.steps else None

    def open(self, step: int, framework: str = "np", device: Any = "cpu") -> safe_open:
        """Open a step for tensors and slices, as `tensorcomp.safe_open` does."""
        self.flush()
        journal = self._journal()
        found = journal.find(step)
        with opened(self.path, journal, found):
            bases = search_paths(self.path, journal, found)
        return safe_open(self.path / found.file, framework, device, bases=bases)

    def get(
        self,
        step: int,
        name: str | None = None,
        *,
        out: str | os.PathLike[str] | None = None,
        only_weights: bool = False,
        force: bool = False,
        framework: str = "np",
        progress: Progress | None = None,
    ) -> Any:
        """Return a tensor of a step, or write the step as the files that were added.

        Parameters
        ----------
        step : int
        name : str, optional
            Of a tensor, which is returned.
        out : str or path-like, optional
            A file or, of a step of several files, a folder to write, which needs no other file.
        only_weights : bool
            Write one safetensors file of the weights.
        force : bool
            Replace an existing output.
        framework : {"np", "pt"}
            Of the tensor that is returned.
        progress : Progress, optional
            Of what is written.

        Raises
        ------
        CheckpointError, FormatError, VerificationError
            If there is no such step, or a file of its chain is missing or damaged.
        """
        if (name is None) == (out is None):
            raise OptionError("expected name or out, got both or none; give one of them")
        if name is not None:
            with self.open(step, framework) as file:
                return file.get_tensor(name)
        self.flush()
        journal = self._journal()
        with (
            opened(self.path, journal, journal.find(step)) as found,
            Workers(self._threads) as pool,
        ):
            parts = open_parts(found, pool)
            wanted = {"": weights_of(parts)} if only_weights else parts
            write_parts(wanted, Path(str(out)), progress or Progress(), force=force)
        return Path(str(out))

    def restore(self, step: int, model: Any = None, optimizer: Any = None) -> Any:
        """Load a step into a model and an optimizer; return what is extra.

        All is decoded and compared with them before either is touched.

        Raises
        ------
        CheckpointError, FormatError, VerificationError
            If the chain is not whole, or damaged, or the step is of another model or has no
            optimizer's state. Model and optimizer are as they were then.
        """
        self.flush()
        journal = self._journal()
        found = journal.find(step)
        return restore_state(self.path, journal, found, model, optimizer, self._threads)

    def follow(self, model: Any) -> Follower:
        """Return what copies each new step into a model, for workers that only read."""
        return Follower(self.path, model)

    def verify(self, *, deep: bool = False, progress: Progress | None = None) -> list[Fault]:
        """Return the damaged files, each with the steps that it takes with it.

        Every byte is compared with what was written, and every chain found whole; `deep` decodes
        all tensors as well.
        """
        self.flush()
        return faults_of(self._existing(), self._journal(), progress or Progress(), deep=deep)

    def thin(
        self,
        keep_optimizer: Iterable[str] = ("last:2",),
        *,
        policy: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Drop the optimizer's state of old steps; their weights stay exact.

        Steps whose base changes are written again first, all as new files. The old files stay until
        `gc` removes them. The newest step always stays as it is.

        Parameters
        ----------
        keep_optimizer : iterable of str
            Steps that stay as they are: ``last:2``, ``every:5000``, ``best:3``.
        policy : str, optional
            ``archive`` makes old steps bounded instead: 26 to 66 times smaller than the state, but
            keyframes 3 to 4 times, as was measured on a model of 1.3 million weights; larger ones
            were not tried.
        progress : Progress, optional
        """
        self.flush()
        with writing_alone(self._existing()):
            kept = gc.select(self._journal(), keep_optimizer)
            CompressOptions(policy=policy or EXACT)  # which checks it
            gc.thin(self.path, kept, policy, progress or Progress(), self._threads)

    def rebase(self, every: int | None = None, progress: Progress | None = None) -> None:
        """Make keyframes of steps that are `every` files deep.

        By default, half of the series' `keyframe_every`. They are written as new files, as by
        `thin`.
        """
        self.flush()
        depth = max(self._every // 2, 1) if every is None else every
        with writing_alone(self._existing()):
            gc.rebase(self.path, depth, progress or Progress(), self._threads)

    def gc(
        self, grace: float = DEFAULT_GRACE, *, dry_run: bool = False
    ) -> tuple[list[str], list[str]]:
        """Name files that no step needs, and remove those named `grace` seconds ago.

        Returns
        -------
        named, removed : list of str
        """
        self.flush()
        with writing_alone(self._existing()):
            return gc.collect(self.path, grace, dry_run=dry_run)

    def _existing(self) -> Path:
        if not self.path.is_dir():
            raise CheckpointError("there is no such series", path=self.path)
        return self.path


def _warn_of_failures(pending: Iterable[Future[Step]]) -> None:
    """Tell at the end of what went wrong after the last call, which nobody waited for."""
    for one in pending:
        if error := one.exception():
            warnings.warn(f"a step was not added: {error}", RuntimeWarning, stacklevel=2)
