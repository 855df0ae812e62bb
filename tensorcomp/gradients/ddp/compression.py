"""Compress one model's gradients: the object that users hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.errors import GradientError
from tensorcomp.gradients.autotune.adaptive import Adaptive
from tensorcomp.gradients.base import Compressor, StepInfo
from tensorcomp.gradients.ddp import state_dict as states
from tensorcomp.gradients.ddp.autotuner import Autotuner
from tensorcomp.gradients.ddp.communicator import Communicator, check_alike
from tensorcomp.gradients.ddp.engine import Engine, Job
from tensorcomp.gradients.ddp.observers import RankCheck, Recorder
from tensorcomp.gradients.ddp.reducer import Reducer, parameters_of
from tensorcomp.gradients.ddp.refusals import PYTHON_REDUCER, refuse_unsynchronized_start
from tensorcomp.gradients.ddp.roll_call import LostRanksError
from tensorcomp.gradients.ddp.shards import MEAN_OF
from tensorcomp.gradients.ddp.state_store import SavedState
from tensorcomp.gradients.ddp.uncompressed import Pausable, average
from tensorcomp.gradients.payload.states import flatten, reading_saved
from tensorcomp.gradients.text import label, short
from tensorcomp.gradients.wrappers.base import chain
from tensorcomp.gradients.wrappers.packet_loss import PacketLoss
from tensorcomp.gradients.wrappers.phases import PhaseTracker


@dataclass(frozen=True)
class Settings:
    """Arguments of `compress_gradients` besides model, compressor and group."""

    scaler: torch.amp.GradScaler | None
    phases: PhaseTracker
    observe: int
    check_ranks: int
    packet_loss: PacketLoss | None


class GradientCompression(Pausable):
    """Compress one model's gradients, as `compress_gradients` returns it.

    Parameters
    ----------
    ddp_model : torch.nn.parallel.DistributedDataParallel
    compressor : Compressor
    comm : Communicator
        Of a group that nobody else uses.
    given : Settings

    Attributes
    ----------
    compressor : Compressor
        With all its wrappers.
    metrics : History
        Bytes, times and errors of the last steps, and sums of all.
    """

    def __init__(
        self,
        ddp_model: DistributedDataParallel,
        compressor: Compressor,
        comm: Communicator,
        given: Settings,
    ) -> None:
        self._group = ddp_model.process_group
        self._comm = comm
        self._scaler = given.scaler
        self._phases = given.phases
        find_unused = ddp_model.find_unused_parameters
        parameters = parameters_of(ddp_model, comm.rank)
        self._specs = list(parameters.values())
        self._reducer = Reducer(
            compressor, parameters, comm, find_unused=find_unused, packet_loss=given.packet_loss
        )
        recorder = Recorder(comm, given.observe, self._specs)
        self.compressor, self.metrics = compressor, recorder.history
        adaptive = [one for one in chain(compressor) if isinstance(one, Adaptive)]
        self._autotuner = Autotuner(adaptive[0], self._specs, comm) if adaptive else None
        observers = (RankCheck(comm, given.check_ranks), recorder, self._autotuner)
        self._reducer.observers = tuple(one for one in observers if one is not None)
        self._engine = Engine(self._reducer.run, comm)
        self._passing = False  # whether gradients are averaged as they are in this step
        self._closed = False
        settings = [
            f"compressor {compressor.text()}",
            f"find_unused_parameters={find_unused}",
            f"check_ranks={given.check_ranks}",
            f"{'a' if given.scaler is not None else 'no'} scaler",
            f"phases={given.phases}",
            f"packet_loss={given.packet_loss}",
        ]
        lines = [f"{one.name}{list(one.shape)} of {one.dtype}" for one in self._specs]
        check_alike(comm, [*settings, *lines])
        self._started = refuse_unsynchronized_start(ddp_model)

    def __getstate__(self) -> Any:
        """Refuse copies: two models cannot share the exchange of gradients."""
        raise GradientError(
            "a model whose gradients are compressed can neither be copied nor pickled as a whole; "
            "copy or save its .module"
        )

    @property
    def steps(self) -> int:
        """Return the steps that were done, without skipped ones."""
        return self._reducer.steps

    @property
    def phase(self) -> str:
        """Return the phase of training: "beginning", "middle" or "final"."""
        return self._phases.phase

    @property
    def choices(self) -> Mapping[str, str]:
        """Return the compressor chosen for each parameter (`Adaptive`)."""
        return {} if self._autotuner is None else dict(self._autotuner.choices)

    def summary(self, width: int | None = None) -> str:
        """Return totals and a table of all tensors (see `History.summary`).

        Parameters
        ----------
        width : int, optional
            Columns to keep within; by default a tensor is one line.
        """
        return self.metrics.summary(width)

    def report(self, metric: float) -> str:
        """Report a validation metric on all ranks, and return the training phase.

        Parameters
        ----------
        metric : float
            A loss or an accuracy. That of rank 0 counts.

        Returns
        -------
        str
            The phase, the same on all ranks.
        """
        self._check_idle()
        first, *_ = self._comm.all_gather_values(float(metric), "metric")
        self._phases = self._phases.observe(first)
        return self.phase

    def state_dict(self, mode: Literal["exact", "mean"] = "exact") -> dict[str, Any]:
        """Return what is remembered, as plain tensors and numbers by parameter name.

        Parameters
        ----------
        mode : str
            ``"exact"``, this rank's, from which it goes on bit for bit (where three ranks or more
            sum arrays on the way, up to the order of those sums, which depends on the buckets);
            ``"mean"``, the mean over all ranks, for any number of ranks: the sum of what is sent
            and what is left stays what it was. All ranks must call the latter together.

        Returns
        -------
        dict
            ``torch.load(..., weights_only=True)`` reads it. `checkpoints.to_tensors` makes tensors
            of it for other formats.
        """
        self._check_idle()
        if mode not in ("exact", "mean"):
            raise GradientError(f'expected mode "exact" or "mean", got {mode!r}')
        store, bounds = self._reducer.states, self._reducer.bounds
        parameters, means = states.divide(store.by_name())
        if mode == "mean":
            states.average(parameters, means, bounds, self._comm)
        return {
            "version": states.VERSION,
            "mode": mode,
            "world": self._comm.world,
            "rank": self._comm.rank if mode == "exact" else 0,
            "step": self._reducer.steps,
            "compressor": self.compressor.text(),
            "phase": self._phases.phase,
            "metrics": list(self._phases.metrics),
            "choices": self.choices,
            "units": [names for names in store.groups if names[0] in bounds],
            "states": states.as_tensors(parameters),
            "means": states.as_tensors(means),
        }

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Resume from what `state_dict` returned; all ranks do, before the next step.

        Parameters
        ----------
        state : mapping
        strict : bool
            Whether the compressor must be the one that was saved, but for what payloads do not
            show, such as bounds. Otherwise what fits another one is kept: its residuals.

        Raises
        ------
        GradientError
            If the state is that of another rank, model or compressor.
        """
        self._check_idle()
        state = states.checked(state, self._comm, self._reducer.bounds)
        if strict and state["compressor"] != self.compressor.text():
            raise GradientError(
                f"the state is of {short(state['compressor'])}, but the compressor is "
                f"{label(self.compressor)}; load it with strict=False to keep its residuals"
            )
        phases = replace(self._phases, phase=state["phase"], metrics=tuple(state["metrics"]))
        info = StepInfo(state["step"], phases.phase, dict(state["choices"]))
        with reading_saved():
            saved, means = states.saved_states(state["states"], strict=strict), state["means"]
            if state["mode"] == "mean":
                means = states.own_shards(means, self._reducer.bounds, self._comm.rank)
            owned = states.saved_states(means, strict=False)
            loaded = {MEAN_OF + name: one for name, one in owned.items()}
            for spec in self._specs:
                if spec.name in saved:
                    fitted = saved[spec.name].fit(self.compressor.at(info, spec).init(spec))
                    loaded[spec.name] = SavedState(flatten(fitted), strict=False)
        self._reducer.restore(loaded, state["step"], state["units"])
        self._phases = phases
        if self._autotuner is not None:
            self._autotuner.restore(state["choices"])

    def close(self) -> None:
        """Stop compressing on all ranks: average gradients uncompressed from now on."""
        if not self._closed:
            self._closed = True
            self._engine.close()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
            return
        failure = self._engine.failure or self._engine.heard()
        if failure is None:
            self._engine.fail(f"{type(error).__name__}: {error}")
        self.close()
        known = isinstance(error, GradientError) and not isinstance(error, LostRanksError)
        if failure is not None and not known:
            raise GradientError(failure) from error

    def reduce(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Return the future mean of a bucket; the communication hook calls this.

        Raises
        ------
        GradientError
            If some rank has failed.
        """
        if isinstance(bucket, tuple):
            raise GradientError(PYTHON_REDUCER)
        buffer = bucket.buffer()
        if self._closed:
            return average(buffer, self._group, self._comm.roll_call)
        self._engine.raise_failure()
        if self._paused:
            return average(buffer, self._group, self._comm.roll_call)
        if bucket.index() == 0:
            self._begin()
        if self._passing and not buffer.is_sparse:
            if bucket.is_last():
                self._reducer.end()
            return average(buffer, self._group, self._comm.roll_call)
        on_host = self._comm.device.type == "cpu"
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(
            devices=None if on_host else [buffer.device]
        )
        job = Job(bucket.index(), bucket.is_last(), buffer, bucket.parameters(), future)
        self._engine.submit(job, now=not on_host)
        return future

    def _begin(self) -> None:
        self._started()
        scale = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        choices = {} if self._autotuner is None else self._autotuner.choices
        info = StepInfo(self._reducer.steps, self._phases.phase, choices)
        self._passing = not self._reducer.begin(info, scale)

    def _check_idle(self) -> None:
        self._engine.raise_failure()
        if self._engine.waiting:
            raise GradientError("gradients are being exchanged; call this after backward()")
