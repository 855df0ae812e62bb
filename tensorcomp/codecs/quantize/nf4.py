"""Four bits whose sixteen levels suit normally distributed weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensorcomp.codecs.arguments import argument
from tensorcomp.codecs.bit_views import as_words
from tensorcomp.codecs.quantize.codebooks import check_codes, nearest
from tensorcomp.codecs.quantize.groups import MAX_GROUP, GroupQuantizer, Groups, short
from tensorcomp.codecs.strategy import Strategy
from tensorcomp.kernels import native

# Quantiles of the normal distribution as in the paper's appendix E; 0 and both ends are exact.
LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


@dataclass(frozen=True)
class Nf4(GroupQuantizer):
    """Round each element to one of 16 normal quantiles times a scale.

    Each group has a scale of its own.

    Parts: ``scales``, one a group, float32 (float64 for float64 arrays) of 11 significant bits: the
    greatest magnitude. ``codes``, uint8, of the array's shape: 0 to 15, the place of the level in
    `LEVELS`. A value is level × scale in float64, rounded to the array's dtype.

    Error: at most 0.152 × scale for an element, half the widest gap between levels, and 1 in 4,000
    of the scale; rounding to the array's dtype comes on top.

    Parameters
    ----------
    group : int
        Elements of a row that share a scale, -1 for a whole row (first axis), 0 for the whole array
        (a chunk of it, where a tensor is cut into chunks).

    Notes
    -----
    Cost: O(n), 3 ns an element to encode and 0.6 to 1 ns to decode. Not for the smallest size at an
    error: its codes are used almost equally often, so that no entropy coder makes them much
    smaller, and `uniform` has less error at equal size. Not for arrays with NaN or infinity.

    References
    ----------
    Dettmers, Pagnoni, Holtzman & Zettlemoyer 2023, "QLoRA: Efficient Finetuning of Quantized LLMs".
    """

    id: ClassVar[str] = "nf4"
    strategies: ClassVar[tuple[Strategy, ...]] = (Strategy("NF4", "nf4"),)
    needs_feedback: ClassVar[bool] = False  # errors are small, and zero on average
    default_parts: ClassVar[Mapping[str, str]] = {"scales": "fields", "codes": "bitpack"}
    codes_dtype: ClassVar[type[np.generic]] = np.uint8
    levels: ClassVar[Sequence[float]] = LEVELS
    group: int = argument(64, least=-1, most=MAX_GROUP)

    def quantize(self, values: np.ndarray, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Return scales and the places of levels."""
        scales = short(groups.greatest(values))
        levels = np.array(LEVELS, values.dtype)
        return scales, nearest(groups.normalize(values, scales), levels, np.dtype(np.uint8))

    def multiples(self, codes: np.ndarray) -> np.ndarray:
        """Return the levels."""
        check_codes(codes, len(LEVELS), self.id)
        levels = np.empty(codes.shape, np.float32)
        table = as_words(np.array(LEVELS, np.float32))
        native.codebook_look_up(codes.reshape(-1), 0, table, as_words(levels).reshape(-1))
        return levels
