"""Unaligned loads and stores on byte arrays, and arithmetic in the words' own width."""

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
def load16(_context: Any, array: Any, index: Any) -> Any:
    """Return the two bytes from `index` of a uint8 array on as a little-endian uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _word_pointer(context, builder, signature.args[0], *arguments)
        quarter = builder.load(builder.bitcast(pointer, ir.IntType(16).as_pointer()))
        quarter.align = 1
        return builder.zext(quarter, ir.IntType(64))

    return types.uint64(array, index), generate


@intrinsic
def store64(_context: Any, array: Any, index: Any, word: Any) -> Any:
    """Store a uint64, little-endian, from byte `index` of a uint8 array on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _word_pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, index, types.uint64), generate


@intrinsic
def store32(_context: Any, array: Any, index: Any, word: Any) -> Any:
    """Store the low 32 bits of a uint64, little-endian, from byte `index` of a uint8 array on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _word_pointer(context, builder, signature.args[0], *arguments[:2])
        half = builder.bitcast(pointer, ir.IntType(32).as_pointer())
        builder.store(builder.trunc(arguments[2], ir.IntType(32)), half, align=1)
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
plus = _narrow("add")
minus = _narrow("sub")
times = _narrow("mul")


def _extreme(comparison: str) -> Any:
    """Return the choice of one of two unsigned integers of the same width."""

    @intrinsic
    def choose(_context: Any, left: Any, right: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            first = builder.icmp_unsigned(comparison, *arguments)
            return builder.select(first, *arguments)

        return left(left, left), generate

    return choose


lower = _extreme("<")
higher = _extreme(">")


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
