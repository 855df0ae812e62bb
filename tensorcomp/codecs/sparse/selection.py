"""Select as many elements as asked for, exactly.

Elements are selected by their index: as many as asked for, in the order of integer keys, equal ones
in the order of their index. A threshold on floats would keep too many or too few where some are
equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorcomp.codecs.bit_views import as_words, readable
from tensorcomp.codecs.rounding import widened
from tensorcomp.kernels import native

Bounds = Sequence[tuple[int, int]]
_FEW_KEPT = 0.1  # share up to which the largest are looked for among candidates
_SAMPLED = 1 << 14  # elements of a sample, at least; fewer are looked at as they are
_BLOCK = 64  # room that a kernel needs behind what it writes


def check_keep(keep: object) -> None:
    """Require a count of elements (an integer), or a fraction below 1.

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


def row_pieces(array: np.ndarray, bounds: Bounds) -> list[tuple[int, int]]:
    """Return where the flat elements of runs of rows start and stop."""
    row = math.prod(array.shape[1:])
    return [(start * row, stop * row) for start, stop in bounds]


def whole_tensor(array: np.ndarray, bounds: Bounds, codec: str) -> np.ndarray:
    """Return the flat words of a tensor whose runs of rows have all been checked."""
    array = readable(array)
    for start, stop in bounds:
        widened(array[start:stop], codec)
    return as_words(array).reshape(-1)


def mark_largest(words: np.ndarray, keep: int, *, first: bool) -> np.ndarray:
    """Return a mask of the `keep` largest magnitudes among floats.

    They are given by their words (n,).

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
    """Return the ascending indices (k,), int64, of the largest magnitudes.

    Those that ``mark_largest(first=True)`` marks.
    """
    found = few_largest(words, keep)
    return np.flatnonzero(mark_largest(words, keep, first=True)) if found is None else found


def few_largest(words: np.ndarray, keep: int) -> np.ndarray | None:
    """Return what `largest_positions` does, in fewer passes where few are kept.

    None where a mask is made faster.

    A sample shows above which key they are; the candidates above it are gathered in one pass, and
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
    """Return the indices of floats whose magnitude is at least `limit`.

    They are (k,), int64, ascending.

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
    """Return how many elements `mark_largest` marks in each of the pieces."""
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
