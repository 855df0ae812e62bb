"""What all ranks choose together while training goes on, from what each of them measures."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from tensorcomp.gradients.autotune.adaptive import Adaptive
from tensorcomp.gradients.autotune.decisions import dense_seconds
from tensorcomp.gradients.autotune.link_estimate import LinkEstimate
from tensorcomp.gradients.autotune.measurements import SAMPLE, Measurement
from tensorcomp.gradients.autotune.speedup_test import Proof
from tensorcomp.gradients.base import Compressor, GradientSpec, chain
from tensorcomp.gradients.cost_model.collective_costs import Link as LinkModel
from tensorcomp.gradients.cost_model.collective_costs import messages_sent
from tensorcomp.gradients.ddp.coding_groups import Layout, Piece
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.observers import Attendant, Step

_PROBES = (8, 1 << 20)  # bytes: the last one takes longer than what a line lets through at once
_SHORT = 0.01  # seconds of a probe that costs little to repeat
_AGAIN = 4
_SECONDS = 8  # bytes of a rank's seconds of a step, in front of its measurement
_HALF_LIFE = 2.0 * len(_PROBES)  # of a link's figures, so that they follow a line that changes


class Agreement(Attendant):
    """Measures and agrees on compressors every few steps (`Adaptive`).

    Parameters
    ----------
    adaptive : Adaptive
    specs : sequence of GradientSpec
        Of all parameters, on this rank.
    link : Link
    """

    def __init__(self, adaptive: Adaptive, specs: Sequence[GradientSpec], link: Link) -> None:
        self.choices: Mapping[str, str] = {}
        self._adaptive = adaptive
        self._specs = {spec.name: spec for spec in specs}
        self._link = link
        self._estimate = LinkEstimate(half_life=_HALF_LIFE)
        self._own: Measurement | None = None
        self._proof = Proof()
        self._samples: list[tuple[GradientSpec, np.ndarray]] = []
        self._due = False
        self._began = 0.0
        self._disturbed = True
        self._seconds: list[float] = []  # of steps since the last decision

    def wants(self, step: Step) -> bool:
        """Return whether a decision is due."""
        now = time.perf_counter()
        if not self._disturbed:
            self._seconds.append(now - self._began)
        # A step that decides takes longer, and so does the one that does something else after it.
        self._disturbed = self._due or self._began == 0.0
        self._began = now
        self._samples = []
        self._due = self._adaptive.is_due(step.info.step)
        self._disturbed |= self._due
        return self._due

    def loaded(self, step: Step, layout: Layout, values: np.ndarray) -> None:
        """Keep some of each gradient."""
        if self._due:
            for unit in layout.units:
                for piece in unit.pieces:
                    self._samples.append((self._specs[piece.name], _sample(piece, values)))

    def ended(self, step: Step) -> None:
        """Decide, on all ranks alike."""
        if not self._due or step.flagged:
            return
        link = self._probe()
        if link is None:
            return
        self._own = self._adaptive.measured(self._samples, link, previous=self._own)
        own_step = np.float64(np.median(self._seconds) if self._seconds else np.nan).tobytes()
        rows = self._link.all_gather_bytes([own_step, self._own.to_bytes()], "measurements")
        steps = [row[:_SECONDS].view(np.float64)[0] for row in rows]
        measurements = [Measurement.from_bytes(row[_SECONDS:].tobytes()) for row in rows]
        specs = self._specs.values()
        proposal = self._adaptive.agreed(
            measurements,
            specs,
            self._link.world,
            current=self.choices or None,
            buckets=step.buckets,
        )
        self.choices, self._proof = self._proof.judge(
            proposal,
            self.choices,
            float(np.nanmax([*steps, 0.0])) or math.nan,
            dense_seconds(measurements, specs, self._link.world),
        )
        self._samples, self._seconds = [], []

    def _probe(self) -> LinkModel | None:
        """Time some collectives that nobody is late for; None where there is no other rank."""
        if self._link.world == 1:
            return None
        messages = messages_sent("gather", self._link.world)
        for nbytes in _PROBES:
            best = self._link.probe(nbytes)
            told = self._link.all_gather_bytes(np.float64(best.seconds).tobytes(), "probe")
            # What disturbs a collective makes it longer: of short ones the shortest counts.
            if max(row.view(np.float64)[0] for row in told) < _SHORT:
                again = [self._link.probe(nbytes) for _ in range(_AGAIN)]
                best = min([best, *again], key=lambda taken: taken.seconds)
            self._estimate = self._estimate.observe(best.bytes_sent, best.seconds, messages)
        return self._estimate.link()


def adaptive_in(compressor: Compressor) -> Adaptive | None:
    """Return what chooses in a compressor, if anything does."""
    return next((one for one in chain(compressor) if isinstance(one, Adaptive)), None)


def _sample(piece: Piece, values: np.ndarray) -> np.ndarray:
    """Return a copy of the first elements of a gradient: whole rows where a row is not too long."""
    flat = values[piece.start : piece.stop]
    if flat.size <= SAMPLE:
        return flat.reshape(piece.shape).copy()
    row = flat.size // piece.shape[0]
    if row > SAMPLE:
        return flat[:SAMPLE].copy()
    rows = SAMPLE // row
    return flat[: rows * row].reshape(rows, *piece.shape[1:]).copy()
