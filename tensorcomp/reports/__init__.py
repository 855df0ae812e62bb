"""Show results as tables for people, as JSON, as pages and as cards.

Functions of what was read from files; `save_report` alone writes one.
"""

from tensorcomp._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
