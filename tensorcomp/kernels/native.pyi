"""Kernels in C. Arrays are contiguous; table.h has the type and shape of each argument."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

cpu_level: int
"""Which level of the processor's instructions is used: 1, or 3 for x86-64-v3."""

# gradients.c

def is_finite(values: NDArray[np.float32], /) -> bool:
    """Return whether no value, (n,), is infinite or NaN."""
