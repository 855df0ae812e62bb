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


def _at_width(builder: Any, value: Any, width: int) -> Any:
    if value.type.width > width:
        return builder.trunc(value, ir.IntType(width))
    return builder.zext(value, ir.IntType(width)) if value.type.width < width else value


def _narrow(operation: str) -> Any:
    """Return an unsigned operation in the width of its first operand.

    Numba computes every integer in 64 bits; a loop that keeps to the words' own width works on up
    to eight times as many of them in a vector register.
    """

    @intrinsic
    def operate(_context: Any, left: Any, right: Any) -> Any:
        def generate(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            width = signature.args[0].bitwidth
            return getattr(builder, operation)(
                arguments[0], _at_width(builder, arguments[1], width)
            )

        return left(left, right), generate

    return operate


shift_right = _narrow("lshr")
shift_left = _narrow("shl")
both = _narrow("and_")
either = _narrow("or_")


@intrinsic
def resize(_context: Any, value: Any, like: Any) -> Any:
    """Return an unsigned integer in the width of another: cut, or with zeros above."""

    def generate(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _at_width(builder, arguments[0], signature.args[1].bitwidth)

    return like(value, like), generate


@intrinsic
def leading_zeros(_context: Any, word: Any) -> Any:
    """Return how many zero bits a uint64 has above its highest one."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate
