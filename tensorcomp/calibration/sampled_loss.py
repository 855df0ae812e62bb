"""Draw labels from what a model predicts, for the true Fisher information."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import xxhash
from torch.nn import functional as F

from tensorcomp.calibration.derivatives import widened
from tensorcomp.errors import PruningError


def position_mask(inputs: Any) -> torch.Tensor | None:
    """Return the inputs' ``attention_mask``, false where padding is."""
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    if not isinstance(mask, torch.Tensor) or mask.ndim != 2 or mask.all():
        return None
    return mask.bool()


def seed_of(seed: int, minibatch: int) -> int:
    """Return the seed of a minibatch's labels."""
    # Of a seed, CPUs take 32 bits.
    return xxhash.xxh3_64_intdigest(b"%d %d" % (seed, minibatch)) >> 1


def sampled_loss(outputs: Any, mask: torch.Tensor | None, seed: int) -> tuple[torch.Tensor, int]:
    """Compute the loss of labels that are drawn from the model's prediction.

    Parameters
    ----------
    outputs : torch.Tensor, mapping, tuple or object
        With ``logits``, or else ``last_hidden_state``; otherwise the first tensor of floats is
        taken. Classes are on the last axis, as in `losses.cross_entropy` on the second of four or
        more. Labels of hidden states are normal around their mean over positions, scaled to length
        1; those of logits of a single class are normal around it.
    mask : torch.Tensor, optional
        Bool (N, L): positions without a label.
    seed : int
        Labels follow from it and the outputs.

    Returns
    -------
    loss : torch.Tensor
        The sum over all labels; of normal ones what depends on the outputs to the first order.
    terms : int
        How many labels there are.
    """
    hidden = _entry(outputs, "last_hidden_state")
    logits = _entry(outputs, "logits")
    if logits is None and hidden is not None and hidden.ndim > 2:
        hidden = hidden.flatten(2).mT if hidden.ndim > 3 else hidden  # of images: channels second
        if mask is not None and mask.shape == hidden.shape[:2]:
            hidden = hidden.masked_fill(~mask[..., None], 0)
        sums = hidden.float().sum(1)
        return _normal(F.normalize(sums, dim=-1), seed), len(hidden)
    logits = _first(outputs) if logits is None else logits
    if logits is None or not logits.ndim:
        raise PruningError(
            f"expected the model to return logits, got a {type(outputs).__name__}; "
            "give loss=, a function of model and batch"
        )
    scores = widened(logits.movedim(1, -1) if logits.ndim > 3 else logits)
    flat = scores[mask] if mask is not None and mask.shape == scores.shape[:-1] else scores
    flat = flat.reshape(-1, scores.shape[-1])
    if flat.shape[-1] == 1:
        return _normal(flat, seed), len(flat)
    generator = torch.Generator(flat.device).manual_seed(seed)
    labels = torch.multinomial(flat.detach().softmax(-1), 1, generator=generator)[:, 0]
    return F.cross_entropy(flat, labels, reduction="sum"), len(flat)


def _normal(outputs: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator(outputs.device).manual_seed(seed)
    noise = torch.empty_like(outputs).normal_(generator=generator)
    return (noise * outputs).sum()


def _entry(outputs: Any, key: str) -> torch.Tensor | None:
    found = outputs.get(key) if isinstance(outputs, Mapping) else getattr(outputs, key, None)
    return found if isinstance(found, torch.Tensor) and found.is_floating_point() else None


def _first(outputs: Any) -> torch.Tensor | None:
    """Return the first tensor of floats in outputs."""
    parts = outputs.values() if isinstance(outputs, Mapping) else outputs
    parts = parts if isinstance(outputs, (Mapping, tuple, list)) else (outputs,)
    return next((p for p in parts if isinstance(p, torch.Tensor) and p.is_floating_point()), None)
