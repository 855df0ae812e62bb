"""The fields of ggml's quantized blocks.

*ggml*: the array's bytes are blocks of one type, structs without padding, and what is left over.
Parts: ``scale`` and ``minimum``, float16, one a block, if the type has them; ``scales``, uint8 or
int8, (blocks, factors), likewise; ``codes``, uint8 or int8; ``rest``, the bytes left over.

Element e of a *packed* field of `bits` bits in runs of `run` bytes is in the byte e // (n run) run
+ e % run of the field, of which each holds n = 8 / bits elements, in its bits from bits (e // run %
n) on. A field may be two packed ones, of low bits and of the others. The factors of Q4_K and Q5_K,
12 bytes, are four scales, four minima, four scales, four minima: elements 0 to 7 are the low 6 bits
of the bytes 0 to 7; elements 8 to 15 have their upper 2 bits there, their lower 4 in the bytes 8 to
11, packed in runs of 4. A centre, if the type has one, is subtracted from the elements, which are
int8 then. Codes with a sign bit s and a magnitude m, 4 bits, are 8 + m, or 7 - m, before that.

Codes are in spans that share a step, one or several a block. Spans are sorted, those that are equal
in their order: if there are minima, by the least of 255 and rint(16 × |minimum / step|); else by
the bits of |step| >> 15; float32, 0 if not finite. The step is the scale, or 1, times the span's
factor, if there is one; so is the minimum, where factors alternate. Sorted, they are rows of 512
codes, or of all if there are fewer; zeros fill the last. Minima are sorted by the scales' bits
without the sign, in rows of 64.
"""

from typing import NamedTuple

import numpy as np

from reference.codec import Parts, codec


class Packed(NamedTuple):
    """Bits of elements in bytes of a block from `start` on."""

    start: int
    bits: int
    run: int
    up: int = 0


class Type(NamedTuple):
    """The fields of a block."""

    nbytes: int
    count: int  # codes
    span: int
    codes: tuple[Packed, ...]
    scale: int | None = 0
    minimum: int | None = None
    centre: int | None = None
    factors: tuple[Packed, ...] = ()  # () and pairs: the 12 bytes of Q4_K
    number: int = 0  # of factors
    factor_centre: int | None = None
    pairs: int = 0
    signs: bool = False


TYPES = {
    "Q4_0": Type(18, 32, 32, (Packed(2, 4, 16),), centre=8),
    "Q4_1": Type(20, 32, 32, (Packed(4, 4, 16),), minimum=2),
    "Q5_0": Type(22, 32, 32, (Packed(6, 4, 16), Packed(2, 1, 1, 4)), centre=16),
    "Q5_1": Type(24, 32, 32, (Packed(8, 4, 16), Packed(4, 1, 1, 4)), minimum=2),
    "Q8_0": Type(34, 32, 32, (Packed(2, 8, 1),), centre=0),
    "Q2_K": Type(
        84, 256, 16, (Packed(16, 2, 32),), 80, 82, None, (Packed(0, 4, 16),), 32, pairs=16
    ),
    "Q3_K": Type(
        *(110, 256, 16, (Packed(32, 2, 32), Packed(0, 1, 32, 2)), 108, None, 4),
        *((Packed(96, 4, 8), Packed(104, 2, 4, 4)), 16, 32),
    ),
    "Q4_K": Type(144, 256, 32, (Packed(16, 4, 32),), 0, 2, number=16, pairs=4),
    "Q5_K": Type(176, 256, 32, (Packed(48, 4, 32), Packed(16, 1, 32, 4)), 0, 2, number=16, pairs=4),
    "Q6_K": Type(
        *(210, 256, 16, (Packed(0, 4, 64), Packed(128, 2, 32, 4)), 208, None, 32),
        *((Packed(192, 8, 1),), 16, 0),
    ),
    "IQ4_NL": Type(18, 32, 32, (Packed(2, 4, 16),), centre=8),
    "IQ4_XS": Type(
        *(136, 256, 32, (Packed(8, 4, 16),), 0, None, 8),
        *((Packed(4, 4, 1), Packed(2, 2, 1, 4)), 8, 32),
    ),
    "TQ1_0": Type(54, 52, 52, (Packed(0, 8, 1),), 52),
    "TQ2_0": Type(66, 256, 256, (Packed(0, 2, 32),), 64, centre=1),
    "MXFP4": Type(
        17, 32, 32, (Packed(1, 4, 16),), None, None, 8, (Packed(0, 8, 1),), 1, signs=True
    ),
    "NVFP4": Type(36, 64, 16, (Packed(4, 4, 8),), None, None, 8, (Packed(0, 8, 1),), 4, signs=True),
}


