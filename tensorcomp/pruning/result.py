"""Apply, hold, shuffle, save and load the masks of a pruned model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from tensorcomp.errors import PARSING_ERRORS, CheckpointError, PruningError
from tensorcomp.selection.granularity import Element, Granularity, parse_granularity
from tensorcomp.selection.select import Selection

if TYPE_CHECKING:
    import torch

    from tensorcomp.pruning.keep_indices import KeptSlices
    from tensorcomp.pruning.mask_hooks import MaskHooks

_KEY = "tensorcomp.masks"


@dataclass(frozen=True)
class PruningResult:
    """The masks of a pruned model, which is as it was until `apply_` or `hold`.

    Parameters
    ----------
    masks : mapping of str to numpy.ndarray
        By the parameter's name: bool, of its shape, true where weights are kept.
    score : str
        What they were selected by.
    granularity : Granularity
        What was pruned together.
    skipped : mapping of str to str
        Parameters that were asked for and are left as they are, and why; not saved.
    """

    masks: Mapping[str, np.ndarray]
    score: str = ""
    granularity: Granularity = Element()  # noqa: RUF009 - a frozen value
    skipped: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, selection: Selection, score: str) -> PruningResult:
        """Return the masks of a selection, all made at once: a byte a weight."""
        masks = {name: selection.mask(name) for name in selection.names}
        return cls(masks, score, selection.granularity, selection.skipped)

    @property
    def sizes(self) -> dict[str, int]:
        """Weights of each tensor."""
        return {name: mask.size for name, mask in self.masks.items()}

    @property
    def pruned(self) -> dict[str, int]:
        """Number of pruned weights of each tensor."""
        return {name: mask.size - int(np.count_nonzero(mask)) for name, mask in self.masks.items()}

    @property
    def sparsity(self) -> float:
        """The exact part of all these weights that is pruned."""
        return sum(self.pruned.values()) / max(sum(self.sizes.values()), 1)

    def apply_(self, model: torch.nn.Module) -> None:
        """Set the pruned weights of a model to zero, once.

        Training would bring them back: see `hold`.

        Raises
        ------
        PruningError
            If a mask fits no parameter; nothing is changed then.
        """
        from tensorcomp.calibration.masking import mask_parameters
        from tensorcomp.calibration.targets import unwrapped

        mask_parameters(unwrapped(model), self.masks)

    def hold(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> MaskHooks:
        """Set the pruned weights to zero and keep them there through training.

        Returns
        -------
        MaskHooks
            A context manager; its end, or `release`, lets go of the model without a trace.
        """
        from tensorcomp.pruning.mask_hooks import hold

        return hold(model, optimizer, self.masks)

    def shuffled(self, seed: int = 0) -> PruningResult:
        """Return masks that keep as many weights of each tensor, at random places.

        The control for whether the choice within tensors matters, or their densities alone
        (Su et al. 2020, "Sanity-checking pruning methods"; Frankle et al. 2021, "Pruning neural
        networks at initialization: why are we missing the mark?").
        """
        masks = {}
        for name, mask in self.masks.items():
            own = xxhash.xxh3_64_intdigest(name.encode("utf-8"))
            order = np.random.default_rng([seed, own]).permutation(mask.size)
            masks[name] = mask.reshape(-1)[order].reshape(mask.shape)
        return PruningResult(masks, f"shuffled {self.score}".strip())

    def keep_indices(self) -> dict[str, KeptSlices]:
        """Find the rows and columns of each tensor that hold a kept weight."""
        from tensorcomp.pruning.keep_indices import keep_indices

        return keep_indices(self.masks)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the masks to a compressed file, replacing an existing one.

        Raises
        ------
        CheckpointError
            If it cannot be written.
        """
        from tensorcomp.api.save import save_file

        about = {"score": self.score, "granularity": str(self.granularity)}
        save_file(dict(self.masks), path, metadata={_KEY: json.dumps(about)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PruningResult:
        """Read masks that `save` wrote.

        Raises
        ------
        CheckpointError
            If the file holds something else.
        """
        from tensorcomp.api.load import safe_open

        with safe_open(path, framework="np") as file:
            try:
                about: Any = json.loads((file.metadata() or {})[_KEY])
                score, granularity = str(about["score"]), parse_granularity(about["granularity"])
            except (*PARSING_ERRORS, PruningError) as error:
                raise CheckpointError(f"{path}: holds no masks of pruning") from error
            masks = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name, mask in masks.items():
            if mask.dtype != np.bool_:
                raise CheckpointError(
                    f"{path}: expected masks of bool, got {name!r} of {mask.dtype}"
                )
        return cls(masks, score, granularity)
