"""Which compressor an id names: our own, and those that installed packages announce.

A package adds compressors by an entry point in the group ``tensorcomp.compressors`` whose object is
a `Compressor` class; the entry point's name is the compressor's id. A third party's compressor may
not take over an id, neither of a compressor nor of a codec.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tensorcomp import gradients
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "tensorcomp.compressors"

# Our own, by id: the name of each class in `tensorcomp.gradients`, which imports it when asked.
_OWN = {
    "adaptive": "Adaptive",
    "adaptive_threshold": "AdaptiveThreshold",
    "dense": "Dense",
    "dgc": "MomentumCorrection",
    "error_bounded": "ErrorBounded",
    "feedback": "ErrorFeedback",
    "owners": "ReduceScatter",
    "per_role": "PerRole",
    "phases": "PhaseTolerance",
    "powersgd": "PowerSgd",
    "qsgd": "Qsgd",
    "randomk": "RandomK",
    "sampled_threshold": "SampledThreshold",
    "threshold": "Threshold",
    "warmup": "Warmup",
}


@functools.cache
def compressor_class(name: str) -> type[Compressor] | None:
    """Return the class of the compressor with this id; None if there is none, as for codecs' ids.

    Raises
    ------
    GradientError
        If several packages have such a compressor, or the package's object cannot be imported or is
        not a compressor of that id.
    """
    if name in _OWN:
        own: type[Compressor] = getattr(gradients, _OWN[name])
        return own
    entries = [entry for entry in _announced() if entry.name == name]
    if not entries:
        return None
    if len({entry.value for entry in entries}) > 1:
        homes = ", ".join(sorted(entry.value for entry in entries))
        raise GradientError(f"several packages have a compressor {name!r} ({homes}); keep one")
    try:
        found = entries[0].load()
    except (ImportError, AttributeError) as error:
        raise GradientError(f"the compressor {name!r} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Compressor) and found.id == name):
        raise GradientError(f"expected a Compressor with the id {name!r}, got {found!r}")
    return found


def compressor_ids() -> list[str]:
    """Return the ids of all compressors, sorted, without importing third parties' code."""
    return sorted({*_OWN, *(entry.name for entry in _announced())})


def _announced() -> EntryPoints:
    from importlib.metadata import entry_points  # which imports packages for mail

    return entry_points(group=GROUP)
