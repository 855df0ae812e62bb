"""Select elements of a tensor on its device, as the codecs do."""

from __future__ import annotations

import math

import numpy as np
import torch

from tensorcomp.codecs.sparse.threshold import least_number
from tensorcomp.gradients.draws import likely_limit

WORDS = {torch.float32: torch.int32, torch.float64: torch.int64}
_FEW_KEPT = 0.1  # share up to which the largest are looked for among candidates
_SAMPLED = 1 << 14  # elements of a sample, at least; fewer are looked at as they are
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_LEAST = -(1 << 63)  # added to a signed word, it orders like the unsigned one


def largest_positions(flat: torch.Tensor, keep: int) -> torch.Tensor:
    """Return the indices of the greatest magnitudes, ascending (k,).

    Of equal magnitudes those of lower index are kept.

    Parameters
    ----------
    flat : torch.Tensor
        (n,) float32 or float64, finite.
    keep : int
        From 0 to n.
    """
    if keep == 0:
        return torch.empty(0, dtype=torch.int64, device=flat.device)
    word = WORDS[flat.dtype]
    keys = flat.view(word) & torch.iinfo(word).max
    places = _candidates(keys, keep)
    if places is None or places.numel() < keep:  # a sample was not like the rest
        limit = torch.kthvalue(keys, keys.numel() - keep + 1).values
        places = torch.nonzero(keys >= limit).reshape(-1)
    keys = keys[places]
    least = torch.topk(keys, keep, sorted=False).values.min()
    chosen = keys > least
    ties = torch.nonzero(keys == least).reshape(-1)
    chosen[ties[: keep - int(chosen.sum())]] = True
    return places[chosen]


def _candidates(keys: torch.Tensor, keep: int) -> torch.Tensor | None:
    """Return where keys are above a sampled limit; None where a sample does not pay."""
    if keep > keys.numel() * _FEW_KEPT or keys.numel() < _SAMPLED:
        return None
    sample = keys[:: max(1, keys.numel() // _SAMPLED)]
    share = sample.numel() * keep / keys.numel()
    wanted = min(sample.numel(), int(share + 5 * math.sqrt(share) + 2))
    limit = torch.topk(sample, wanted, sorted=False).values.min()
    return torch.nonzero(keys >= limit).reshape(-1)


def positions_above(flat: torch.Tensor, value: float) -> torch.Tensor:
    """Return the indices of magnitudes of at least `value`, ascending (k,)."""
    dtype = np.dtype(np.float32 if flat.dtype == torch.float32 else np.float64)
    least = float(least_number(value, dtype))
    return torch.nonzero(flat.abs() >= least).reshape(-1)


def drawn_positions(
    key: int, size: int, count: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the places that the codec `randomk` keeps, and their numbers.

    Parameters
    ----------
    key : int
        The seed.
    size : int
        Elements of the tensor.
    count : int
        Of them to be kept, from 0 to `size`.
    device : torch.device

    Returns
    -------
    tuple of torch.Tensor
        (count,) int64, ascending; (count,) int64, whose bits are the numbers.
    """
    if count == 0:
        nothing = torch.empty(0, dtype=torch.int64, device=device)
        return nothing, nothing
    numbers = _draws(key, size, device)
    ordered = numbers ^ _LEAST
    places = torch.nonzero(ordered <= likely_limit(size, count) + _LEAST).reshape(-1)
    if places.numel() < count:
        places = torch.arange(size, device=device)
    last = torch.kthvalue(ordered[places], count).values
    places = places[ordered[places] <= last]
    return places, numbers[places]


def _draws(key: int, size: int, device: torch.device) -> torch.Tensor:
    """Return the first n numbers, as int64, of the SplitMix64 sequence of a mixed key."""
    state = _mixed(torch.tensor(_signed(key)))
    steps = torch.arange(1, size + 1, device=device)
    return _mixed(steps * _signed(_GOLDEN) + state.to(device))


def _mixed(words: torch.Tensor) -> torch.Tensor:
    words = (words ^ _shifted(words, 30)) * _signed(_FIRST)
    words = (words ^ _shifted(words, 27)) * _signed(_SECOND)
    return words ^ _shifted(words, 31)


def _shifted(words: torch.Tensor, bits: int) -> torch.Tensor:
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    return (word ^ (1 << 63)) + _LEAST
