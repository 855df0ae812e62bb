"""Which parameters pruning is about, by default and by `where`, and what it refuses."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from tensorcomp.calibration.targets import prunable_parameters, unwrapped
from tensorcomp.errors import PruningError


class Net(nn.Module):
    """One of each kind of layer, and a head that is tied to the embedding."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.attention = nn.MultiheadAttention(4, 2, add_bias_kv=True)
        self.other_attention = nn.MultiheadAttention(4, 2, kdim=3, vdim=5)
        self.norm = nn.LayerNorm(4)
        self.convolution = nn.Conv2d(1, 2, 3)
        self.batch_norm = nn.BatchNorm2d(2)
        self.back = nn.ConvTranspose1d(2, 1, 3)
        self.pair = nn.Bilinear(2, 3, 4)
        self.recurrent = nn.LSTM(4, 2)
        self.linear = nn.Linear(4, 4)
        self.same_linear = nn.Linear(4, 4, bias=False)
        self.same_linear.weight = self.linear.weight
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight
        self.scale = nn.Parameter(torch.ones(3, 3))


USUAL = [
    "attention.in_proj_weight",
    "attention.out_proj.weight",
    "back.weight",
    "convolution.weight",
    "linear.weight",
    "other_attention.k_proj_weight",
    "other_attention.out_proj.weight",
    "other_attention.q_proj_weight",
    "other_attention.v_proj_weight",
    "pair.weight",
]


def test_weights_of_layers_sorted_and_tied_ones_once():
    net = Net()
    found = prunable_parameters(net)
    assert list(found) == USUAL
    assert found["linear.weight"] is net.linear.weight
    assert all(found[name] is dict(net.named_parameters())[name] for name in found)


def test_frozen_weights_are_left_out():
    net = Net()
    net.convolution.requires_grad_(False)
    assert list(prunable_parameters(net)) == [name for name in USUAL if "convolution" not in name]


def test_a_pattern_takes_any_matrix_but_vectors_only_by_name():
    net = Net()
    net.linear.requires_grad_(False)
    assert list(prunable_parameters(net, "linear.*")) == ["linear.weight"]
    assert list(prunable_parameters(net, "linear.bias")) == ["linear.bias"]
    assert list(prunable_parameters(net, ["scale", "recurrent.*"])) == [
        "recurrent.weight_hh_l0",
        "recurrent.weight_ih_l0",
        "scale",
    ]


def test_a_tied_weight_answers_to_all_its_names():
    net = Net()
    assert list(prunable_parameters(net, "head.weight")) == ["table.weight"]
    assert list(prunable_parameters(net, ["table.*", "head.*"])) == ["table.weight"]


def test_a_function_takes_what_it_wants():
    net = Net()
    found = prunable_parameters(net, lambda name, weight: name.startswith("norm") and len(weight))
    assert list(found) == ["norm.bias", "norm.weight"]


def wrapped_parallel(net):
    return nn.DataParallel(net)


def wrapped_twice(net):
    return nn.DataParallel(nn.DataParallel(net))


def wrapped_compiled(net):
    return torch.compile(net, backend="eager")


@pytest.mark.parametrize("wrap", [wrapped_parallel, wrapped_twice, wrapped_compiled])
def test_names_are_those_without_wrappers(wrap):
    net = nn.Sequential(nn.Linear(2, 2))
    wrapped = wrap(net)
    assert unwrapped(wrapped) is net
    assert list(prunable_parameters(wrapped)) == ["0.weight"]
    assert list(prunable_parameters(wrapped, "0.*")) == ["0.weight"]


