"""Models and tensors pruned to an error, a file size and a validation loss."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from tensorcomp import save
from tensorcomp.errors import PruningError
from tensorcomp.metrics.distortion import measure
from tensorcomp.pruning.budgets import prune_to_error, prune_to_size
from tensorcomp.pruning.search import prune_to_loss
from tensorcomp.selection.adaptive import AdaptiveSelection
from tensorcomp.selection.scores.weights_alone import Magnitude
from tensorcomp.selection.streaming_scores import StreamingScores

torch.set_num_threads(1)


def rel_l2(weights, mask):
    return measure(weights, np.where(mask, weights, weights.dtype.type(0))).rel_l2


def test_error_by_hand():
    # Squares 1, 1, 4, 9, 9 of 24: two ones give sqrt(2/24) = 0.289, with the two sqrt(6/24) = 0.5.
    weights = {"linear.weight": np.array([[3, -1, 2, 1, -3]], np.float32)}
    for limit, pruned in [(0, 0), (0.2, 0), (0.21, 1), (0.288, 1), (0.289, 2), (0.5, 3), (0.8, 4)]:
        result = prune_to_error(weights, limit, floor=0)
        assert result.pruned == {"linear.weight": pruned}, limit
    result = prune_to_error(weights, 0.5)
    assert result.masks["linear.weight"].tolist() == [[True, False, False, False, True]]
    assert prune_to_error(weights, 1, floor=0).sparsity == 1
    assert prune_to_error(weights, 1, floor=0.4).pruned == {"linear.weight": 3}
    zeros = {"linear.weight": np.array([[0, 1, -0.0, 2]], np.float32)}
    assert prune_to_error(zeros, 0).masks["linear.weight"].tolist() == [[False, True, False, True]]


def test_error_of_slices():
    # Filters of norm² 1, 16, 4, 4 (sum 25): the first and third give sqrt(5/25).
    weights = np.zeros((4, 2, 1), np.float32)
    weights[:, 0, 0] = [1, 4, 2, -2]
    for limit, kept in [
        (0.19, [1, 1, 1, 1]),
        (0.21, [0, 1, 1, 1]),
        (0.45, [0, 1, 0, 1]),
        (0.61, [0, 1, 0, 0]),
    ]:
        result = prune_to_error({"conv.weight": weights}, limit, granularity="filter", where="all")
        assert result.masks["conv.weight"].all(axis=(1, 2)).tolist() == [bool(k) for k in kept]
    assert prune_to_error(
        {"conv.weight": weights}, 1, granularity="filter", where="all"
    ).pruned == {"conv.weight": 6}


def layers(seed=0):
    random = np.random.default_rng(seed)
    tensors = {
        f"layers.{i}.linear.weight": (random.standard_normal((64, 96)) * scale).astype(np.float32)
        for i, scale in enumerate([0.1, 1, 5])
    }
    tensors["layers.0.linear.bias"] = random.standard_normal(96).astype(np.float32)
    return tensors


def pruned_copy(tensors, result):
    return {
        name: np.where(result.masks[name], array, np.float32(0)) if name in result.masks else array
        for name, array in tensors.items()
    }


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2, 0.06])
def test_size_is_kept_and_used(share):
    tensors = layers()
    before = {name: array.copy() for name, array in tensors.items()}
    limit = int(share * len(save(tensors)))
    result = prune_to_size(tensors, limit)
    assert list(result.masks) == [f"layers.{i}.linear.weight" for i in range(3)]
    assert 0.99 * limit <= len(save(pruned_copy(tensors, result))) <= limit
    # As much is lost of each, by one common error.
    errors = [rel_l2(tensors[name], mask) for name, mask in result.masks.items()]
    assert max(errors) - min(errors) < 0.01
    for name, array in tensors.items():
        assert np.array_equal(array, before[name])
    assert result.sparsity > 0


def test_size_that_needs_nothing_or_cannot_be_reached():
    tensors = layers()
    assert prune_to_size(tensors, 10**9).sparsity == 0
    with pytest.raises(PruningError, match="a size of 100 bytes cannot be reached: pruned as far"):
        prune_to_size(tensors, 100)
    sizes = []

    def file_size(selection):
        sizes.append(1000 - 900 * selection.sparsity)
        return int(sizes[-1])

    scores = StreamingScores({"w": tensors["layers.1.linear.weight"]}, Magnitude())
    selection = AdaptiveSelection(scores, floor=0).within_size(500, file_size)
    assert 0.995 * 500 <= int(1000 - 900 * selection.sparsity) <= 500
    assert len(sizes) <= 18


def test_size_of_equal_and_of_other_tensors():
    tensors = layers()
    tensors["copy.linear.weight"] = tensors["layers.1.linear.weight"]
    limit = len(save(tensors)) // 2
    result = prune_to_size(tensors, limit, where="linear", score="random(3)")
    assert np.array_equal(
        result.masks["copy.linear.weight"], result.masks["layers.1.linear.weight"]
    )
    assert len(save(pruned_copy(tensors, result))) <= limit
    chosen = prune_to_size(tensors, limit, where="layers.[02].*.weight")
    assert list(chosen.masks) == ["layers.0.linear.weight", "layers.2.linear.weight"]


def test_stored_tensors_need_no_torch():
    program = (
        "import sys, numpy as np\n"
        "from tensorcomp.pruning.budgets import prune_to_error, prune_to_size\n"
        "w = {'linear.weight': np.sin(np.arange(400, dtype=np.float32)).reshape(20, 20)}\n"
        "assert prune_to_error(w, 0.1).sparsity > 0\n"
        "assert prune_to_size(w, 624).sparsity > 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.second = nn.Linear(16, 16)
        self.tied = nn.Linear(16, 16)
        self.tied.weight = self.second.weight

    def forward(self, x):
        return self.tied(torch.relu(self.second(torch.relu(self.norm(self.first(x))))))


def as_bytes(model):
    return {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


def test_models_by_error_and_size():
    model = Net()
    before = as_bytes(model)
    result = prune_to_error(model, 0.1)
    assert list(result.masks) == ["first.weight", "second.weight"]
    for name, mask in result.masks.items():
        assert rel_l2(model.get_parameter(name).detach().numpy(), mask) <= 0.1
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    limit = int(0.75 * len(save(state)))
    result = prune_to_size(model, limit)
    assert as_bytes(model) == before
    result.apply_(model)
    assert 0.98 * limit < len(save(model.state_dict())) <= limit


X = torch.randn(50, 8, generator=torch.Generator().manual_seed(1))


class Evaluate:
    """The squared distance to what the dense model gave; draws numbers and upsets the model."""

    def __init__(self, model):
        with torch.no_grad():
            self.target = model.eval()(X)
            model.train()
        self.calls = []

    def __call__(self, model):
        assert model.training
        noise = float(torch.rand(()))
        model(X + 1)  # changes the norm's statistics
        model.eval()
        with torch.no_grad():
            loss = nn.functional.mse_loss(model(X), self.target)
        self.calls.append(noise)
        return loss + 1e-9 * noise


@pytest.mark.parametrize("sensitivity", ["loss", "rel_l2"])
def test_loss_is_kept_and_used(sensitivity):
    model = Net()
    before = as_bytes(model)
    evaluate = Evaluate(model)
    dense = evaluate(model.train())
    model.load_state_dict(Net().state_dict())
    model.train()
    spread = float(evaluate.target.var())
    calls, found = [], []
    for limit in (0.02 * spread, 0.2 * spread):
        evaluate.calls.clear()
        generator = torch.get_rng_state()
        result = prune_to_loss(model, evaluate, limit + float(dense), sensitivity=sensitivity)
        calls.append(len(evaluate.calls))
        assert len(set(evaluate.calls)) == 1  # the same random numbers each time
        assert as_bytes(model) == before
        assert model.training
        assert torch.equal(generator, torch.get_rng_state())
        pruned = Net()
        result.apply_(pruned)
        loss = float(evaluate(pruned.train()))
        assert loss <= limit + float(dense)
        found.append((result.sparsity, loss / limit))
    assert 0 < found[0][0] < found[1][0] < 1
    assert all(used > 0.7 for _, used in found)
    assert max(calls) <= (2 * 9 + 23 if sensitivity == "loss" else 23)


def test_loss_takes_most_where_it_hurts_least():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    torch.manual_seed(0)
    nn.init.normal_(model[0].weight)
    with torch.no_grad():
        model[1].weight.copy_(torch.eye(8) + 0.001 * torch.randn(8, 8))
    target = model(X).detach()

    def evaluate(net):
        with torch.no_grad():
            return float(nn.functional.mse_loss(net(X), target))

    result = prune_to_loss(model, evaluate, 0.01)
    assert result.pruned["1.weight"] >= 50  # nearly all but the diagonal
    assert result.pruned["0.weight"] < 20
    # All may go where all is allowed, but for the floor.
    free = prune_to_loss(model, evaluate, math.inf, floor=0.25)
    assert free.pruned == {"0.weight": 48, "1.weight": 48}
    exact = prune_to_loss(model, lambda net: evaluate(net), 0.0)
    assert exact.sparsity == 0


def test_a_loss_that_still_has_a_gradient():
    model = Net()
    result = prune_to_loss(model, lambda net: sum(w.square().sum() for w in net.parameters()), 1e9)
    assert result.sparsity > 0.5


def test_a_loss_that_grows_only_when_tensors_are_pruned_together():
    """Alone, each may go; together they may not: then a part of each goes."""
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))

    def evaluate(net):
        empty = [float((layer.weight == 0).float().mean()) for layer in net]
        return max(0.0, sum(empty) - 1)

    result = prune_to_loss(model, evaluate, 0.0, floor=0)
    assert 0.45 <= result.sparsity <= 0.5
    assert result.pruned["0.weight"] == result.pruned["1.weight"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: prune_to_error(m, -0.1),
            "expected the rel-L2 of pruning to be a number from 0 to 1, got -0.1",
        ),
        (
            lambda m: prune_to_error(m, None),
            "expected the rel-L2 of pruning to be a number from 0 to 1, got None",
        ),
        (lambda m: prune_to_loss(m, lambda _: 1, None), "expected max_loss to be a number, got"),
        (
            lambda m: prune_to_error(m, math.nan),
            "expected the rel-L2 of pruning to be a number from 0 to 1",
        ),
        (lambda m: prune_to_error(m, 0.1, where="third"), "matches none"),
        (lambda m: prune_to_error(m, 0.1, granularity="nm(2, 4)"), "nothing to adapt"),
        (lambda m: prune_to_error(m, 0.1, score="snip"), "needs the statistic 'snip'"),
        (lambda m: prune_to_error({"linear.bias": np.ones(4)}, 0.1), "no matrix or kernel"),
        (
            lambda m: prune_to_size(m, 0),
            "expected the target size in bytes to be an integer of at least 1, got 0",
        ),
        (lambda m: prune_to_size(m, 1e4), "in bytes to be an integer of at least 1, got 10000.0"),
        (lambda m: prune_to_loss(m, lambda _: 1, 0.5), "loss is 1, not at most 0.5"),
        (lambda m: prune_to_loss(m, lambda _: math.nan, 0.5), "loss is NaN or infinite"),
        (lambda m: prune_to_loss(m, lambda _: None, 0.5), "must return the loss as a number; got"),
        (
            lambda m: prune_to_loss(m, lambda _: 0, 0.5, sensitivity="time"),
            "expected sensitivity to be one of loss, rel_l2",
        ),
        (lambda m: prune_to_loss(m, lambda _: 0, 0.5, grid=[0.9, 0.1]), "increasing sparsities"),
        (
            lambda m: prune_to_loss(m, lambda _: 0, 0.5, evaluations=0),
            "expected evaluations to be an integer",
        ),
    ],
)
def test_bad_arguments(call, message):
    model = Net()
    before = as_bytes(model)
    with pytest.raises(PruningError) as error:
        call(model)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert as_bytes(model) == before


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_broken_weights(value):
    weights = np.ones((4, 4), np.float32)
    weights[1, 1] = value
    for call in (prune_to_error, prune_to_size):
        with pytest.raises(PruningError, match=r"'linear.weight' holds NaN, infinity"):
            call({"linear.weight": weights}, 1)


def test_an_evaluation_that_fails_leaves_the_model():
    model = Net()
    before = as_bytes(model)
    calls = []

    def evaluate(net):
        calls.append(net)
        if len(calls) > 3:
            raise OSError("the disk is gone")
        return 0.0

    with pytest.raises(OSError, match="the disk is gone"):
        prune_to_loss(model, evaluate, 1.0)
    assert as_bytes(model) == before
