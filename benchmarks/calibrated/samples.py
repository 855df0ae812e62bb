"""What is measured on samples: of tiny_lm, of MiniLM and of a network that reads digits.

tiny_lm reads windows of its training text, never of the held-out one; MiniLM, whose embeddings are
compared on sentences of Python's reference, reads news; the network reads its training digits.
"""

import re
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.common.accuracy import Digits
from benchmarks.common.checkpoints import LEE, Tensors, minilm
from benchmarks.common.models import minilm_states, minilm_tokens, tiny_lm, tiny_lm_script
from benchmarks.pruning.networks import CASES, Course
from tensorcomp.pruning import Statistics, calibrate

CURVATURE = ("second_moment", "row_weight")
TEXTS = 128  # items of news
DIGITS = "lenet-5"
_BATCH = 16  # windows or texts of a minibatch


def tiny_lm_statistics(windows: int, context: int, seed: int) -> Statistics:
    """Measure tiny_lm on windows of its training text that are drawn by a seed."""
    data = tiny_lm_script("data")
    state = {name: torch.from_numpy(array.astype(np.float32)) for name, array in tiny_lm().items()}
    model = tiny_lm_script("evaluate").model_from(state)
    generator = torch.Generator().manual_seed(seed)
    inputs, _ = data.random_windows(data.load_corpus().train, windows, generator, context)
    return calibrate(model, inputs.split(_BATCH), statistics=CURVATURE, seed=seed)


class MiniLM(nn.Module):
    """MiniLM with its weights under the names that they have in the checkpoint."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        for name, array in tensors.items():
            if np.issubdtype(array.dtype, np.floating):
                *path, last = name.split(".")
                module: nn.Module = self
                for part in path:
                    if part not in dict(module.named_children()):
                        module.add_module(part, nn.Module())
                    module = module.get_submodule(part)
                module.register_parameter(last, nn.Parameter(torch.from_numpy(array.copy())))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, Any]:
        """Return the last hidden states."""
        weights = dict(self.named_parameters())
        return {"last_hidden_state": minilm_states(weights, input_ids, attention_mask)}


def news(texts: int = TEXTS) -> tuple[str, ...]:
    """Return sentences of the first items of the Lee corpus."""
    items = LEE.locate().read_text().splitlines()[:texts]
    return tuple(part for item in items for part in re.split(r"(?<=[.!?])\s+(?=[A-Z])", item))


def minilm_statistics(texts: int = TEXTS) -> Statistics:
    """Measure MiniLM on news."""
    # Sentences of equal length share a minibatch: less padding.
    ordered = sorted(news(texts), key=len)
    batches = []
    for start in range(0, len(ordered), _BATCH):
        ids, mask = minilm_tokens(tuple(ordered[start : start + _BATCH]))
        batches.append({"input_ids": ids, "attention_mask": mask})
    return calibrate(MiniLM(minilm()), batches, statistics=CURVATURE)


@cache
def digit_network() -> tuple[nn.Module, Digits]:
    """Train LeNet-5 on 4,000 digits of MNIST, with seed 0."""
    case = CASES[DIGITS]
    digits, model = case.digits(0), case.seeded_model(0)
    Course.of(case, digits, 0).finish(model)
    return model.eval(), digits


def digit_statistics() -> Statistics:
    """Measure LeNet-5 on its training digits."""
    model, digits = digit_network()
    batches = [images for images, _ in digits.batches()]
    return calibrate(model, batches, statistics=CURVATURE)
