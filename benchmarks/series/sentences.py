"""MiniLM fine-tuned by contrast of neighbouring sentences of the news, then at a tiny rate.

    python -m benchmarks.series.sentences FOLDER [--seed 0] [--steps 60]

writes ``FOLDER/minilm/step_*``: the base (0), the middle, one and ten steps on, the end at a
learning rate of 2e-5; and two neighbouring steps (900000, 900001) at 2e-6, as reinforcement
learning of language models takes them. AdamW, β₂ 0.999; moments where two saves are far apart.
"""

import itertools
import re
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from benchmarks.common.checkpoints import LEE, MINILM
from benchmarks.common.reporting import note
from benchmarks.series.saving import ADAM, NAME, save_moments, save_weights

LEARNING_RATE, TINY_RATE, WARMUP, TINY_STEPS = 2e-5, 2e-6, 20, 5
TINY_STEP = 900_000  # the number of the first save at the tiny rate
_HEADS, _LAYERS, _WIDTH, _TOKENS, _PAIRS, _DROPOUT = 12, 6, 384, 32, 12, 0.1


class Encoder:
    """MiniLM's forward pass with dropout, over weights by their names in the checkpoint."""

    def __init__(self, weights: dict[str, nn.Parameter]) -> None:
        word = "embeddings.word_embeddings.weight"
        self.prefix = next(name for name in weights if name.endswith(word)).removesuffix(word)
        self.weights = weights

    def _get(self, name: str) -> torch.Tensor:
        return self.weights[self.prefix + name]

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self._get(f"{name}.weight"), self._get(f"{name}.bias")
        return F.layer_norm(x, (_WIDTH,), weight, bias, 1e-12)

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self._get(f"{name}.weight"), self._get(f"{name}.bias"))

    def _layer(self, x: torch.Tensor, bias: torch.Tensor, prefix: str) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            self._linear(x, f"{prefix}attention.self.{part}")
            .view(batch, length, _HEADS, -1)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        h = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        h = self._linear(h.transpose(1, 2).reshape(x.shape), f"{prefix}attention.output.dense")
        x = self._norm(x + F.dropout(h, _DROPOUT), f"{prefix}attention.output.LayerNorm")
        h = F.gelu(self._linear(x, f"{prefix}intermediate.dense"))
        h = self._linear(h, f"{prefix}output.dense")
        return self._norm(x + F.dropout(h, _DROPOUT), f"{prefix}output.LayerNorm")

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return an embedding of length 1 for each sentence."""
        x = self._get("embeddings.word_embeddings.weight")[ids]
        x = x + self._get("embeddings.position_embeddings.weight")[: ids.shape[1]]
        x = x + self._get("embeddings.token_type_embeddings.weight")[0]
        x = F.dropout(self._norm(x, "embeddings.LayerNorm"), _DROPOUT)
        bias = torch.where(mask[:, None, None, :], 0.0, float("-inf"))
        for layer in range(_LAYERS):
            x = self._layer(x, bias, f"encoder.layer.{layer}.")
        kept = mask[..., None].float()
        return F.normalize((x * kept).sum(1) / kept.sum(1), dim=-1)


def neighbours(text: str) -> list[tuple[str, str]]:
    """Return pairs of long enough sentences that follow one another in a line."""
    pairs = []
    for line in text.splitlines():
        parts = [part for part in re.split(r"(?<=[.!?])\s+", line) if len(part) > 30]
        pairs += list(itertools.pairwise(parts))
    return pairs


class Run:
    """A fine-tuning run."""

    def __init__(self, folder: Path, seed: int) -> None:
        from tokenizers import Tokenizer

        torch.manual_seed(seed)
        self.folder = folder / "minilm"
        self.generator = torch.Generator().manual_seed(seed)
        path = MINILM.locate()
        self.weights = {
            name: nn.Parameter(value.float())
            for name, value in load_file(path).items()
            if value.is_floating_point()
        }
        self.encoder = Encoder(self.weights)
        trained = [value for name, value in self.weights.items() if "pooler" not in name]
        self.optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.01)
        self.tokenizer = Tokenizer.from_file(str(path.with_name("tokenizer.json")))
        self.tokenizer.enable_truncation(_TOKENS)
        self.tokenizer.enable_padding(length=_TOKENS)
        self.pairs = neighbours(LEE.locate().read_text("latin-1"))

    def step(self, lr: float) -> float:
        """Train on some pairs, each against all others, and return the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        picked = torch.randint(len(self.pairs), (_PAIRS,), generator=self.generator).tolist()
        texts = [self.pairs[index][side] for side in (0, 1) for index in picked]
        encoded = self.tokenizer.encode_batch(texts)
        ids = torch.tensor([item.ids for item in encoded])
        mask = torch.tensor([item.attention_mask for item in encoded]).bool()
        vectors = self.encoder(ids, mask)
        scores = vectors[:_PAIRS] @ vectors[_PAIRS:].T * 20
        loss = F.cross_entropy(scores, torch.arange(_PAIRS))
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        return loss.item()

    def save(self, step: int, *, moments: bool = False) -> None:
        """Save weights, and moments where wanted."""
        stem = self.folder / NAME.format(step)
        save_weights(stem, self.weights)
        if moments:
            save_moments(stem, self.weights.items(), self.optimizer, ADAM)


def make(folder: Path, seed: int, steps: int) -> None:
    """Train and save."""
    torch.set_num_threads(1)
    run = Run(folder, seed)
    run.save(0)
    half, begun = steps // 2, time.perf_counter()
    for step in range(1, steps + 1):
        loss = run.step(LEARNING_RATE * min(1, step / WARMUP))
        if step in (half, half + 1, half + 10, steps):
            run.save(step, moments=step in (half, steps))
            note(f"step {step}: loss {loss:.4f}, {time.perf_counter() - begun:.0f} s")
    for _ in range(TINY_STEPS):
        run.step(TINY_RATE)
    run.save(TINY_STEP, moments=True)
    run.step(TINY_RATE)
    run.save(TINY_STEP + 1, moments=True)


def main(
    folder: Annotated[Path, typer.Argument(help="Where the series goes.")],
    seed: int = 0,
    steps: Annotated[int, typer.Option(min=22, help="Steps at the learning rate 2e-5.")] = 60,
) -> None:
    """Make the series ``minilm``."""
    make(folder, seed, steps)


if __name__ == "__main__":
    typer.run(main)
