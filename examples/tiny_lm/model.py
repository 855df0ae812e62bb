"""A small causal transformer over bytes, in plain PyTorch.

Pre-normalised blocks, rotary positions, a gated feed-forward layer and an embedding that is
also the output layer: the layout of current language models, scaled down to about a million
weights.  Its tensors have the usual names and shapes, for example
``layers.0.attention.query.weight``, so its checkpoints are like full-size ones, only smaller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Neither the head width nor the rotary base shows in any weight's shape.  Constants keep a
# checkpoint self-describing: ModelConfig.from_state_dict needs the tensors and nothing else.
HEAD_DIM = 32
ROTARY_BASE = 10_000.0
NORM_EPS = 1e-6
INITIAL_STD = 0.02


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a :class:`TinyLM`.

    Parameters
    ----------
    vocab_size : int
        Number of distinct tokens; 256 for bytes.
    dim : int
        Width of the residual stream; a multiple of ``HEAD_DIM``.
    hidden_dim : int
        Width of the feed-forward layer.
    n_layers : int
        Number of transformer blocks.
    """

    vocab_size: int = 256
    dim: int = 160
    hidden_dim: int = 448
    n_layers: int = 4

    def __post_init__(self) -> None:
        """Refuse a width that does not divide into heads."""
        if self.dim % HEAD_DIM:
            message = f"dim must be a multiple of {HEAD_DIM}, got {self.dim}"
            raise ValueError(message)

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Tensor]) -> ModelConfig:
        """Read the sizes off the shapes of a checkpoint's tensors."""
        vocab_size, dim = state_dict["embedding.weight"].shape
        hidden_dim, _ = state_dict["layers.0.feed_forward.up.weight"].shape
        blocks = {name.split(".")[1] for name in state_dict if name.startswith("layers.")}
        return cls(vocab_size=vocab_size, dim=dim, hidden_dim=hidden_dim, n_layers=len(blocks))


def rotate(x: Tensor) -> Tensor:
    """Apply rotary position encoding.

    Parameters
    ----------
    x : Tensor
        Queries or keys, shape ``(..., length, HEAD_DIM)``.

    Returns
    -------
    Tensor
        Same shape; the pair of features ``(i, i + HEAD_DIM / 2)`` at position ``p`` is turned
        by the angle ``p * ROTARY_BASE ** (-2 * i / HEAD_DIM)``.
    """
    length, width = x.shape[-2:]
    exponents = torch.arange(0, width, 2, device=x.device, dtype=torch.float32) / width
    positions = torch.arange(length, device=x.device, dtype=torch.float32)
    angles = torch.outer(positions, ROTARY_BASE**-exponents)
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.key = nn.Linear(config.dim, config.dim, bias=False)
        self.value = nn.Linear(config.dim, config.dim, bias=False)
        self.output = nn.Linear(config.dim, config.dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Let each position read from itself and the ones before it."""

        def split_heads(y: Tensor) -> Tensor:
            batch, length, dim = y.shape
            return y.view(batch, length, dim // HEAD_DIM, HEAD_DIM).transpose(1, 2)

        query = rotate(split_heads(self.query(x)))
        key = rotate(split_heads(self.key(x)))
        value = split_heads(self.value(x))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        merged: Tensor = self.dropout(self.output(mixed.transpose(1, 2).flatten(2)))
        return merged


class FeedForward(nn.Module):
    """Gated feed-forward layer (SwiGLU)."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.gate = nn.Linear(config.dim, config.hidden_dim, bias=False)
        self.up = nn.Linear(config.dim, config.hidden_dim, bias=False)
        self.down = nn.Linear(config.hidden_dim, config.dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position on its own."""
        y: Tensor = self.dropout(self.down(F.silu(self.gate(x)) * self.up(x)))
        return y


class Block(nn.Module):
    """One transformer block: attention, then feed-forward, each around a residual."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=NORM_EPS)
        self.attention = Attention(config, dropout)
        self.feed_forward_norm = nn.RMSNorm(config.dim, eps=NORM_EPS)
        self.feed_forward = FeedForward(config, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add both sub-layers' outputs to the residual stream."""
        x = x + self.attention(self.attention_norm(x))
        y: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return y


class TinyLM(nn.Module):
    """Causal language model: logits of the next token at every position.

    Parameters
    ----------
    config : ModelConfig
        Sizes of the model.
    dropout : float, default 0.0
        Probability of dropping an element of a sub-layer's output, in training mode only.
    """

    def __init__(self, config: ModelConfig, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config, dropout) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.dim, eps=NORM_EPS)
        self._initialise(config)

    def _initialise(self, config: ModelConfig) -> None:
        # Every block adds two outputs to the residual stream; shrinking those keeps the
        # stream's variance at initialisation independent of depth, as in GPT-2.
        residual_std = INITIAL_STD / math.sqrt(2 * config.n_layers)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                is_residual = name.endswith(("attention.output.weight", "feed_forward.down.weight"))
                nn.init.normal_(parameter, std=residual_std if is_residual else INITIAL_STD)

    def forward(self, tokens: Tensor) -> Tensor:
        """Predict the token that follows each prefix.

        Parameters
        ----------
        tokens : Tensor
            Integer tokens, shape ``(batch, length)``.

        Returns
        -------
        Tensor
            Logits, shape ``(batch, length, vocab_size)``.
        """
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        # The output layer is the embedding itself (tied), so the checkpoint stores it once.
        return F.linear(self.norm(x), self.embedding.weight)
