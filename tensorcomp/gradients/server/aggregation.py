"""Average messages as a parameter server does, without sockets."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor, GradientSpec, StepInfo
from tensorcomp.gradients.payload.decoded import DecodedGradient
from tensorcomp.gradients.payload.states import reading_saved
from tensorcomp.gradients.server.message import MAX_GRADIENT_BYTES, Message, decompress
from tensorcomp.gradients.server.worker import SERVER, WorkerCompression, checked_weight, saved_step

Outcome: TypeAlias = Literal["counted", "folded", "refused", "repeated"]


@dataclass(frozen=True)
class Round:
    """Hold the answer to a step, and whose gradients are in it.

    Parameters
    ----------
    message : bytes
        The mean of the gradients, compressed: what all workers are to be sent, and to apply.
    workers : tuple of int
        Whose gradients of this step are in it.
    folded : tuple of (int, int)
        Worker and step of gradients of earlier steps that are in it.
    missing : tuple of int
        Workers that were expected and did not come.
    weight : float
        The sum of all weights.
    """

    step: int
    message: bytes
    workers: tuple[int, ...]
    folded: tuple[tuple[int, int], ...]
    missing: tuple[int, ...]
    weight: float

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the mean as workers decode it; a server applies this one as well."""
        return decompress(self.message)


@dataclass(frozen=True)
class _Arrived:
    """Hold a message that is to be part of a mean, and what it decodes to."""

    data: bytes
    decoded: Mapping[str, DecodedGradient]
    weight: float


