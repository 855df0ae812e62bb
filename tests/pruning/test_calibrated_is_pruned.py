"""What calibration measures and what a stored checkpoint loses by it are the same tensors."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import tensorcomp
from tensorcomp.pruning import calibrate, prune

torch.set_num_threads(1)


class Conv1D(nn.Module):
    """The layer of GPT-2: its weight is inputs × outputs."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.1)

    def forward(self, x):
        return x @ self.weight


class RawAttention(nn.Module):
    """Attention of bare parameters."""

    def __init__(self, width):
        super().__init__()
        self.wq = nn.Parameter(torch.randn(width, width) * 0.1)
        self.wv = nn.Parameter(torch.randn(width, width) * 0.1)

    def forward(self, x):
        scores = torch.einsum("bti,ij,bsj->bts", x, self.wq, x) / math.sqrt(x.shape[-1])
        return scores.softmax(-1) @ (x @ self.wv)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.self_attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(8, 24), "c_proj": Conv1D(24, 8)})
        self.attention = RawAttention(8)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(8, 16), "fc2": nn.Linear(16, 8)})
        self.score = nn.Linear(8, 3)

    def forward(self, x):
        x = x + self.self_attn(x, x, x)[0]
        x = x + self.attn["c_proj"](self.attn["c_attn"](x))
        x = x + self.attention(x)
        x = x + self.mlp["fc2"](self.mlp["fc1"](x).relu())
        return self.score(x.mean(1))


BATCHES = [(torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(1)), torch.arange(4) % 3)]


@pytest.mark.parametrize(
    ("score", "statistic"), [("wanda", "input_norm"), ("snip", "snip"), ("obd", "fisher")]
)
def test_those_that_have_a_statistic_are_pruned_and_the_others_listed(tmp_path, score, statistic):
    model = Net()
    path, stats = tmp_path / "w.safetensors", tmp_path / "stats.safetensors"
    save_file(model.state_dict(), path)
    measured = calibrate(model, BATCHES, statistics=[statistic])
    measured.save(stats)
    names = set(measured.arrays[statistic])
    assert {"mlp.fc1.weight", "mlp.fc2.weight", "score.weight"} <= names
    asked = tensorcomp.Pruning(score, 0.5, stats=stats)
    result = tensorcomp.compress(path, prune=asked)
    rows = result.summary.tensors
    before, after = load_file(path), tensorcomp.load_file(result.path)
    changed = {name for name in before if not np.array_equal(before[name].numpy(), after[name])}
    assert changed <= names == {row.name for row in rows if row.pruned is not None}
    left = {row.name for row in rows if row.unpruned}
    assert left >= {"attn.c_attn.weight", "attention.wq"}
    assert not left & names
    in_memory = prune(model, score, 0.5, statistics=measured)
    assert set(in_memory.masks) == names
    assert in_memory.skipped.keys() <= left
