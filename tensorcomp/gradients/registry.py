"""Find compressors by id: tensorcomp's own and those of other packages.

A package adds compressors by an entry point in the group ``tensorcomp.compressors`` whose object is
a `Compressor` class; the entry point's name is the compressor's id. A third party's compressor may
not take over an id, neither of a compressor nor of a codec.
"""

from __future__ import annotations

import functools

from tensorcomp import gradients
from tensorcomp._plugins import Plugins
from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import Compressor

GROUP = "tensorcomp.compressors"
_PLUGINS = Plugins(GROUP, "compressor", (Compressor,), GradientError)

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
    """Return the compressor class of an id; None if no compressor has it.

    Raises
    ------
    GradientError
        If several packages have such a compressor, or the package's object cannot be imported or is
        not a compressor of that id.
    """
    if name in _OWN:
        own: type[Compressor] = getattr(gradients, _OWN[name])
        return own
    added: type[Compressor] | None = _PLUGINS.load(name)
    return added


def compressor_ids() -> list[str]:
    """Return all compressors' ids, sorted; imports no third party's code."""
    return sorted({*_OWN, *_PLUGINS.names()})
