r"""Parse the header of a ``.npy`` array strictly, without loading the array.

Layout: ``\x93NUMPY``, the version's two bytes, the length of a text (16 bits in version 1, else
32), and the text, a Python dict of ``descr``, ``fortran_order`` and ``shape``.
"""

from __future__ import annotations

import ast
import math
import warnings
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from tensorcomp._formatting import shown
from tensorcomp.dtypes import dtype_name
from tensorcomp.errors import PARSING_ERRORS, CheckpointError

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_MAX_TEXT_BYTES = 10_000  # NumPy's own limit
MAX_HEADER_BYTES = 12 + _MAX_TEXT_BYTES
_INT64_MAX = 2**63 - 1


class HeaderError(CheckpointError):
    """A header is damaged, or none that NumPy writes today."""


@dataclass(frozen=True)
class NpyHeader:
    """A validated header.

    Attributes
    ----------
    dtype : numpy.dtype
        As in the file, byte order included.
    fortran_order : bool
        Whether the first axis varies fastest.
    shape : tuple of int
        Elements along each axis.
    raw : bytes
        The header as it is in the file, magic included.
    """

    dtype: np.dtype
    fortran_order: bool
    shape: tuple[int, ...]
    raw: bytes

    @property
    def nbytes(self) -> int:
        """Return the bytes of the array that follows."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def safetensors_dtype(self) -> str | None:
        """Return the safetensors name of the dtype, or None if it lacks one."""
        try:
            return dtype_name(self.dtype)
        except TypeError:
            return None


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Read the header at the position of a file.

    Raises `HeaderError` if it is damaged.
    """
    start = file.read(len(_MAGIC) + 2)
    width = _LENGTH_BYTES.get((start[-2], start[-1])) if len(start) == len(_MAGIC) + 2 else None
    if width is None or not start.startswith(_MAGIC):
        raise HeaderError(f"begins with {start!r}, which no .npy array does")
    length = file.read(width)
    size = int.from_bytes(length, "little")
    if len(length) < width or size > _MAX_TEXT_BYTES:
        raise HeaderError(
            f"claims a header of {size:,} bytes, where NumPy allows {_MAX_TEXT_BYTES:,}"
        )
    text = file.read(size)
    if len(text) < size:
        raise HeaderError("its .npy header is cut short")
    dtype, fortran_order, shape = _parsed(text, "utf-8" if start[-2] == 3 else "latin-1")
    return NpyHeader(dtype, fortran_order, shape, start + length + text)


def _parsed(text: bytes, encoding: str) -> tuple[np.dtype, bool, tuple[int, ...]]:
    try:
        fields: Any = ast.literal_eval(text.decode(encoding))
        descr, fortran_order, shape = (fields[key] for key in ("descr", "fortran_order", "shape"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # spellings that NumPy deprecates are in old files
            dtype = np.lib.format.descr_to_dtype(descr)
    except (*PARSING_ERRORS, MemoryError, SyntaxError) as error:
        raise HeaderError(f"its .npy header is damaged: {type(error).__name__}") from error
    sizes_fit = isinstance(shape, tuple) and all(
        type(size) is int and 0 <= size <= _INT64_MAX for size in shape
    )
    if not sizes_fit or math.prod(size or 1 for size in shape) * dtype.itemsize > _INT64_MAX:
        raise HeaderError(f"expected the shape of an array in its .npy header, got {shown(shape)}")
    return dtype, bool(fortran_order), shape
