"""Whether choices keep what their prediction promised: steps are timed before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorcomp.gradients.autotune.decisions import DENSE

GAIN = 0.9  # of a dense step's time, to which compression must come down to be worth its error
MUCH = 0.5  # of a step: an exchange of dense gradients that is surely worth compression
CHANGED = 1.5  # by how much a link must have slowed down for compression to be tried once more


@dataclass(frozen=True)
class Proof:
    """What is known of steps with and without compression.

    A prediction knows neither how much of the exchange hides behind the backward pass nor how much
    that pass suffers from coding on the same cores. So compression is on trial until the next
    decision, and dismissed unless steps really got faster.

    Parameters
    ----------
    dense_step : float
        Seconds of a step while all gradients were sent as they are; NaN if there was none.
    dense_exchange : float
        Seconds that exchanging them was predicted to take then.
    on_trial : bool
        Whether compression was chosen by the last decision, after steps without.
    dismissed : float
        What dense gradients' exchange was predicted to take when compression was last dismissed; 0
        if it never was.
    """

    dense_step: float = math.nan
    dense_exchange: float = math.nan
    on_trial: bool = False
    dismissed: float = 0.0

    def judge(
        self,
        proposal: Mapping[str, str],
        current: Mapping[str, str],
        step: float,
        exchange: float,
    ) -> tuple[dict[str, str], Proof]:
        """Return what is done from now on, and what is known then.

        Parameters
        ----------
        proposal : mapping of str to str
            What is predicted to be best; see `decisions.decide`.
        current : mapping of str to str
            What was done since the last decision.
        step : float
            Seconds of a step since then; NaN if none was timed.
        exchange : float
            Seconds that exchanging dense gradients is predicted to take now.
        """
        if is_dense(current):
            known = replace(self, dense_step=step, dense_exchange=exchange, on_trial=False)
            # Where there is little to gain, the very first steps are no measure of it.
            early = math.isnan(self.dense_step) and exchange < MUCH * step
            if is_dense(proposal) or early or exchange < CHANGED * self.dismissed:
                return dict.fromkeys(proposal, DENSE), known
            return dict(proposal), replace(known, on_trial=True)
        same_link = exchange < CHANGED * self.dense_exchange
        if self.on_trial and same_link and step > GAIN * self.dense_step:
            known = replace(self, on_trial=False, dismissed=exchange)
            return dict.fromkeys(proposal, DENSE), known
        return dict(proposal), replace(self, on_trial=False)


def is_dense(choices: Mapping[str, str]) -> bool:
    """Return whether all gradients are sent as they are."""
    return all(text == DENSE for text in choices.values())
