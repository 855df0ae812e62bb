"""Two models at work: how much worse they get with weights that are not quite their own.

tiny_lm predicts the bytes of held-out text; MiniLM-L6 embeds sentences. Both compute in fp32.
"""

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from benchmarks.common.checkpoints import MINILM, Array, Tensors, minilm

SENTENCES = 200
_SHORTEST, _LONGEST = 40, 400  # characters of a sentence

TINY_LM = Path(__file__).parents[2] / "examples" / "tiny_lm"
_WINDOWS = 16  # bounds memory; does not change results

_HEADS = 12
_NORM_EPS = 1e-12
_TOKENS = 256
_BATCH = 50


@dataclass(frozen=True)
class Quality:
    """How well a model does its work.

    Parameters
    ----------
    perplexity : float
        tiny_lm's on held-out text, per byte.
    divergence : float
        Mean Kullback-Leibler divergence of its predictions from the original's, nats a byte.
    cosine : float
        Mean over sentences of the cosine of MiniLM's embedding and the original's.
    """

    perplexity: float = math.nan
    divergence: float = math.nan
    cosine: float = math.nan


def _as_torch(array: Array) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array, np.float32))


@cache
def tiny_lm() -> Tensors:
    """Load the example's checkpoint, in bf16."""
    from safetensors.numpy import load_file

    return dict(load_file(TINY_LM / "model.safetensors"))


@cache
def tiny_lm_script(name: str) -> Any:
    """Import a script of the example."""
    sys.path.insert(0, str(TINY_LM))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(TINY_LM))


@cache
def _windows() -> tuple[Any, Any]:
    data = tiny_lm_script("data")
    inputs, targets = data.consecutive_windows(data.load_corpus().held_out)
    return inputs, targets


def _log_probabilities(tensors: Tensors) -> Iterator[tuple[Any, Any]]:
    """Yield the log-probabilities of batches of held-out text, and what came next."""
    state = {name: _as_torch(tensor) for name, tensor in tensors.items()}
    model = tiny_lm_script("evaluate").model_from(state).eval()
    inputs, targets = _windows()
    for start in range(0, len(inputs), _WINDOWS):
        batch = slice(start, start + _WINDOWS)
        yield model(inputs[batch]).flatten(0, 1).log_softmax(-1), targets[batch].flatten()


@cache
def _own_predictions() -> list[Any]:
    return [predicted for predicted, _ in _log_probabilities(tiny_lm())]


def tiny_lm_quality(tensors: Tensors) -> Quality:
    """Return perplexity and divergence of tiny_lm with these weights."""
    import torch
    from torch.nn import functional

    loss = divergence = 0.0
    count = 0
    with torch.inference_mode():
        own_predictions = _own_predictions()
        batches = zip(own_predictions, _log_probabilities(tensors), strict=True)
        for own, (predicted, targets) in batches:
            loss += functional.nll_loss(predicted, targets, reduction="sum").item()
            divergence += functional.kl_div(predicted, own, reduction="sum", log_target=True).item()
            count += len(targets)
    return Quality(math.exp(loss / count), divergence / count)


def sentences() -> list[str]:
    """Return sentences of Python's language reference, evenly spaced over its topics."""
    found: dict[str, None] = {}
    for name in sorted(topics):
        for paragraph in re.split(r"\n[ \t]*\n", topics[name]):
            text = " ".join(paragraph.split())
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text):
                if _is_prose(sentence):
                    found.setdefault(sentence)
    every = list(found)
    return [every[index * len(every) // SENTENCES] for index in range(SENTENCES)]


def _is_prose(sentence: str) -> bool:
    letters = sum(character.isalpha() or character.isspace() for character in sentence)
    return (
        _SHORTEST <= len(sentence) <= _LONGEST
        and sentence[0].isupper()
        and sentence[-1] in ".!?"
        and letters >= 0.9 * len(sentence)
    )


@cache
def minilm_tokens(texts: tuple[str, ...]) -> tuple[Any, Any]:
    """Return token ids and the mask of real tokens, both (texts, tokens)."""
    import torch
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(MINILM.locate().with_name("tokenizer.json")))
    tokenizer.enable_truncation(_TOKENS)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(texts))
    ids = torch.tensor([line.ids for line in encoded])
    return ids, torch.tensor([line.attention_mask for line in encoded])


def embedded(tensors: Tensors, texts: tuple[str, ...]) -> Any:
    """Return MiniLM's sentence embeddings of unit length: mean of the last layer's tokens."""
    import torch

    weights = {name: _as_torch(tensor) for name, tensor in tensors.items()}
    ids, mask = minilm_tokens(texts)
    with torch.inference_mode():
        parts = [
            _embed(weights, ids[start : start + _BATCH], mask[start : start + _BATCH])
            for start in range(0, len(ids), _BATCH)
        ]
        return torch.cat(parts)


def _embed(weights: dict[str, Any], ids: Any, mask: Any) -> Any:
    from torch.nn import functional

    x, kept = minilm_states(weights, ids, mask), mask[..., None].float()
    return functional.normalize((x * kept).sum(1) / kept.sum(1), dim=-1)


def minilm_states(weights: Mapping[str, Any], ids: Any, mask: Any) -> Any:
    """Return MiniLM's last hidden states (texts, tokens, features)."""
    import torch
    from torch.nn import functional

    def linear(name: str, x: Any) -> Any:
        return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(name: str, x: Any) -> Any:
        scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return functional.layer_norm(x, x.shape[-1:], scale, shift, _NORM_EPS)

    def heads(x: Any) -> Any:
        return x.unflatten(-1, (_HEADS, -1)).transpose(1, 2)

    def embedding(name: str, indices: Any) -> Any:
        return functional.embedding(indices, weights[f"embeddings.{name}_embeddings.weight"])

    x = embedding("word", ids) + embedding("position", torch.arange(ids.shape[1]).expand_as(ids))
    x = norm("embeddings.LayerNorm", x + embedding("token_type", torch.zeros_like(ids)))
    layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
    for index in range(layers):
        layer = f"encoder.layer.{index}"
        query, key, value = (
            heads(linear(f"{layer}.attention.self.{part}", x)) for part in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask[:, None, None, :].bool()
        )
        mixed = linear(f"{layer}.attention.output.dense", mixed.transpose(1, 2).flatten(2))
        x = norm(f"{layer}.attention.output.LayerNorm", x + mixed)
        wide = functional.gelu(linear(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", x + linear(f"{layer}.output.dense", wide))
    return x


@cache
def _own_embeddings() -> Any:
    return embedded(minilm(), tuple(sentences()))


def minilm_quality(tensors: Tensors) -> Quality:
    """Return the mean cosine of MiniLM's embeddings with these weights and with its own."""
    found = embedded(tensors, tuple(sentences()))
    return Quality(cosine=float((found * _own_embeddings()).sum(-1).mean()))
