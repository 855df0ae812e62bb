"""Read and check the importance of tensors.

It is the cost of a unit of squared error in each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tensorcomp._formatting import listed
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.codecs.rounding import is_float
from tensorcomp.dtypes import numpy_dtype
from tensorcomp.errors import PlanError


def check_importance(importance: Mapping[str, float], place: str = "") -> Mapping[str, float]:
    """Require that every tensor's importance is positive and finite; return it."""
    wrong = [name for name, value in importance.items() if not 0 < value < math.inf]
    if wrong:
        raise PlanError(
            f"{place}expected positive, finite importance; change that of {listed(wrong)}"
        )
    return importance


def load_importance(path: Path) -> Mapping[str, float]:
    """Return the mean of each tensor of a safetensors file.

    Raises
    ------
    PlanError
        If a tensor is of another type, or not all its elements are positive and finite.
    CheckpointError
        If the file cannot be read.
    """
    found = {}
    with open_checkpoint(path) as checkpoint:
        for info in checkpoint.arrays:
            found[info.name] = math.nan
            dtype = numpy_dtype(info.dtype)
            if dtype is None or not is_float(dtype) or not info.nbytes:
                continue
            with np.errstate(invalid="ignore"):  # signaling NaNs, refused below
                values = checkpoint.read(info.name).view(dtype).astype(np.float64)
            if values.min() > 0:
                found[info.name] = float(values.mean())
    return check_importance(found, f"{path}: ")
