"""Weights that lie on a path, against paths found by hand and by matrices of reachability."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from unchanged import Seen

from tensorcomp.errors import PruningError
from tensorcomp.pruning.connectivity import effective_masks
from tensorcomp.pruning.targets import prunable_parameters

torch.set_num_threads(1)


def everything(net, where=None):
    return {
        name: np.ones(tuple(weight.shape), bool)
        for name, weight in prunable_parameters(net, where).items()
    }


def dead(net, masks, example):
    """Return the places that are kept but on no path; the model must be as it was."""
    seen = Seen(net)
    found = effective_masks(net, masks, example)
    seen.check(net)
    assert list(found) == list(masks)
    for name, mask in masks.items():
        assert found[name].dtype == np.bool_
        assert not (found[name] & ~mask).any()
    places = {name: np.argwhere(masks[name] & ~found[name]).tolist() for name in masks}
    return {name: where for name, where in places.items() if where}


def test_a_chain_with_a_cut_row_and_a_cut_column():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 2))
    masks = everything(net)
    assert dead(net, masks, torch.zeros(4, 2)) == {}
    masks["0.weight"][1] = False  # nothing comes in to the second unit, its bias aside
    masks["4.weight"][:, 0] = False  # nothing leaves the first unit of the next layer
    # Column 1 of the layer between reads nothing, row 0 is read by nothing.
    assert dead(net, masks, torch.zeros(4, 2)) == {"2.weight": [[0, 0], [0, 1], [0, 2], [1, 1]]}
    masks["4.weight"][:] = False
    cut = dead(net, masks, torch.zeros(4, 2))
    assert cut == {name: np.argwhere(masks[name]).tolist() for name in ("0.weight", "2.weight")}


def reachability(masks):
    """Return the effective masks of a chain of matrices, by products of matrices."""
    forward = [np.ones(masks[0].shape[1], bool)]
    for mask in masks:
        forward.append(mask @ forward[-1])
    back = [np.ones(masks[-1].shape[0], bool)]
    for mask in reversed(masks):
        back.append(mask.T @ back[-1])
    back.reverse()
    return [mask & np.outer(back[number + 1], forward[number]) for number, mask in enumerate(masks)]


@given(st.data())
def test_random_chains_against_matrices(data):
    widths = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=5))
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    masks = [data.draw(hnp.arrays(bool, tuple(layer.weight.shape))) for layer in layers]
    net = nn.Sequential(*[each for layer in layers for each in (layer, nn.GELU())])
    names = [f"{2 * number}.weight" for number in range(len(layers))]
    found = effective_masks(net, dict(zip(names, masks, strict=True)), torch.ones(1, widths[0]))
    for name, expected in zip(names, reachability(masks), strict=True):
        np.testing.assert_array_equal(found[name], expected)


def test_a_convolutional_network_with_batch_normalisation_and_pooling():
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 2, 3, padding=1),
        nn.GroupNorm(1, 2),
        nn.SiLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(2, 4),
    )
    net[1].running_mean.fill_(9)
    net[1].bias.data.fill_(-3)
    masks = everything(net)
    assert dead(net, masks, torch.zeros(2, 1, 4, 4)) == {}
    masks["0.weight"][2] = False
    masks["4.weight"][1, :2] = False  # the second filter reads the dead channel alone
    found = dead(net, masks, torch.zeros(2, 1, 4, 4))
    taps = [[y, x] for y in range(3) for x in range(3)]
    assert found == {
        "4.weight": [[filter_, 2, *tap] for filter_ in range(2) for tap in taps],
        "9.weight": [[row, 1] for row in range(4)],
    }
    masks = everything(net)
    masks["9.weight"][:, 0] = False
    found = dead(net, masks, torch.zeros(2, 1, 4, 4))
    assert found == {"4.weight": [[0, channel, *tap] for channel in range(3) for tap in taps]}


def test_taps_that_only_ever_read_padding():
    net = nn.Sequential(nn.Conv1d(1, 1, 3, padding=1), nn.MaxPool1d(2), nn.Flatten())
    assert dead(net, everything(net), torch.ones(1, 1, 2)) == {}  # one each at one of two places
    net = nn.Sequential(nn.Conv1d(1, 1, 3, padding=1), nn.Flatten())
    assert dead(net, everything(net), torch.ones(1, 1, 1)) == {"0.weight": [[0, 0, 0], [0, 0, 2]]}


class Residual(nn.Module):
    def __init__(self, *, adds):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.branch = nn.Linear(3, 3)
        self.last = nn.Linear(3, 1)
        self.adds = adds

    def forward(self, x):
        x = self.first(x)
        branch = F.relu(self.branch(x))
        return self.last(x + branch if self.adds else branch)


@pytest.mark.parametrize("adds", [True, False])
def test_a_residual_connection_is_a_path_of_its_own(adds):
    net = Residual(adds=adds)
    masks = everything(net)
    masks["branch.weight"][1] = False
    masks["branch.weight"][:, 2] = False
    # By the residual, unit 1 and unit 2 of the first layer reach the output; without it, unit 2
    # of the first layer leads nowhere and unit 1 of the branch gets nothing.
    expected = {} if adds else {"first.weight": [[2, 0], [2, 1], [2, 2]], "last.weight": [[0, 1]]}
    assert dead(net, masks, torch.ones(1, 3)) == expected


class Block(nn.Module):
    """Layer normalisation, attention by hand or torch's, a gated feed-forward layer."""

    def __init__(self, kind):
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.norm = nn.LayerNorm(4)
        if kind == "torch":
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))
        self.gate, self.up = nn.Linear(4, 6), nn.Linear(4, 6)
        self.down = nn.Linear(6, 4)
        self.kind = kind

    def forward(self, tokens):
        x = self.table(tokens)
        y = self.norm(x)
        q, k, v = self.query(y), self.key(y), self.value(y)
        if self.kind == "torch":
            y = self.attention(q, k, v, need_weights=False)[0]
        elif self.kind == "fused":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            ahead = torch.ones(len(q[0]), len(q[0]), dtype=torch.bool).triu(1)
            scores = (q @ k.transpose(-2, -1)).masked_fill(ahead, -torch.inf)
            y = F.softmax(scores, dim=-1) @ v
        x = self.norm(x + y)
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize("kind", ["torch", "fused", "by hand"])
def test_paths_of_a_transformer(kind):
    net, tokens = Block(kind), torch.tensor([[3, 5, 3, 1]])
    masks = everything(net, "*")
    assert dead(net, masks, tokens) == {}
    masks["gate.weight"][2] = False  # a closed gate, since the layers' biases do not count
    masks["down.weight"][:, 4] = False
    rows = {row: [[row, column] for column in range(4)] for row in (2, 4)}
    expected = {
        "gate.weight": rows[4],
        "up.weight": rows[2] + rows[4],
        "down.weight": [[row, 2] for row in range(4)],
    }
    assert dead(net, masks, tokens) == expected
    if kind != "torch":
        masks["query.weight"][3] = False  # what it would be multiplied with is the key's
        expected["key.weight"] = [[3, column] for column in range(4)]
        assert dead(net, masks, tokens) == expected


