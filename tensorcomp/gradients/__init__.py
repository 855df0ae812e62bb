"""Compress gradients with the codecs, explicit states and error feedback.

`compressors` are pure functions on arrays with explicit state (`base`); `wrappers` add residuals,
momentum and schedules; `ddp` and `fsdp` run them in torch; `server` works without a process group.
"""

from tensorcomp._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
