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
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.score = nn.Linear(8, 3)

    def forward(self, x):
        x = x + self.self_attn(x, x, x)[0]
        x = x + self.attn["c_proj"](self.attn["c_attn"](x))
        x = x + self.attention(x)
        x = x + self.mlp["fc2"](self.mlp["fc1"](x).relu())
        return self.score(self.rnn(x)[0].mean(1))


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
    own = {name for name in dict(model.named_parameters()) if "bias" not in name}
    recurrent = {name for name in own if name.startswith("rnn.")}
    assert names == own - recurrent
    asked = tensorcomp.Pruning(score, 0.5, stats=stats)
    result = tensorcomp.compress(path, prune=asked)
    rows = result.summary.tensors
    before, after = load_file(path), tensorcomp.load_file(result.path)
    changed = {name for name in before if not np.array_equal(before[name].numpy(), after[name])}
    assert changed <= names == {row.name for row in rows if row.pruned is not None}
    left = {row.name for row in rows if row.unpruned}
    assert left >= recurrent
    assert not left & names
    in_memory = prune(model, score, 0.5, statistics=measured)
    assert set(in_memory.masks) == names
    assert in_memory.skipped.keys() <= left


def test_weights_of_inputs_by_outputs_are_pruned_like_those_of_a_linear_layer(tmp_path):
    linear, inputs = nn.Linear(8, 24, bias=False), torch.randn(64, 8) * torch.arange(1.0, 9.0)
    square, other = nn.Linear(24, 24, bias=False), Conv1D(24, 24)
    conv1d = Conv1D(8, 24)
    conv1d.weight.data, other.weight.data = linear.weight.data.T, square.weight.data.T.clone()
    masks = []
    for net in (nn.Sequential(linear, square), nn.Sequential(conv1d, other)):
        measured = calibrate(net, [inputs], statistics=["input_norm"])
        masks.append(prune(net, "wanda", 0.5, statistics=measured).masks)
        save_file(
            {k: v.contiguous() for k, v in net.state_dict().items()}, tmp_path / "w.safetensors"
        )
        measured.save(tmp_path / "stats.safetensors", force=True)
        asked = tensorcomp.Pruning("wanda", 0.5, stats=tmp_path / "stats.safetensors")
        result = tensorcomp.compress(tmp_path / "w.safetensors", prune=asked, force=True)
        for name, stored in tensorcomp.load_file(result.path).items():
            np.testing.assert_array_equal(stored != 0, masks[-1][name])
    for name, mask in masks[0].items():
        assert (mask.sum(1) == mask.shape[1] // 2).all()
        np.testing.assert_array_equal(mask.T, masks[1][name])