class Aggregator:
    """Take in workers' messages, and answer each step with their weighted mean.

    The mean of a tensor is Σ wᵢ gᵢ / Σ wᵢ over the messages that have it, in the order of steps and
    workers: it does not depend on the order in which they came. One step is open at a time. A
    message of an earlier step is late: it is folded into the open step as one more gradient with
    its weight, or refused. No message of a worker and step counts twice.

    Parameters
    ----------
    compressor : Compressor or str, optional
        Of answers; its error feedback is kept here. Answers are lossless by default.
    workers : mapping of int to float, optional
        Weights by the number of the worker, in place of those in messages; others are not taken. By
        default any worker is, with the weight it says it has.
    quorum : int, optional
        Workers without whose gradients of the step itself there is no answer.
    late : {"fold", "refuse"}, optional
        What becomes of a message of an earlier step.
    lateness : int, optional
        Steps after which a message is refused anyway; for so long answers are kept as well.
    step : int, optional
        The first step.
    limit : int, optional
        Bytes that the gradients of one worker may take.

    Attributes
    ----------
    step : int
        The open step.

    Raises
    ------
    GradientError
        If a parameter is out of range.

    Notes
    -----
    Memory: what the messages of the open step decode to (k elements of sparse ones), the answer's
    residual, and the bytes of the last answers.

    References
    ----------
    Li et al. 2014, "Scaling distributed machine learning with the parameter server"; McMahan et
    al. 2017, "Communication-efficient learning of deep networks from decentralized data" (weights);
    Tang et al. 2019, "DoubleSqueeze" (error feedback on both sides).
    """

    def __init__(
        self,
        compressor: Compressor | str = "dense",
        *,
        workers: Mapping[int, float] | None = None,
        quorum: int = 1,
        late: Literal["fold", "refuse"] = "fold",
        lateness: int = 8,
        step: int = 0,
        limit: int = MAX_GRADIENT_BYTES,
    ) -> None:
        if quorum < 1 or (workers is not None and quorum > len(workers)):
            most = "" if workers is None else f", {len(workers)} at most"
            raise GradientError(f"expected a quorum of 1 worker or more{most}, got {quorum}")
        if late not in ("fold", "refuse"):
            raise GradientError(f'expected late to be "fold" or "refuse", got {late!r}')
        if lateness < 0:
            raise GradientError(f"expected lateness to be 0 steps or more, got {lateness}")
        for worker, weight in (workers or {}).items():
            checked_weight(weight, f"worker {worker}: ")
        self._answers = WorkerCompression(compressor, worker=SERVER)
        self._workers = None if workers is None else dict(workers)
        self._quorum = quorum
        self._late = late
        self._lateness = lateness
        self._limit = limit
        self.step = step
        self._arrived: dict[tuple[int, int], _Arrived] = {}
        self._counted: set[tuple[int, int]] = set()  # of closed steps that can still be late
        self._specs: dict[str, GradientSpec] = {}
        self._rounds: dict[int, Round] = {}

    @property
    def present(self) -> tuple[int, ...]:
        """Return the workers whose gradients of the open step have arrived."""
        return tuple(sorted(worker for step, worker in self._arrived if step == self.step))

    @property
    def missing(self) -> tuple[int, ...]:
        """Return the workers that are still expected at the open step."""
        return tuple(sorted(set(self._workers or ()) - set(self.present)))

    @property
    def ready(self) -> bool:
        """Return whether enough workers have arrived for an answer."""
        return len(self.present) >= self._quorum

    def add(self, data: bytes) -> Outcome:
        """Take in a message that `WorkerCompression.compress` returned.

        Returns
        -------
        str
            ``"counted"``: it is part of the open step; ``"folded"``: it is late, and will be part
            of the open step; ``"refused"``: it is late, and will not be; ``"repeated"``: a message
            of this worker and step is counted already. Whoever's message was refused can take it
            back (`WorkerCompression.take_back`).

        Raises
        ------
        CodecError
            If it is damaged.
        GradientError
            If it is of a later step or of a worker that is not expected, takes more than the limit,
            does not fit earlier messages, or holds values that are not finite. Nothing has changed.
        """
        message = Message.from_bytes(data, limit=self._limit)
        key = (message.step, message.worker)
        who = f"worker {message.worker}, step {message.step}"
        if self._workers is not None and message.worker not in self._workers:
            raise GradientError(f"{who}: no such worker is expected; name it in workers")
        if message.worker < 0:
            raise GradientError(f"{who}: that is the number of answers, not of a worker")
        if message.step > self.step:
            raise GradientError(
                f"{who}: step {self.step} is open; its sender has not waited for the answer, or "
                "another aggregator was asked before"
            )
        if key in self._arrived or key in self._counted:
            return "repeated"
        lateness = self.step - message.step
        if lateness > (self._lateness if self._late == "fold" else 0):
            return "refused"
        specs = self._fitting(message, who)
        decoded = message.decoded()
        for name, one in decoded.items():
            values = getattr(one, "values", np.zeros(0))
            # they would make means, and then residuals, non-finite
            if not bool((np.abs(values) <= np.finfo(values.dtype).max / 4).all()):
                raise GradientError(
                    f"{who}: the gradient of {name!r} has values that are not finite, or nearly so"
                )
        weight = message.weight if self._workers is None else self._workers[message.worker]
        self._arrived[key] = _Arrived(data, decoded, weight)
        self._specs = specs
        return "folded" if lateness else "counted"

    def _fitting(self, message: Message, who: str) -> dict[str, GradientSpec]:
        """Return the specs of all tensors that are known with this message."""
        specs = dict(self._specs)
        for name, payload in message.payloads.items():
            found, known = payload.spec, specs.setdefault(name, payload.spec)
            if (found.shape, found.dtype) != (known.shape, known.dtype):
                raise GradientError(
                    f"{who}: {name!r} is {found.dtype} {found.shape}, but {known.dtype} "
                    f"{known.shape} in earlier messages"
                )
        nbytes = sum(one.nbytes for one in specs.values())
        if nbytes > self._limit:
            raise GradientError(
                f"{who}: with its new tensors all gradients take {nbytes:,} bytes, the limit is "
                f"{self._limit:,}"
            )
        return specs

    def result(self, step: int) -> Round:
        """Close the open step and return its answer, or an earlier step's.

        Raises
        ------
        GradientError
            If there are fewer workers than the quorum, or the step is neither the open one nor
            one whose answer is still kept.
        """
        if step in self._rounds:
            return self._rounds[step]
        if step != self.step:
            kept = f"; answers are kept from step {min(self._rounds)}" if self._rounds else ""
            raise GradientError(f"step {step} has no answer: step {self.step} is open{kept}")
        if not self.ready:
            raise GradientError(
                f"step {step} has {len(self.present)} workers, the quorum is {self._quorum}; "
                "wait for more"
            )
        arrived = dict(sorted(self._arrived.items()))
        done = self._rounds[step] = Round(
            step,
            self._answers.compress(self._mean(arrived.values()), info=StepInfo(step)),
            self.present,
            tuple((worker, earlier) for earlier, worker in arrived if earlier < step),
            self.missing,
            sum(one.weight for one in arrived.values()),
        )
        while len(self._rounds) > max(self._lateness, 1):
            del self._rounds[min(self._rounds)]
        self.step += 1
        oldest = self.step - self._lateness
        self._counted = {key for key in self._counted | set(self._arrived) if key[0] >= oldest}
        self._arrived = {}
        return done

    def _mean(self, arrived: Collection[_Arrived]) -> dict[str, np.ndarray]:
        """Return Σ wᵢ gᵢ / Σ wᵢ of each tensor over its messages, in order."""
        means: dict[str, np.ndarray] = {}
        for name in dict.fromkeys(name for one in arrived for name in one.decoded):
            having = [one for one in arrived if name in one.decoded]
            total = sum(one.weight for one in having)
            spec = self._specs[name]
            means[name] = np.zeros(spec.shape, spec.dtype)
            for one in having:
                one.decoded[name].add_to(means[name].reshape(-1), one.weight / total)
        return means

    def state_dict(self) -> dict[str, Any]:
        """Return the state as nested dictionaries of arrays and numbers.

        Messages of the open step are in it, answers to closed steps are not.
        """
        return {
            "step": self.step,
            "answers": self._answers.state_dict(),
            "counted": np.array(sorted(self._counted), np.int64).reshape(-1, 2),
            "arrived": {
                f"{step}/{worker}": np.frombuffer(one.data, np.uint8).copy()
                for (step, worker), one in sorted(self._arrived.items())
            },
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take a state from `state_dict` of an aggregator with the same parameters.

        A damaged one, or another compressor's, is a `GradientError`; nothing has changed then.
        """
        new = copy.copy(self)
        new._arrived, new._specs, new._rounds = {}, {}, {}
        with reading_saved():
            new.step = saved_step(saved["step"])
            new._counted = {(int(step), int(worker)) for step, worker in saved["counted"]}
            for data in saved["arrived"].values():
                new.add(np.asarray(data, np.uint8).tobytes())
            self._answers.load_state_dict(saved["answers"])  # all of it or nothing
        vars(self).update(vars(new))
