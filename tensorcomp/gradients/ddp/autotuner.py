"""Tune the choices of `Adaptive` on all ranks alike, by real step times."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from tensorcomp.gradients.autotune.adaptive import MIN_ELEMENTS, Adaptive
from tensorcomp.gradients.autotune.speedup_test import SpeedupTest, fastest
from tensorcomp.gradients.base import GradientSpec
from tensorcomp.gradients.cost_model.coding_speeds import code_once
from tensorcomp.gradients.ddp.coding_groups import Layout, parts_of
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.gradients.ddp.observers import Observer, Step

_PROBE_BYTES = 1 << 20  # takes longer than what a line lets through at once
_PROBES = 4
_CHANGED = 2.0  # times as long or as short as before: the link is another one


class Autotuner(Observer):
    """Time steps under each plan of an `Adaptive`, and keep the fastest.

    A test begins at the first step that is due, and again when the link has changed. What is chosen
    follows from what all ranks gather, so that all choose alike.

    Attributes
    ----------
    choices : mapping of str to str
        The candidate of each parameter from the next step on.
    """

    def __init__(
        self, adaptive: Adaptive, specs: Sequence[GradientSpec], comm: Communicator
    ) -> None:
        super().__init__(comm)
        self.choices: Mapping[str, str] = {}
        self._adaptive = adaptive
        self._specs = {spec.name: spec for spec in specs}
        self._test: SpeedupTest | None = None
        self._before: Mapping[str, str] = {}
        self._probed = 0.0  # seconds at the last test
        self._errors: dict[str, dict[str, float]] = {}
        self._began = 0.0

    def restore(self, choices: Mapping[str, str]) -> None:
        """Go on from choices that were saved."""
        self.choices, self._test = dict(choices), None

    def wants(self, step: Step) -> bool:
        """Record the last step's time, and return whether a decision is due."""
        now = time.perf_counter()
        if self._test is None:
            self._due = self._comm.world > 1 and self._adaptive.is_due(step.info.step)
        else:
            self._test.record(now - self._began)
            self.choices = self._test.plan
            self._due = self._test.done
        self._began = now
        self._errors = {}
        return self._due

    def loaded(self, step: Step, layout: Layout, values: np.ndarray) -> None:
        """Measure the error of each candidate where it is bounded."""
        if not self._due or self._test is not None or self._adaptive.max_rel_l2 is None:
            return
        for one, gradient in parts_of(layout, values):
            if one.size >= MIN_ELEMENTS and np.isfinite(gradient).all():
                for text, compressor in self._adaptive.candidates.items():
                    state = compressor.init(self._specs[one.name])
                    _, error, _ = code_once(compressor, gradient, state)
                    self._errors.setdefault(text, {})[one.name] = error

    def ended(self, step: Step) -> None:
        """Begin a test if the link has changed, or choose by one that is done."""
        if not self._due or step.flagged:
            return
        if self._test is not None:
            self._choose(self._test)
            return
        probe = self._probe()
        if self._probed / _CHANGED <= probe <= self._probed * _CHANGED:
            return
        self._probed, self._before = probe, self.choices
        errors = self._comm.all_gather_values(self._errors, "errors")
        plans = self._adaptive.plans(self._specs.values(), errors)
        self._test = SpeedupTest(plans) if len(plans) > 1 else None
        self.choices = plans[0]

    def _choose(self, test: SpeedupTest) -> None:
        seconds = np.array(self._comm.all_gather_values(test.medians().tolist(), "step times"))
        used = next((i for i, plan in enumerate(test.plans) if plan == self._before), None)
        self.choices = test.plans[fastest(seconds, used, self._adaptive.hysteresis)]
        self._test = None

    def _probe(self) -> float:
        """Return the seconds of a synchronized collective, equal on all ranks."""
        own = min(self._comm.probe(_PROBE_BYTES).seconds for _ in range(_PROBES))
        return float(min(self._comm.all_gather_values(own, "probe")))
