"""NNCodec, the reference software of ISO/IEC 15938-17, for one matrix at a time.

Dependent quantization and context-adaptive arithmetic coding at the package's defaults, one thread.
Its package wants torchvision, OpenCV and more for its example applications; the codec does not.
"""

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.common.checkpoints import Array

REQUIREMENT = "nncodec==2.1.3"
_APPLICATIONS = ("tensorflow_model", "pytorch_model", "use_case_init")
_NAME = "0"


def unavailable() -> str | None:
    """Return why it cannot run and what would help, or None."""
    try:
        version("nncodec")
    except PackageNotFoundError:
        return f"nncodec is missing: pip install pybind11 && pip install --no-deps {REQUIREMENT}"
    return None


@cache
def _codec() -> Any:
    """Import the codec with empty modules in the place of the applications that it imports."""
    for name in _APPLICATIONS:
        full = f"nncodec.framework.{name}"
        sys.modules.setdefault(full, ModuleType(full))
    return import_module("nncodec.nnc")


def encode(array: Array, qp: int) -> bytearray:
    """Return the bitstream of an fp32 array; four more `qp` double the step."""
    stream: bytearray = _codec().compress(
        {_NAME: np.ascontiguousarray(array, np.float32)},
        bitstream_path=None,
        qp=qp,
        row_skipping=True,
        return_bitstream=True,
    )
    return stream


def decode(stream: bytearray) -> Array:
    """Return the array of a bitstream, in fp32."""
    decoded: Array = _codec().decompress(stream)[_NAME]
    return decoded