def test_distributed_wrapper(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        wrapped = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        assert list(prunable_parameters(wrapped)) == ["weight"]
    finally:
        torch.distributed.destroy_process_group()


def frozen():
    return nn.Linear(2, 2).requires_grad_(False)


def sparse():
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(torch.eye(2).to_sparse())
    return layer


def expanded():
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(torch.ones(2, 1).expand(2, 2))
    return layer


@pytest.mark.parametrize(
    ("make", "where", "words"),
    [
        (nn.ReLU, None, "ReLU, has no parameters"),
        (lambda: nn.LayerNorm(3), None, "no linear layer.*'bias', 'weight'|'weight', 'bias'"),
        (frozen, None, "no trainable weights: requires_grad is false"),
        (lambda: nn.Linear(2, 2), "layers.*", "'layers.\\*' matches none.*'weight', 'bias'"),
        (lambda: nn.Linear(2, 2), ["weight", "wieght"], "'wieght' matches none"),
        (lambda: nn.Linear(2, 2), "b*", "matches only vectors: 'bias'"),
        (lambda: nn.Linear(2, 2), lambda name, weight: False, "true for none"),
        (lambda: nn.Linear(2, 2), [], "where to be a pattern"),
        (lambda: nn.Linear(2, 2), [3], "where to be a pattern"),
        (lambda: nn.Linear(2, 2, device="meta"), None, "'weight' is on the meta device"),
        (lambda: nn.Linear(2, 2), 3, "where to be a pattern"),
        (lambda: nn.LazyLinear(2), None, "'weight' is of a lazy layer"),
        (lambda: nn.LazyLinear(2), "*", "'bias' is of a lazy layer"),
        (expanded, None, "'weight' is expanded"),
        (sparse, None, "'weight' is a torch.sparse_coo"),
        (lambda: nn.Linear(2, 2, dtype=torch.complex64), None, "is of torch.complex64"),
    ],
)
def test_refusals_are_one_line(make, where, words):
    with pytest.raises(PruningError, match=words) as caught:
        prunable_parameters(make(), where)
    assert "\n" not in str(caught.value)


def test_integers_are_refused_where_they_are_named():
    net = nn.Linear(2, 2)
    net.codes = nn.Parameter(torch.zeros(2, 2, dtype=torch.int8), requires_grad=False)
    assert list(prunable_parameters(net)) == ["weight"]
    with pytest.raises(PruningError, match=r"'codes' is of torch\.int8"):
        prunable_parameters(net, "codes")


def pruned(layer):
    return prune.l1_unstructured(layer, "weight", amount=1)


@pytest.mark.parametrize("rebuild", [pruned, parametrizations.weight_norm])
def test_a_weight_that_is_computed_is_no_silent_omission(rebuild):
    net = nn.Sequential(nn.Linear(2, 2), rebuild(nn.Linear(2, 2)))
    with pytest.raises(PruningError, match="layer '1' computes its weight from"):
        prunable_parameters(net)
    assert list(prunable_parameters(net, "0.weight")) == ["0.weight"]


def test_selectors_of_roles_and_of_all_but_some():
    net = Net()
    out = ["!attention*", "!conv", "!*pair*"]
    assert list(prunable_parameters(net, out)) == [
        name for name in USUAL if not name.startswith(("attention", "conv", "pair", "back"))
    ]
    assert "norm.weight" not in prunable_parameters(net, ["*", "!table*"])
    assert list(prunable_parameters(net, ["conv*", "back*", "!back*"])) == ["convolution.weight"]
    assert set(prunable_parameters(net, "attention")) > {"attention.in_proj_weight"}
    with pytest.raises(PruningError, match="where='haed' matches none"):
        prunable_parameters(net, "!haed")
    with pytest.raises(PruningError, match="leaves none of the parameters"):
        prunable_parameters(net, ["conv*", "!conv*"])


def test_codebooks_are_not_taken():
    net = nn.ModuleDict({"quantizer": nn.Embedding(8, 4), "fc": nn.Linear(4, 4)})
    assert list(prunable_parameters(net, "*")) == ["fc.weight", "quantizer.weight"]
    net = nn.ModuleDict({"codebook": nn.Embedding(8, 4), "fc": nn.Linear(4, 4)})
    assert list(prunable_parameters(net, "*")) == ["fc.weight"]
