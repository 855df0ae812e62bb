"""Runs of symbols: counted exactly, and coded and decoded alike by pairs and singly."""

import heapq

import ml_dtypes
import numpy as np
import pytest
from tree_cases import size_of

# Around 8 and 16 times the square of 5 symbols, from where on pairs are coded and counted, and
# around 8 << 11, from where on the decoder finds several symbols by one look.
SIZES = [1, 5, 6, 23, 24, 31, 199, 200, 201, 202, 203, 399, 400, 401, 402, 403, 5000, 50_001]
SIDE = 64  # bytes of the side information at most, where there is one group


def run_of(size: int, symbols: int = 5, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    run = np.minimum(random.geometric(0.4, size) - 1, symbols - 1).astype(np.uint8)
    run[:1] = symbols - 1
    return run


def as_floats(run: np.ndarray) -> np.ndarray:
    """Return floats whose symbols are those of a run, below 16, and whose other bits are zeros."""
    return (run << 3).view(ml_dtypes.float8_e4m3fn)


def huffman_bits(run: np.ndarray) -> int:
    """Return the bits of a Huffman code made for a run."""
    weights = [int(count) for count in np.bincount(run) if count]
    if len(weights) == 1:
        return weights[0]
    heapq.heapify(weights)
    bits = 0
    while len(weights) > 1:
        joined = heapq.heappop(weights) + heapq.heappop(weights)
        bits += joined
        heapq.heappush(weights, joined)
    return bits


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("symbols", [1, 2, 5, 16])
def test_a_run_takes_what_a_code_made_for_it_does(size, symbols):
    run = run_of(size, symbols)
    least = huffman_bits(run) / 8
    assert least < size_of("groupfloats(0, 1)", as_floats(run)) <= 1.005 * least + SIDE


@pytest.mark.parametrize("rows", [(1, 63), (20, 300), (150, 2), (300, 300)])
def test_runs_come_back_one_after_the_other(rows):
    """One group is coded by pairs, the other one singly, in any order of rows."""
    small, large = (run_of(count * 64, seed=count).reshape(count, 64) for count in rows)
    array = np.random.default_rng(0).permutation(np.concatenate([small, large + np.uint8(9)]))
    together = huffman_bits(array.reshape(-1)) / 8
    assert size_of("groupfloats(0, 8)", as_floats(array)) < together + SIDE
