"""Small networks and minibatches to calibrate on."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

W1 = np.array([[1.0, 2.0], [3.0, -1.0]])
W2 = np.array([[2.0, -1.0]])


def two_layers(dtype=torch.float64):
    """Return y = W2 relu(W1 x)."""
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    net[0].weight.data = torch.tensor(W1, dtype=dtype)
    net[2].weight.data = torch.tensor(W2, dtype=dtype)
    return net


def half_square(model, batch):
    x, t = batch
    return 0.5 * (model(x) - t).square().sum()


def two_batches(dtype=torch.float64):
    pairs = [((1, 1), 1), ((1, -1), -6)]
    return [(torch.tensor([x], dtype=dtype), torch.tensor([[t]], dtype=dtype)) for x, t in pairs]


class Attending(nn.Module):
    """Attention of torch's own kind and by hand, an embedding, norms: twice differentiable."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.query = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, tokens):
        x = self.table(tokens)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        query = self.query(self.norm(x))
        x = x + F.scaled_dot_product_attention(query, x, x, is_causal=True)
        return self.head(torch.tanh(x))


def attending(dtype=torch.float64):
    torch.manual_seed(0)
    return Attending().to(dtype)


def token_batches(count=3):
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randint(11, (2, 6), generator=generator),
            torch.randint(5, (2, 6), generator=generator),
        )
        for _ in range(count)
    ]


class Output(SimpleNamespace):
    """Like the outputs of Hugging Face's models."""


class WithOwnLoss(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return Output(logits=logits, loss=loss)
