"""What the codecs that prune share: exact selection, masks, and the elements that are kept.

Elements are selected by their index: as many as asked for, in the order of integer keys, equal ones
in the order of their index. A threshold on floats would keep too many or too few where some are
equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from tensorcomp.codecs.base import ArraySpec
from tensorcomp.codecs.bit_views import as_words, readable
from tensorcomp.codecs.rounding import as_matrix, check_float, widened
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.kernels import native

Bounds = Sequence[tuple[int, int]]
_FEW_KEPT = 0.1  # share up to which the largest are looked for among candidates
_SAMPLED = 1 << 14  # elements of a sample, at least; fewer are looked at as they are
_SMALL = 0.05  # of the root mean square: an element below it is next to nothing
_SPARSE = 0.5  # share of such elements from which masks may pay
_BLOCK = 64  # room that a kernel needs behind what it writes


def check_keep(keep: object) -> None:
    """Require a count of elements, an integer, or a part of them, a float below 1.

    1.0 is refused, since it equals the count 1.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    is_count = type(keep) is int and keep >= 0
    is_part = isinstance(keep, float) and 0 <= keep < 1 and math.copysign(1, keep) > 0
    if not (is_count or is_part):
        raise ValueError(f"expected keep to be a count of at least 0 or below 1, got {keep!r}")


def kept_count(keep: int | float, size: int) -> int:
    """Return how many of `size` elements are kept."""
    return min(keep, size) if isinstance(keep, int) else round(keep * size)


def has_small_elements(sample: np.ndarray) -> bool:
    """Return whether most elements are next to nothing, so that a mask may pay."""
    matrix = as_matrix(sample)
    scale = np.sqrt(np.mean(matrix**2))
    return bool(np.mean(np.abs(matrix) < _SMALL * scale) >= _SPARSE)


def row_pieces(array: np.ndarray, bounds: Bounds) -> list[tuple[int, int]]:
    """Return where the flat elements of runs of rows start and stop."""
    row = math.prod(array.shape[1:])
    return [(start * row, stop * row) for start, stop in bounds]


def whole_tensor(array: np.ndarray, bounds: Bounds, codec: str) -> np.ndarray:
    """Return the flat words of a tensor whose runs of rows have all been checked.

    Raises
    ------
    NotRepresentable
        If one of them holds anything but finite floats.
    """
    array = readable(array)
    for start, stop in bounds:
        widened(array[start:stop], codec)
    return as_words(array).reshape(-1)


def mark_largest(words: np.ndarray, keep: int, *, first: bool) -> np.ndarray:
    """Return a mask of the `keep` largest magnitudes among floats, given by their words (n,).

    Parameters
    ----------
    words : numpy.ndarray
    keep : int
        From 0 to n.
    first : bool
        Whether of equal magnitudes those of lower index are kept, or those of higher index.
    """
    if keep in (0, words.size):
        return np.full(words.shape, keep > 0)
    mask = np.empty(words.shape, np.bool_)
    bits = 8 * words.itemsize - 1
    limit = _limit(words, keep)
    above, equal = _count_keys(words, limit)
    begin = 0 if first else equal - (keep - above)
    native.selection_mark_keys(words, bits, limit, begin, begin + keep - above, mask)
    return mask


def largest_positions(words: np.ndarray, keep: int) -> np.ndarray:
    """Return the ascending indices (k,), int64, of what ``mark_largest(first=True)`` marks."""
    found = few_largest(words, keep)
    return np.flatnonzero(mark_largest(words, keep, first=True)) if found is None else found


