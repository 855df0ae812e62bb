"""Small neural-network checkpoints, without losing a bit.

Every public name is imported when it is first used, so that importing this package costs nothing.
"""

from tensorcomp._lazy import lazy_exports

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_exports(__name__)
