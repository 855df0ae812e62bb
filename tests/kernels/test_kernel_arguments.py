"""What table.h says of arguments is checked before a kernel runs: anything else is an error."""

import contextlib
from collections.abc import Iterator
from typing import Any

import corpus
import numpy as np
import pytest
from corpus import Parameter

from tensorcomp.kernels import native

WIDTHS = {"W": "u4", "R": "u2", "S": "u2", "F": "f4"}
KERNELS = corpus.kernels()


def sound(line: list[Parameter], length: int) -> list[Any]:
    """Return arguments of the right kinds, whose lengths agree."""
    args: list[Any] = []
    for parameter in line:
        if not parameter.shape:
            args.append(1.0 if parameter.kind == "float" else 1)
            continue
        sizes = [int(size) if size.isdigit() else length for size in parameter.shape]
        args.append(np.zeros(sizes, dtype_of(parameter)))
    return args


def dtype_of(parameter: Parameter) -> np.dtype:
    kind = parameter.kind
    if kind in WIDTHS:
        return np.dtype(WIDTHS[kind])
    return np.dtype(f"{kind[0].replace('w', 'u')}{int(kind[1:]) // 8}")


def wrong(line: list[Parameter]) -> Iterator[tuple[str, list[Any]]]:
    """Yield arguments of which one is not what the table says."""
    args = sound(line, 3)
    for k, parameter in enumerate(line):
        for what, argument in wrong_arguments(line, k, args[k]):
            yield f"argument {k + 1}: {what}", [*args[:k], argument, *args[k + 1 :]]
        if parameter.written:
            frozen = args[k].copy()
            frozen.flags.writeable = False
            yield f"argument {k + 1}: read-only", [*args[:k], frozen, *args[k + 1 :]]
    yield "one too few", args[:-1]
    yield "one too many", [*args, 0]


def wrong_arguments(line: list[Parameter], k: int, right: Any) -> Iterator[tuple[str, Any]]:
    parameter = line[k]
    yield "text", "12"
    if not parameter.shape:
        yield "no number", None
        if parameter.kind == "int":
            yield "a fraction", 1.5
            yield "more than 64 bits", 1 << 64
        return
    if not parameter.optional:
        yield "None", None
    yield "a number", 7
    yield "one more dimension", right[None]
    yield "another kind", right.astype("f8" if right.dtype.kind != "f" else "i4")
    yield "complex", right.astype("c8")
    if right.ndim > 1 or right.size > 1:
        yield "strides", np.repeat(right, 2, axis=-1)[..., ::2]
    if parameter.kind not in WIDTHS and parameter.kind[0] != "w":
        yield "another width", right.astype(f"{right.dtype.kind}{right.itemsize % 8 * 2 or 4}")
    for axis, size in enumerate(parameter.shape):
        used = sum(other.shape.count(size) for other in line)
        if size.isdigit() or used > 1:
            yield f"axis {axis} too long", np.concatenate([right, right], axis)


@pytest.mark.parametrize("kernel", KERNELS)
def test_wrong_arguments_are_errors(kernel):
    for what, args in wrong(corpus.parameters_of(kernel)):
        try:
            getattr(native, kernel)(*args)
        except (ValueError, TypeError, OverflowError, BufferError):
            continue
        pytest.fail(f"{kernel}, {what}: no error")


@pytest.mark.parametrize("length", [0, 1, 2, 9])
@pytest.mark.parametrize("kernel", KERNELS)
def test_arrays_of_any_one_length_are_taken_or_refused(kernel, length):
    with contextlib.suppress(ValueError):
        found = getattr(native, kernel)(*sound(corpus.parameters_of(kernel), length))
        assert isinstance(found, int)


def test_every_line_of_the_table_is_there():
    table = (corpus.ROOT / "tensorcomp" / "kernels" / "table.h").read_text()
    assert [
        line[7 : line.index(",")] for line in table.splitlines() if line[:7] == "KERNEL("
    ] == KERNELS