def few_largest(words: np.ndarray, keep: int) -> np.ndarray | None:
    """Return the same where few are kept, in fewer passes; None where a mask is made faster.

    A sample tells above which key they are; the candidates above it are gathered in one pass, and
    the largest selected among them, exactly.
    """
    if not 0 < keep <= words.size * _FEW_KEPT or words.size < _SAMPLED:
        return None
    bits = 8 * words.itemsize - 1
    kept = words.dtype.type((1 << bits) - 1)
    sample = words[:: max(1, words.size // _SAMPLED)] & kept
    share = keep / words.size
    # Five deviations of what a sample of this size has above the key that is looked for.
    wanted = min(sample.size, int(sample.size * share + 5 * math.sqrt(sample.size * share) + 2))
    limit = np.partition(sample, sample.size - wanted)[sample.size - wanted]
    if limit == 0:  # mostly zeros: no key parts the largest from the rest
        return None
    places = positions_above(words, int(limit), 2 * keep + _SAMPLED)
    count = places.size
    if count < keep:  # the sample was not like the rest
        return None
    largest = np.empty(keep + 1, np.int64)  # the kernel writes before it counts
    native.selection_take(places, mark_largest(words[places], keep, first=True), largest)
    return largest[:-1]


def positions_above(words: np.ndarray, limit: int, guess: int | None = None) -> np.ndarray:
    """Return the ascending indices (k,), int64, of floats whose magnitude is at least `limit`.

    Parameters
    ----------
    words : numpy.ndarray
        The floats' words (n,).
    limit : int
        The word of a magnitude.
    guess : int, optional
        How many there may be; if there are more, the pass is made again.
    """
    room = words.size // 16 if guess is None else guess
    while True:
        places = np.empty(min(words.size, room) + _BLOCK, np.int64)
        count = native.gradients_find_above(words, limit, places)
        if count >= 0:
            return places[:count]
        room = 4 * room + _BLOCK


def _limit(words: np.ndarray, keep: int) -> int:
    """Return the key of the least of the `keep` largest magnitudes."""
    return native.selection_smallest_key(words, 8 * words.itemsize - 1, words.size - keep + 1)


def _count_keys(words: np.ndarray, limit: int) -> tuple[int, int]:
    """Return how many magnitudes are above a limit, and how many equal it."""
    counts = np.empty(2, np.int64)
    native.selection_count_keys(words, 8 * words.itemsize - 1, limit, counts)
    return int(counts[0]), int(counts[1])


def kept_in_pieces(words: np.ndarray, keep: int, pieces: Bounds, *, first: bool) -> list[int]:
    """Return how many elements that `mark_largest` marks lie in each of the pieces, in order."""
    if keep in (0, words.size):
        return [stop - start if keep else 0 for start, stop in pieces]
    limit = _limit(words, keep)
    counts = [_count_keys(words[start:stop], limit) for start, stop in pieces]
    ties = keep - sum(above for above, _ in counts)
    kept = []
    for above, equal in counts if first else reversed(counts):
        taken = min(ties, equal)
        ties -= taken
        kept.append(above + taken)
    return kept if first else kept[::-1]


def kept_values(array: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the elements of an array where a mask of its shape is true, in row-major order."""
    words = as_words(array).reshape(-1)
    # The kernel writes before it counts.
    values = np.empty(int(np.count_nonzero(mask)) + 1, words.dtype)
    native.selection_take(words, mask.reshape(-1), values)
    return values[:-1].view(array.dtype)


def restore(mask: np.ndarray, values: np.ndarray, out: np.ndarray, codec: str) -> None:
    """Fill `out` with the values where a mask of its shape is true, with 0.0 elsewhere.

    Raises
    ------
    CodecError
        If there are more or less values than places, or the dtype has no 0.0.
    """
    check_float(out.dtype, codec)
    put_back(mask, values, out, codec)


def put_back(mask: np.ndarray, values: np.ndarray, out: np.ndarray, codec: str) -> None:
    """Fill `out` with the values where a mask of its shape is true, with zero bits elsewhere.

    Raises
    ------
    CodecError
        If there are more or less values than places.
    """
    places = sound_mask(mask, codec).reshape(-1)
    count = int(np.count_nonzero(places))
    if count != values.size:
        raise CodecError(f"{codec}: {values.size} values for {count} places")
    words = as_words(out).reshape(-1)
    if count:
        native.selection_scatter(as_words(values).reshape(-1), places, words)
    else:
        words[:] = 0


def sound_mask(mask: np.ndarray, codec: str) -> np.ndarray:
    """Return a mask, C-contiguous and read-only.

    Raises
    ------
    CodecError
        If a byte of it is neither 0 nor 1.
    """
    mask = readable(mask)
    if mask.size and mask.view(np.uint8).max() > 1:
        raise CodecError(f"{codec}: a byte of the mask is neither 0 nor 1")
    return mask


def block_squares(
    array: np.ndarray,
    codec: str,
    block: tuple[int, int],
    count: tuple[int, int],
    bounds: Bounds,
    offset: int = 0,
) -> np.ndarray:
    """Return the sums of squares, float64, of the blocks of a matrix: the first axis × all others.

    Added up row by row, so that the sums do not depend on how the rows are cut into runs.

    Parameters
    ----------
    array : numpy.ndarray
    codec : str
        The id of the codec that asks, for messages.
    block : tuple of int
        Rows and columns of a block; those at the lower and right edges may be smaller.
    count : tuple of int
        Blocks down and across.
    bounds : sequence of tuple of int
        Runs of rows, which are widened one at a time.
    offset : int
        Rows of the first blocks that lie above the array.

    Raises
    ------
    NotRepresentable
        If the array holds anything but finite floats, or their squares overflow.
    """
    sums = np.zeros(count)
    array = readable(array)
    for start, stop in bounds:
        rows = widened(array[start:stop], codec)
        if rows.size:
            rows = rows.reshape(stop - start, -1)
            native.selection_add_squares(rows, start + offset, *block, sums)
    if not np.isfinite(sums).all():
        raise NotRepresentable(f"{codec}: the squares of the elements overflow")
    return sums


def mark_strongest(sums: np.ndarray, sparsity: float) -> np.ndarray:
    """Return a mask of the sums but that part of them, rounded, which are lowest.

    Of equal sums those of lower index are dropped.
    """
    flat = sums.reshape(-1)
    flat.flags.writeable = False
    keep = flat.size - round(sparsity * flat.size)
    return mark_largest(as_words(flat), keep, first=False).reshape(sums.shape)


def check_hexadecimal(text: object, name: str) -> None:
    """Require what `to_hexadecimal` gives.

    Raises
    ------
    ValueError
        If it is anything else.
    """
    if not isinstance(text, str) or not re.fullmatch("([0-9a-f]{2})*", text):
        raise ValueError(f"expected {name} to be pairs of the digits 0-9a-f, got {text!r}")


def to_hexadecimal(mask: np.ndarray) -> str:
    """Return a mask as hexadecimal digits, the first element in the highest bit."""
    return np.packbits(mask.reshape(-1)).tobytes().hex()


def from_hexadecimal(text: str, shape: tuple[int, ...], codec: str) -> np.ndarray:
    """Return the mask of a shape that a text holds.

    Raises
    ------
    NotRepresentable
        If it holds another number of elements.
    """
    size = math.prod(shape)
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))
    if bits.size != -(-size // 8) * 8 or bits[size:].any():
        raise NotRepresentable(f"{codec}: {len(text)} digits are no mask of the shape {shape}")
    return bits[:size].astype(np.bool_).reshape(shape)


def spread(mask: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the mask of an array's elements from that of its slices along an axis."""
    along = mask.reshape(-1, *[1] * (len(shape) - 1 - axis))
    return np.ascontiguousarray(np.broadcast_to(along, shape))


def masked_parts(spec: ArraySpec) -> dict[str, ArraySpec]:
    """Return the spec of a mask of all elements, and that of as many values as it keeps."""
    return {
        "mask": ArraySpec(spec.shape, np.dtype(np.bool_)),
        "values": ArraySpec((-1,), spec.dtype),
    }
