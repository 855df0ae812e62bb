"""Unaligned 64-bit loads and stores on byte arrays: the base of every bit stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

U = np.uint64


def _word_pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.IntType(64).as_pointer())


@intrinsic
def load64(_context: Any, array: Any, index: Any) -> Any:
    """Return the little-endian uint64 that starts at byte `index` of a uint8 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _word_pointer(context, builder, signature.args[0], *arguments)
        word = builder.load(pointer)
        word.align = 1
        return word

    return types.uint64(array, index), generate


@intrinsic
def store64(_context: Any, array: Any, index: Any, word: Any) -> Any:
    """Store a uint64, little-endian, from byte `index` of a uint8 array on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _word_pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, index, types.uint64), generate
