"""The same codecs online: gradients made small, with explicit state and error feedback.

`compressors` are pure functions on arrays with explicit state (`base`); wrappers around them know
residuals, momentum and schedules; `ddp` puts them into torch's DistributedDataParallel; `messages`
and `aggregation` serve whoever has no process group.
"""

from tensorcomp._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