class Recomputing(nn.Sequential):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


def test_layers_that_run_again_for_the_gradient():
    net = Recomputing(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    seen = Seen(net)
    with pytest.raises(PruningError, match="run again for the gradient; turn their ch") as caught:
        effective_masks(net, everything(net), torch.zeros(1, 3))
    assert "\n" not in str(caught.value)
    seen.check(net)


def test_no_masks_have_no_paths():
    assert effective_masks(nn.Linear(2, 2), {}, torch.zeros(1, 2)) == {}


def test_within_inference_mode():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    masks = everything(net)
    masks["0.weight"][1] = False
    expected = dead(net, masks, torch.zeros(1, 3))
    assert list(expected) == ["2.weight"]
    with torch.inference_mode():
        assert dead(net, masks, torch.zeros(1, 3)) == expected


def test_rows_of_values_and_columns_of_the_output_of_attention():
    net = nn.Sequential(nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 2, 6, batch_first=True))
    masks = everything(net)
    assert dead(net, masks, torch.ones(2, 3, 4)) == {}
    masks["1.self_attn.in_proj_weight"][8 + 1] = False  # the second value
    masks["1.linear1.weight"][5] = False
    assert dead(net, masks, torch.ones(2, 3, 4)) == {
        "1.self_attn.out_proj.weight": [[row, 1] for row in range(4)],
        "1.linear2.weight": [[row, 5] for row in range(4)],
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_thin_path_through_a_very_deep_network(dtype):
    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(300)]).to(dtype)
    masks = [np.ones((8, 8), bool) for _ in range(300)]
    for mask in masks[5:200]:
        mask[:] = False
        mask[3, 3] = True
    names = [f"{number}.weight" for number in range(300)]
    found = effective_masks(net, dict(zip(names, masks, strict=True)), torch.ones(1, 8))
    for name, expected in zip(names, reachability(masks), strict=True):
        assert expected.any()
        np.testing.assert_array_equal(found[name], expected)


def test_relu_instead_is_cut_where_a_sigmoid_passes_a_constant_on():
    """A unit without inputs gives ½ by a sigmoid: what reads it does something."""
    masks = {"0.weight": np.array([[True], [False]]), "2.weight": np.ones((1, 2), bool)}
    for activation, expected in ((nn.Sigmoid(), {}), (nn.ReLU(), {"2.weight": [[0, 1]]})):
        net = nn.Sequential(nn.Linear(1, 2), activation, nn.Linear(2, 1))
        assert dead(net, masks, torch.ones(1, 1)) == expected


def test_an_unused_weight_is_on_no_path_and_tied_ones_share_theirs():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    net.unused = None
    wrapped = Last(net)
    masks = {"net.1.weight": np.ones((2, 2), bool), "spare.weight": np.ones((1, 2), bool)}
    found = effective_masks(wrapped, masks, torch.ones(1, 2))
    assert found["net.1.weight"].all()
    assert not found["spare.weight"].any()


class Last(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.spare = nn.Linear(2, 1)

    def forward(self, x):
        return self.net(x)


class Dividing(nn.Linear):
    def forward(self, x):
        nothing = (x - 1).sum()
        return super().forward(x) * nothing / nothing


@pytest.mark.parametrize(
    ("net", "masks", "words"),
    [
        (nn.Linear(2, 2), {"weigth": np.ones((2, 2), bool)}, "a mask is for 'weigth'"),
        (nn.Linear(2, 2), {"weight": np.ones((2, 2))}, "is float64"),
        (Dividing(2, 2), {"weight": np.ones((2, 2), bool)}, "cannot be followed"),
    ],
)
def test_refusals(net, masks, words):
    seen = Seen(net)
    with pytest.raises(PruningError, match=words):
        effective_masks(net, masks, torch.ones(1, 2))
    seen.check(net)
