"""Prune torch models: score weights, select, hold the masks, store.

Scores and selection need NumPy alone, so that stored checkpoints are pruned without torch; what
runs a model needs torch, and is imported when it is used.
"""

from tensorcomp._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
