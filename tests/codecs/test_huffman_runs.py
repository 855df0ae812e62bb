"""Runs of bytes: counted exactly, and coded and decoded alike by pairs and singly."""

from __future__ import annotations

import numpy as np
import pytest

from tensorcomp.kernels.huffman_codes import code_lengths, fill_codes
from tensorcomp.kernels.huffman_runs import (
    LONGEST,
    STREAMS,
    count_run,
    decode_run,
    encode_run,
    fill_entries,
    room_of,
)

# Around 8 and 16 times the square of 5 symbols, from where on pairs are coded and counted.
SIZES = [0, 1, 5, 6, 23, 24, 31, 199, 200, 201, 202, 203, 399, 400, 401, 402, 403, 5000, 50_001]


def run_of(size: int, symbols: int = 5, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    run = np.minimum(random.geometric(0.4, size) - 1, symbols - 1).astype(np.uint8)
    run[:1] = symbols - 1
    return run


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("symbols", [1, 2, 5, 200])
def test_counts_are_exact(size: int, symbols: int) -> None:
    run = run_of(size, symbols)
    counts = np.ones(256, np.int64)
    count_run(run, symbols, counts)
    assert np.array_equal(counts, 1 + np.bincount(run, minlength=256))


@pytest.mark.parametrize("longest", [3, 8, LONGEST])
@pytest.mark.parametrize("sizes", [*((size,) for size in SIZES), (1, 0, 450, 7), (5000, 201, 600)])
def test_runs_come_back_one_after_the_other(sizes: tuple[int, ...], longest: int) -> None:
    runs = [run_of(size, seed=k) for k, size in enumerate(sizes)]
    counts = np.array([[50, 20, 10, 5, 1]])
    lengths = np.empty((1, 5), np.uint8)
    code_lengths(counts, longest, lengths)
    symbols = np.arange(5, dtype=np.uint16)
    codes = np.zeros(5, np.uint32)
    fill_codes(lengths, longest, symbols, 0, codes)
    room = int(room_of(np.array(sizes), longest))
    data = np.zeros(STREAMS * room + 8, np.uint8)
    starts = room * np.arange(STREAMS)
    at, words = starts.astype(np.uint64), np.zeros(STREAMS, np.uint64)
    used = np.zeros(STREAMS, np.uint64)
    for run in runs:
        encode_run(run, codes, data, at, words, used)
    assert (at - starts.astype(np.uint64)).max() <= room
    single, table = np.empty(1 << longest, np.uint16), np.empty(1 << longest, np.uint64)
    fill_entries(lengths, longest, symbols, single, table)
    length_of = np.zeros(256, np.uint8)
    length_of[:5] = lengths[0]
    positions = 8 * starts
    for run in runs:
        out = np.full(run.size + 8, 99, np.uint8)
        decode_run(data, positions, table, longest, length_of, out[: run.size])
        assert np.array_equal(out[: run.size], run)
        assert (out[run.size :] == 99).all()
    assert np.array_equal(positions, (8 * at + used).astype(np.int64))
