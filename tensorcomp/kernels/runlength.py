"""Runs of equal words, and their lengths as bytes of seven bits each."""

from __future__ import annotations

from tensorcomp.kernels.bits import U
from tensorcomp.kernels.jit import jit

_LONGEST = U(63)  # no length has a bit from here on


@jit
def count_runs(words):
    """Return how many runs of equal words `words` (n,) has, n > 0."""
    runs = 1
    for i in range(1, words.size):
        runs += words[i] != words[i - 1]
    return runs


@jit
def find_runs(words, values, stops):
    """Set each run's word and the index behind it; values and stops have a place more than runs."""
    run = U(0)
    last = U(values.size - 1)
    for i in range(U(words.size)):
        word = words[i]
        values[run] = word
        stops[run] = i + U(1)
        run += U(i + U(1) < U(words.size) and words[i + U(1)] != word)
        run = min(run, last)


@jit
def write_lengths(lengths, out):
    """Write each of `lengths` (r,) in bytes of seven bits, low ones first; return the bytes used.

    All bytes of a length but the last have their top bit set. A length takes at most 9 bytes, and
    at most as many as it counts.
    """
    at = U(0)
    for i in range(lengths.size):
        rest = U(lengths[i])
        while rest >= U(128):
            out[at] = (rest & U(127)) | U(128)
            rest >>= U(7)
            at += U(1)
        out[at] = rest
        at += U(1)
    return at


@jit
def expand(values, data, out):
    """Repeat each of `values` (r,) into `out` (n,) as often as `data`, of `write_lengths`, says.

    Returns whether the lengths are as many as the values and fill `out` exactly.
    """
    at = U(0)
    start = U(0)
    n, size = U(out.size), U(data.size)
    for i in range(values.size):
        length = U(0)
        shift = U(0)
        while True:
            if at >= size or shift >= _LONGEST:
                return False
            byte = U(data[at])
            at += U(1)
            length |= (byte & U(127)) << shift
            shift += U(7)
            if byte < U(128):
                break
        if length == U(0) or length > n - start:
            return False
        value = values[i]
        for j in range(start, start + length):
            out[j] = value
        start += length
    return start == n and at == size
