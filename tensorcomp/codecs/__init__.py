"""Codecs turn tensors into bytes: codecs, trees, their text and JSON forms.

Pure: no files, no models, no threads. Importing this package does not import the kernels.
"""

from tensorcomp._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
