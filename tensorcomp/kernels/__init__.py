"""Loops that must be fast, in C: ``from tensorcomp.kernels import native``.

`native` is one extension module of the stable ABI; ``native.pyi`` describes its functions, and
``table.h`` lists the arguments that each takes. A C file bears the name of the codec it serves.
"""

import sys

if sys.byteorder != "little":
    raise ImportError(
        f"tensorcomp's kernels and files are little-endian; this machine ({sys.platform}, "
        f"{sys.byteorder}-endian) is not supported"
    )