@codec(
    "transform",
    "ggml",
    {
        "scale": "fields(3, exponent=ans, mantissa=ans)",
        "minimum": "fields(3, exponent=ans(contexts=8), mantissa=ans)",
        "scales": "ans",
        "codes": "ans(contexts=8)",
        "rest": "raw",
    },
)
def ggml(parts: Parts, type: str) -> np.ndarray:
    kind = TYPES[type]
    size = int(np.prod(parts.shape, dtype=int)) * parts.dtype.itemsize
    count, rest = divmod(size, kind.nbytes)
    blocks = np.zeros((count, kind.nbytes), np.uint8)
    steps = np.ones((count, 1), np.float32)
    minima = factors = None
    if kind.scale is not None:
        scale = parts.read("scale", (count,), "<f2")
        blocks[:, kind.scale : kind.scale + 2] = scale.view(np.uint8).reshape(-1, 2)
        steps = scale.astype(np.float32).reshape(-1, 1)
    if kind.minimum is not None:
        rows = parts.read("minimum", _rows(count, 1, 64), "<f2")
        minima = _unsorted(rows, scale.view("<u2") & 0x7FFF, 1)
        blocks[:, kind.minimum : kind.minimum + 2] = minima.view(np.uint8)
        minima = minima.astype(np.float32)
    if kind.number:
        dtype = np.uint8 if kind.factor_centre is None else np.int8
        factors = parts.read("scales", (count, kind.number), dtype)
        _put(kind.factors or None, 4, _uncentred(factors, kind.factor_centre), blocks)
    spans = count * kind.count // kind.span
    codes = parts.read(
        "codes", _rows(spans, kind.span, 512), np.uint8 if kind.centre is None else np.int8
    )
    codes = _unsorted(codes, _keys(kind, steps, minima, factors), kind.span)
    codes = _uncentred(codes.reshape(-1, kind.count), kind.centre)
    if kind.signs:
        codes = np.where(codes < 8, 15 - codes.astype(int), codes.astype(int) - 8).astype(np.uint8)
    _put(kind.codes, 0, codes, blocks)
    return np.concatenate([blocks.reshape(-1), parts.read("rest", (rest,), np.uint8)])


def _keys(
    kind: Type, steps: np.ndarray, minima: np.ndarray | None, factors: np.ndarray | None
) -> np.ndarray:
    """Return what the spans are sorted by."""
    with np.errstate(all="ignore"):
        if minima is None:
            steps = np.abs(steps if factors is None else steps * factors.astype(np.float32))
            return np.where(np.isfinite(steps), steps, 0).view(np.uint32) >> 15
        if factors is not None:
            four = factors.astype(np.float32).reshape(len(factors), -1, 2, kind.pairs)
            spans = kind.count // kind.span
            steps = steps * four[:, :, 0].reshape(-1, spans)
            minima = minima * four[:, :, 1].reshape(-1, spans)
        zeros = np.rint(16 * np.abs(minima / steps))
        return np.minimum(np.where(np.isfinite(zeros), zeros, 0), 255)


def _rows(count: int, length: int, row: int) -> tuple[int, int]:
    """Return the shape of sorted spans of a length."""
    each = min(max(row // length, 1), count)
    return (-(-count // each), each * length) if count else (0, 0)


def _unsorted(rows: np.ndarray, keys: np.ndarray, length: int) -> np.ndarray:
    """Return spans (n, length) in the order that they had before they were sorted by keys."""
    found = np.empty((keys.size, length), rows.dtype)
    order = sorted(range(keys.size), key=keys.reshape(-1).tolist().__getitem__)
    found[order] = rows.reshape(-1, length)[: keys.size]
    return found


def _uncentred(elements: np.ndarray, centre: int | None) -> np.ndarray:
    return elements if centre is None else (elements.astype(int) + centre).astype(np.uint8)


def _put(
    fields: tuple[Packed, ...] | None, start: int, elements: np.ndarray, blocks: np.ndarray
) -> None:
    """Join elements (blocks, n) to the bytes of blocks."""
    if fields is None:
        blocks[:, start : start + 8] = elements[:, :8] | (elements[:, 8:] >> 4) << 6
        fields, elements = (Packed(start + 8, 4, 4),), elements[:, 8:] & 15
    for field in fields:
        each = 8 // field.bits
        for e in range(elements.shape[1]):
            byte = field.start + e // (each * field.run) * field.run + e % field.run
            bits = elements[:, e] >> field.up & (1 << field.bits) - 1
            blocks[:, byte] |= bits << field.bits * (e // field.run % each)
