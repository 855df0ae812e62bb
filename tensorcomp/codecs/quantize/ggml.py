"""Quantized blocks of GGUF files, cut into scales, minima and codes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.base import ArraySpec, Transform
from tensorcomp.codecs.quantize.ggml_blocks import BLOCKS, Bits, Block, bits_of, width
from tensorcomp.dtypes import block_size
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

_HALF, _BYTE, _SIGNED = np.dtype("<f2"), np.dtype(np.uint8), np.dtype(np.int8)
_ROW = 512  # codes, of blocks that are alike: their mean is known, its level costs little
_MINIMA = 64  # as many of those in a row
_STEPS = 16  # of a minimum, to a code
# Magnitudes from the code of zero on, of either sign.
_BY_VALUE = np.array([*range(8, 16), *range(7, -1, -1)], np.uint8)
_BY_SIGN = np.argsort(_BY_VALUE).astype(np.uint8)


@dataclass(frozen=True)
class Ggml(Transform):
    """Cut the blocks of a tensor that ggml has quantized into their fields.

    ggml, llama.cpp's library, keeps 32 to 256 weights in a struct: a scale, often a minimum and
    factors of both, and codes whose bits are spread over bytes. An entropy coder sees none of this
    in the bytes:

    >>> from tensorcomp.codecs import Ggml
    >>> parts = Ggml("Q4_1").encode(np.arange(40, dtype=np.uint8))  # two blocks of 20 bytes
    >>> {name: part.shape for name, part in parts.items()}
    {'scale': (2,), 'minimum': (1, 2), 'codes': (1, 64), 'rest': (0,)}

    An array of any type is seen as its bytes. Codes are put in the order of what their step and
    minimum say of them, which costs nothing to store: by the code of zero, minimum / step, where
    there are minima, else by the step. Neighbours then have one distribution, and rows of 512 that
    differ, which coders with contexts tell apart; this takes 0.05 bit off a code of a type with
    minima, and 0.01 to 0.05 off others. Minima are put in the order of the scales.

    Parts: those that the type has of ``scale``, fp16, one a block; ``minimum``, fp16, in the order
    of the scales' bits without sign, as rows of 64; ``scales``, factors of both, (blocks, factors),
    signed if they are centred on zero; ``codes``, of 1 to 8 bits, signed if the type has no minima,
    in the order of the spans that share a step, as rows of 512; ``rest``, the bytes behind the last
    whole block. The last row of minima and of codes ends with zeros.

    Spans are ordered, those that are equal as they come, by the least of 255 and
    rint(16 × the magnitude of minimum / step) in fp32, or by the step's magnitude as fp32, cut
    to 16 bits; what is not finite counts as 0.

    Lossless, for any bytes. Cost: O(n), 1 to 2 ns a code each way. Not for what is no such tensor,
    nor for the types of lattices (``IQ1_S`` to ``IQ3_S``), whose bits are all but even.

    Parameters
    ----------
    type : str
        ggml's name of the type, such as ``Q4_1``, ``Q8_0``, ``Q4_K`` or ``MXFP4``.

    References
    ----------
    The structs: ``ggml-common.h`` and ``ggml-quants.c`` of https://github.com/ggml-org/llama.cpp.
    """

    id: ClassVar[str] = "ggml"
    may_refuse: ClassVar[bool] = False
    off_wire: ClassVar[str] = "it is for blocks of GGUF files, which gradients are not"
    default_parts: ClassVar[Mapping[str, str]] = {
        "scale": "fields(3, exponent=ans, mantissa=ans)",
        "minimum": "fields(3, exponent=ans(contexts=8), mantissa=ans)",
        "scales": "ans",
        "codes": "ans(contexts=8)",
        "rest": "raw",
    }
    type: str = argument(choices=tuple(BLOCKS))

    @functools.cached_property
    def _block(self) -> Block:
        return BLOCKS[self.type]

    @functools.cached_property
    def _nbytes(self) -> int:
        size = block_size(self.type)
        assert size is not None  # `BLOCKS` has no other types
        return size[1]

    def parts(self, spec: ArraySpec) -> dict[str, ArraySpec]:
        """Return the specs of the fields that the type has."""
        block, (count, rest) = self._block, divmod(spec.nbytes, self._nbytes)
        codes = width(block.codes)
        found = {}
        if block.scale is not None:
            found["scale"] = ArraySpec((count,), _HALF)
        if block.minimum is not None:
            found["minimum"] = ArraySpec(_rows(count, 1, _MINIMA), _HALF)
        if block.scales:
            kind = _BYTE if block.factor_centre is None else _SIGNED
            found["scales"] = ArraySpec((count, width(block.scales)), kind)
        kind = _BYTE if block.centre is None else _SIGNED
        spans = count * codes // block.span
        found["codes"] = ArraySpec(_rows(spans, block.span, _ROW), kind)
        found["rest"] = ArraySpec((rest,), _BYTE)
        return found

    def encode(self, array: np.ndarray, shared: bytes = b"") -> dict[str, np.ndarray]:
        """Return the fields."""
        data, block = array.reshape(-1).view(_BYTE), self._block
        blocks, minima = self._blocks(data), None
        parts: dict[str, np.ndarray] = {}
        if block.scale is not None:
            parts["scale"] = _halves(blocks, block.scale)
        if block.minimum is not None:
            minima = _halves(blocks, block.minimum).reshape(-1, 1)
            parts["minimum"] = _in_order(minima, _order_of_scales(parts["scale"]), _MINIMA)
        if block.scales:
            parts["scales"] = _centred(_unpacked(blocks, block.scales), block.factor_centre)
        codes = _unpacked(blocks, block.codes)
        if block.magnitudes:
            native.codebook_look_up(codes.reshape(-1), 0, _BY_VALUE, codes.reshape(-1))
        codes = _centred(codes, block.centre)
        order = _order_of_spans(block, parts, minima)
        parts["codes"] = _in_order(codes.reshape(-1, block.span), order, _ROW)
        parts["rest"] = data[blocks.size :]
        return parts

    def decode(self, parts: Mapping[str, np.ndarray], out: np.ndarray, shared: bytes = b"") -> None:
        """Put the fields together again."""
        data, block = out.reshape(-1).view(_BYTE), self._block
        blocks, minima = self._blocks(data), None
        blocks[...] = 0
        if block.scale is not None:
            blocks[:, block.scale : block.scale + 2] = parts["scale"].reshape(-1, 1).view(_BYTE)
        if block.minimum is not None:
            minima = _out_of_order(parts["minimum"], _order_of_scales(parts["scale"]), 1)
            blocks[:, block.minimum : block.minimum + 2] = minima.view(_BYTE)
        if block.scales:
            scales = _without_signs(parts["scales"], block.factor_centre, block.scales)
            native.ggml_join(scales, _table(block.scales), blocks)
        order = _order_of_spans(block, parts, minima)
        codes = _out_of_order(parts["codes"], order, block.span)
        codes = _without_signs(codes.reshape(-1, width(block.codes)), block.centre, block.codes)
        if block.magnitudes:
            native.codebook_look_up(codes.reshape(-1), 0, _BY_SIGN, codes.reshape(-1))
        native.ggml_join(codes, _table(block.codes), blocks)
        data[blocks.size :] = parts["rest"]

    def _blocks(self, data: np.ndarray) -> np.ndarray:
        """Return the whole blocks of bytes, as a matrix."""
        return data[: data.size // self._nbytes * self._nbytes].reshape(-1, self._nbytes)


def _order_of_spans(
    block: Block, parts: Mapping[str, np.ndarray], minima: np.ndarray | None
) -> np.ndarray:
    """Return the order of spans, from all other fields."""
    factors = parts.get("scales")
    steps = np.ones((1, 1), np.float32)
    with np.errstate(all="ignore"):
        if block.scale is not None:
            steps = np.abs(parts["scale"].astype(np.float32)).reshape(-1, 1)
        if minima is None:
            steps = steps if factors is None else steps * np.abs(factors.astype(np.float32))
            keys = (np.where(np.isfinite(steps), steps, 0).view(np.uint32) >> 15).astype(np.uint16)
        else:
            least = np.abs(minima.astype(np.float32))
            if factors is not None:
                pairs = factors.reshape(-1, 2, block.pairs).astype(np.float32)
                shape = -1, factors.shape[1] // 2
                steps, least = (
                    steps * pairs[:, 0].reshape(shape),
                    least * pairs[:, 1].reshape(shape),
                )
            zeros = np.rint(_STEPS * (least / steps))
            keys = np.minimum(np.where(np.isfinite(zeros), zeros, 0), 255).astype(np.uint8)
    return np.argsort(keys.reshape(-1), kind="stable")


def _halves(blocks: np.ndarray, start: int) -> np.ndarray:
    return np.ascontiguousarray(blocks[:, start : start + 2]).view(_HALF).reshape(-1)


def _order_of_scales(scales: np.ndarray) -> np.ndarray:
    return np.argsort(scales.view("<u2") & 0x7FFF, kind="stable")


def _rows(count: int, length: int, row: int) -> tuple[int, int]:
    """Return the shape of `count` spans of a length, as many in a row as have `row` elements."""
    each = min(max(row // length, 1), count)
    return (-(-count // each), each * length) if count else (0, 0)


def _in_order(spans: np.ndarray, order: np.ndarray, row: int) -> np.ndarray:
    """Return spans (n, length) in an order, in rows."""
    shape = _rows(len(spans), spans.shape[1], row)
    found = np.zeros((shape[0] * shape[1] // spans.shape[1], spans.shape[1]), spans.dtype)
    np.take(spans, order, axis=0, out=found[: len(order)], mode="clip")
    return found.reshape(shape)


def _out_of_order(rows: np.ndarray, order: np.ndarray, length: int) -> np.ndarray:
    """Undo `_in_order`."""
    places = np.empty(len(order), np.intp)
    places[order] = np.arange(len(order))
    return np.take(rows.reshape(-1, length), places, axis=0)


@functools.cache
def _table(runs: tuple[Bits, ...]) -> np.ndarray:
    return np.array(runs, np.int64)


def _unpacked(blocks: np.ndarray, runs: tuple[Bits, ...]) -> np.ndarray:
    """Return the elements of runs (blocks, elements)."""
    found = np.empty((len(blocks), width(runs)), _BYTE)
    native.ggml_split(blocks, _table(runs), found)
    return found


def _centred(elements: np.ndarray, centre: int | None) -> np.ndarray:
    """Return elements with signs, where the type has some."""
    return elements if centre is None else (elements - np.uint8(centre)).view(_SIGNED)


def _without_signs(elements: np.ndarray, centre: int | None, runs: tuple[Bits, ...]) -> np.ndarray:
    """Undo `_centred`; what has too many bits is refused."""
    found = elements if centre is None else elements.view(_BYTE) + np.uint8(centre)
    if found.size and int(found.max()) >> bits_of(runs):
        raise CodecError(f"ggml: expected elements of {bits_of(runs)} bits, got {found.max()}")
    return found
