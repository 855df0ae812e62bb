"""Trees that are often asked for, which codecs name and benchmarks measure."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

USUAL_BITS = 4.0


@dataclass(frozen=True)
class Strategy:
    """Labelled template of trees for the tensors of a checkpoint.

    Parameters
    ----------
    label : str
    template : str
        A tree's text; empty for what the lossless planner chooses.
    bits : float
        Of independent Gaussian weights behind an entropy coder; says ``$step``.
    family : str
        Strategies that differ in rate only share it; by default the label.
    common : bool
        Whether all tensors have one step.
    effort : str
    feedback : bool
        Whether it is rounded, under scales, by statistics of what layers read.
    needs : str
        A module without which it is left out.
    """

    label: str
    template: str = ""
    bits: float = USUAL_BITS
    family: str = ""
    common: bool = False
    effort: str = "balanced"
    feedback: bool = False
    needs: str = ""

    def __post_init__(self) -> None:
        if not self.family:
            object.__setattr__(self, "family", self.label)

    def available(self) -> bool:
        """Return whether what it needs is installed."""
        return not self.needs or find_spec(self.needs) is not None


def at_rates(name: str, template: str, *, common: bool = False) -> tuple[Strategy, ...]:
    """Return a template's strategies at the usual rates."""
    rates = (2, 3, 4, 5, 6, 8)
    return tuple(Strategy(f"{name}, {bits} bits", template, bits, name, common) for bits in rates)
