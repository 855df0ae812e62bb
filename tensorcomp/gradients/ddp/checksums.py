"""Check that what ranks send each other arrives as it was.

TCP's own checksum of 16 bits lets damage through, and a wrong length makes ranks wait for bytes
that never come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash

from tensorcomp.errors import GradientError

_LENGTH_BITS = 40  # of the word that holds a length; the others are that length's checksum


def digest(data: np.ndarray) -> np.ndarray:
    """Return the checksum of bytes, (8,) uint8."""
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.array([xxhash.xxh3_64_intdigest(flat)], "<u8").view(np.uint8)


def check_digests(rows: Sequence[np.ndarray], digests: Sequence[np.ndarray]) -> None:
    """Refuse bytes of ranks, in rank order, that do not have the checksums."""
    _refuse_damaged(
        [np.array_equal(digest(row), one) for row, one in zip(rows, digests, strict=True)]
    )


def packed(lengths: Sequence[int]) -> np.ndarray:
    """Return lengths (n,) in words that hold their checksums, (8 n,) uint8."""
    return np.array([_word(length) for length in lengths], "<u8").view(np.uint8)


def unpacked(received: np.ndarray) -> np.ndarray:
    """Return each rank's lengths (W, n) from `packed`; refuse damaged ones."""
    words = np.ascontiguousarray(received).view("<u8")
    lengths = (words & np.uint64((1 << _LENGTH_BITS) - 1)).astype(np.int64)
    wanted = [list(map(_word, row)) for row in lengths.tolist()]
    _refuse_damaged([own == row for own, row in zip(words.tolist(), wanted, strict=True)])
    return lengths


def _word(length: int) -> int:
    check = xxhash.xxh3_64_intdigest(b"%d" % length)
    return length | check >> _LENGTH_BITS << _LENGTH_BITS


def _refuse_damaged(sound: Sequence[bool]) -> None:
    damaged = [str(rank) for rank, one in enumerate(sound) if not one]
    if damaged:
        raise GradientError(
            f"rank{'s' * (len(damaged) > 1)} {', '.join(damaged)} sent a message that arrived "
            "damaged: its checksum is wrong; use the same version of tensorcomp on all ranks, and "
            "check the network"
        )
