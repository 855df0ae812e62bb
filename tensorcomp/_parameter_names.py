"""Name parameters as the model's author does, whatever wraps the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

# Submodules that torch.compile, FSDP and activation checkpointing put around a module.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_OUTER = "module."  # DistributedDataParallel and DataParallel, which stand outside of all others


def clean_name(name: str) -> str:
    """Return a parameter's or module's name without those of wrappers.

    Examples
    --------
    >>> clean_name("module._orig_mod.layers.0._orig_mod.weight")
    'layers.0.weight'
    """
    clean = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    while clean.startswith(_OUTER):
        clean = clean.removeprefix(_OUTER)
    return clean


def clean_names(names: Iterable[str]) -> dict[str, str]:
    """Return the clean name of each; its own where two would become one."""
    clean = {name: clean_name(name) for name in names}
    count = Counter(clean.values())
    return {name: new if count[new] == 1 else name for name, new in clean.items()}
