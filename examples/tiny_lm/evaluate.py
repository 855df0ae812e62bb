"""Perplexity of checkpoints on the held-out text.

Run as ``python evaluate.py [CHECKPOINT …]``, compressed ones among them, or
call :func:`perplexity` with any state dict, such as one that was compressed and restored.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from data import consecutive_windows, load_corpus
from model import ModelConfig, TinyLM
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

DEFAULT_CHECKPOINT = Path(__file__).with_name("model.safetensors")

# Bounds the memory of the logits; does not change the result.
WINDOWS_PER_BATCH = 16


@torch.inference_mode()
def mean_loss(model: TinyLM, tokens: Tensor) -> float:
    """Average cross-entropy of a model over all whole windows of a text.

    Parameters
    ----------
    model : TinyLM
        The model; evaluated without dropout and left in the mode it was in.
    tokens : Tensor
        Byte tokens, shape ``(length,)``.

    Returns
    -------
    float
        Loss in nats per byte.
    """
    inputs, targets = consecutive_windows(tokens)
    was_training = model.training
    model.eval()
    total = 0.0
    for start in range(0, len(inputs), WINDOWS_PER_BATCH):
        batch = slice(start, start + WINDOWS_PER_BATCH)
        logits = model(inputs[batch]).flatten(0, 1)
        total += F.cross_entropy(logits, targets[batch].flatten(), reduction="sum").item()
    model.train(was_training)
    return total / targets.numel()


def model_from(state_dict: Mapping[str, Tensor]) -> TinyLM:
    """Build the model a state dict belongs to, computing in ``float32``.

    The weights keep the values they are stored with: widening ``bfloat16`` is exact.
    """
    model = TinyLM(ModelConfig.from_state_dict(state_dict))
    model.load_state_dict({name: tensor.float() for name, tensor in state_dict.items()})
    return model


def loss(state_dict: Mapping[str, Tensor]) -> float:
    """Held-out loss of a checkpoint, in nats per byte."""
    return mean_loss(model_from(state_dict), load_corpus().held_out)


def perplexity(state_dict: Mapping[str, Tensor]) -> float:
    """Held-out perplexity of a checkpoint, per byte.

    Parameters
    ----------
    state_dict : mapping of str to Tensor
        A :class:`~model.TinyLM` checkpoint, of any floating-point type.

    Returns
    -------
    float
        Exponential of the mean loss over the held-out text of the running Python.
    """
    return math.exp(loss(state_dict))


def load_checkpoint(path: Path) -> Mapping[str, Tensor]:
    """Return the tensors of a safetensors file, or of one that tensorcomp compressed."""
    if path.name.endswith(".tc.safetensors"):
        import tensorcomp  # only here: the example runs without it

        return tensorcomp.load_file(path, framework="pt")
    return load_file(path)


def main() -> None:
    """Evaluate the checkpoints named on the command line."""
    parser = argparse.ArgumentParser(description="Print held-out loss and perplexity.")
    parser.add_argument("checkpoints", nargs="*", type=Path, default=[DEFAULT_CHECKPOINT])
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: 2)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    for path in arguments.checkpoints:
        nats = loss(load_checkpoint(path))
        print(
            f"{path.name}: {path.stat().st_size:,} bytes, held-out perplexity "
            f"{math.exp(nats):.4f} per byte ({nats:.4f} nats, {nats / math.log(2):.4f} bits)"
        )


if __name__ == "__main__":
    main()
