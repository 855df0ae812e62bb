"""ggml's own quantizers, called in the library that the wheel of pywhispercpp carries.

A tensor goes flattened, in rows that hold whole blocks, so that widths which are no multiple of
ggml's largest block (MiniLM's 384) are quantized too.
"""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

import numpy as np

from benchmarks.common.checkpoints import Array

REQUIREMENT = "pywhispercpp==1.5.1"
_BLOCK = 256

# The numbers of ggml's enum, which are those of GGUF files.
_NUMBERS = {"q4_0": 2, "q8_0": 8, "q2_K": 10, "q3_K": 11, "q4_K": 12, "q5_K": 13, "q6_K": 14}
KINDS = ("q8_0", "q6_K", "q5_K", "q4_K", "q4_0", "q3_K", "q2_K")


class MissingGgmlError(ImportError):
    """There is no library of ggml to call."""

    def __init__(self) -> None:
        super().__init__(f"ggml is missing: pip install --no-deps {REQUIREMENT}")


class _Traits(ctypes.Structure):
    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
        ("from_float", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Kind:
    """A block format: so many bytes for so many elements."""

    name: str
    block_size: int
    type_size: int
    to_float: Callable[[int, int, int], None]

    @property
    def bits(self) -> float:
        """Return bits a weight."""
        return 8 * self.type_size / self.block_size


@cache
def _library() -> ctypes.CDLL:
    try:
        files = distribution(REQUIREMENT.partition("==")[0]).files or []
    except PackageNotFoundError:
        raise MissingGgmlError from None
    for file in files:
        # auditwheel's copy finds the libraries that it needs beside it.
        if file.parent.name.endswith(".libs") and file.name.startswith("libggml-base"):
            library = ctypes.CDLL(str(file.locate()))
            library.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
            library.ggml_get_type_traits.argtypes = [ctypes.c_int]
            library.ggml_quantize_chunk.restype = ctypes.c_size_t
            library.ggml_quantize_chunk.argtypes = [
                ctypes.c_int,
                ctypes.c_void_p,
                ctypes.c_void_p,
                *[ctypes.c_int64] * 3,
                ctypes.c_void_p,
            ]
            return library
    raise MissingGgmlError


@cache
def kind(name: str) -> Kind:
    """Return a block format of ggml.

    Raises
    ------
    MissingGgmlError
        If there is no ggml, or one whose table has another layout.
    """
    traits = _library().ggml_get_type_traits(_NUMBERS[name]).contents
    if traits.type_name != name.encode():
        raise MissingGgmlError
    to_float = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return Kind(name, traits.block_size, traits.type_size, to_float(traits.to_float))


def quantized(name: str, array: Array, importance: Array | None = None) -> tuple[int, Array]:
    """Return the bytes that an array takes in a block format, and what is decoded, in fp32.

    Parameters
    ----------
    name : str
    array : numpy.ndarray
    importance : numpy.ndarray, optional
        The mean square of what each column is multiplied with: ggml's importance matrix.
    """
    found = kind(name)
    source = np.ascontiguousarray(array, np.float32).reshape(-1)
    row = _BLOCK if source.size % _BLOCK == 0 else found.block_size
    weights = None
    if importance is not None:
        # Blocks are quantized on their own: several rows may go as one that holds whole blocks.
        row = math.lcm(len(importance), row)
        weights = np.tile(importance.astype(np.float32), row // len(importance))
    if source.size % row:
        raise ValueError(f"{source.size} elements are no multiple of {name}'s {row}")
    blocks = np.empty(source.size // found.block_size * found.type_size, np.uint8)
    rows, pointer = source.size // row, None if weights is None else weights.ctypes.data
    written = _library().ggml_quantize_chunk(
        _NUMBERS[name], source.ctypes.data, blocks.ctypes.data, 0, rows, row, pointer
    )
    if written != blocks.size:
        raise ValueError(f"{name}: ggml wrote {written} bytes, not {blocks.size}")
    decoded = np.empty(source.size, np.float32)
    found.to_float(blocks.ctypes.data, decoded.ctypes.data, source.size)
    return blocks.size, decoded.reshape(array.shape)
