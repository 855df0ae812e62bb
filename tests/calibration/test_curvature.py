"""Second moments and row weights, against those of plain hooks with the same draws."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from calibrated_nets import attending, token_batches
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from unchanged import Seen

from tensorcomp.calibration.calibrate import calibrate
from tensorcomp.calibration.sampled_loss import sampled_loss, seed_of
from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import CURVATURE

torch.set_num_threads(1)


def measured(net, data, **options):
    return calibrate(net, data, statistics=CURVATURE, **options)


def of_hooks(net, data, mask=None, seed=0):
    """Return inputs and gradients of outputs of each module, by plain hooks, and the labels."""
    inputs, gradients, terms = {}, {}, 0
    net = copy.deepcopy(net).eval()
    hooks = []
    for name, module in net.named_modules():
        if hasattr(module, "weight"):

            def keep(_module, given, output, name=name):
                inputs.setdefault(name, []).append(given[0].detach().clone())
                output.register_hook(lambda g: gradients.setdefault(name, []).append(g))
                return output.clone()  # which may be changed in place

            hooks.append(module.register_forward_hook(keep))
    for number, batch in enumerate(data, 1):
        outputs = net(batch)
        loss, more = sampled_loss(outputs, mask, seed_of(seed, number))
        terms += more
        loss.backward()
    return inputs, gradients, terms


def check_rows(found, name, expected, **limits):
    np.testing.assert_allclose(found.moment(name).row_weight, expected, rtol=1e-5, **limits)


def check_linear(found, net, data, *names, **options):
    inputs, gradients, terms = of_hooks(net, data, **options)
    for name in names:
        x = torch.cat([one.flatten(0, -2) for one in inputs[name]]).double()
        g = torch.cat([one.flatten(0, -2) for one in gradients[name]]).double()
        moment = found.moment(f"{name}.weight")
        np.testing.assert_allclose(moment.matrix, (x.T @ x / len(x))[None], rtol=1e-5, atol=1e-6)
        check_rows(found, f"{name}.weight", g.square().sum(0) / terms)
        assert moment.positions == len(x)
        assert not moment.transposed


def filled(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class InPlace(nn.Module):
    """Layers whose outputs change in place, one used twice, one never, one that is frozen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 6)
        self.again = nn.Linear(6, 6)
        self.frozen = nn.Linear(6, 6, bias=False).requires_grad_(False)
        self.never = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.first(x).relu_()
        x = self.again(x).relu_() * 2
        x = self.again(x)
        return self.head(torch.tanh(self.frozen(x).mul_(3)))


def test_linear_layers_have_the_moments_of_hooks():
    net, data = InPlace().train(), [filled(5, 4, seed=seed) for seed in range(3)]
    seen = Seen(net)
    found = measured(net, data)
    seen.check(net)
    check_linear(found, net, data, "first", "again", "frozen", "head")
    assert found.unreached == ("never.weight",)
    assert found.moment("never.weight") is None
    assert (found.batches, found.samples) == (3, 15)


@pytest.mark.parametrize("reentrant", [True, False])
def test_layers_that_are_run_again_for_gradients_count_once(reentrant):
    class Checkpointed(InPlace):
        def forward(self, x):
            x = x.requires_grad_()
            return checkpoint(super().forward, x, use_reentrant=reentrant)

    data = [filled(5, 4)]
    if reentrant:
        with pytest.raises(RuntimeError, match="set use_reentrant=False"):
            measured(Checkpointed(), data)
        return
    found = measured(Checkpointed(), data)
    check_linear(found, InPlace(), data, "first", "again", "frozen", "head")


def test_sequences_and_tables():
    net, data = attending(torch.float32), token_batches()
    found = measured(net, data)
    data = [tokens for tokens, _ in data]
    check_linear(found, net, data, "query", "head")
    inputs, gradients, terms = of_hooks(net, data)
    tokens = torch.cat(inputs["table"]).flatten()
    g = torch.cat(gradients["table"]).flatten(0, -2)
    moment = found.moment("table.weight")
    np.testing.assert_allclose(moment.matrix[0], g.T @ g / len(g), rtol=1e-4, atol=1e-6)
    assert moment.positions == len(tokens) == terms
    np.testing.assert_allclose(moment.row_weight, torch.bincount(tokens, minlength=11) / terms)
    assert moment.row_weight.sum() == pytest.approx(1)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 2), ((1, 2), 2, 1)])
def test_convolutions_have_the_moments_of_unfolded_images(groups, stride, padding, dilation):
    conv = nn.Conv2d(4, 6, (3, 2), stride, padding, dilation, groups)
    net = nn.Sequential(conv, nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(3))
    data = [filled(2, 4, 8, 7, seed=seed) for seed in range(2)]
    net(data[0])
    found = measured(net, data)
    inputs, gradients, terms = of_hooks(net, data)
    patches = F.unfold(torch.cat(inputs["0"]), (3, 2), dilation, padding, stride)
    patches = patches.unflatten(1, (groups, -1)).permute(1, 0, 3, 2).flatten(1, 2)
    moment = found.moment("0.weight")
    assert moment.matrix.shape == (groups, 24 // groups, 24 // groups)
    expected = patches.mT @ patches / patches.shape[1]
    np.testing.assert_allclose(moment.matrix, expected, rtol=1e-4, atol=1e-5)
    check_rows(found, "0.weight", torch.cat(gradients["0"]).square().sum((0, 2, 3)) / terms)
    assert moment.positions == patches.shape[1]


def test_convolutions_of_one_and_of_three_axes():
    sequence = nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.Flatten(), nn.Linear(15, 2))
    volume = nn.Sequential(nn.Conv3d(2, 3, (3, 1, 1)), nn.Flatten(), nn.Linear(9, 2))
    x = filled(4, 2, 5)
    matrix = measured(sequence, [x]).moment("0.weight").matrix
    patches = F.pad(x, (1, 1)).unfold(2, 3, 1).movedim(2, 1).reshape(-1, 6)
    np.testing.assert_allclose(matrix[0], patches.T @ patches / 20, rtol=1e-5, atol=1e-6)
    matrix = measured(volume, [x[..., None, None]]).moment("0.weight").matrix
    patches = x.unfold(2, 3, 1).movedim(2, 1).reshape(-1, 6)
    np.testing.assert_allclose(matrix[0], patches.T @ patches / 12, rtol=1e-5, atol=1e-6)


class Columns(nn.Module):
    """A weight of inputs × outputs, as in GPT-2."""

    def __init__(self, layer):
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().T.contiguous())
        self.bias = nn.Parameter(layer.bias.detach().clone())

    def forward(self, x):
        x2 = x.view(-1, x.shape[-1])
        return torch.addmm(self.bias, x2, self.weight).view(*x.shape[:-1], -1)


@pytest.mark.parametrize("width", [4, 6])
def test_weights_of_inputs_by_outputs_are_the_transposes_of_linear_layers(width):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))
    turned = nn.Sequential(Columns(plain[0]), nn.Tanh(), plain[2])
    data = [filled(2, 5, 4)]
    expected, found = measured(plain, data), measured(turned, data)
    assert (found.transposed, expected.transposed) == (("0.weight",), ())
    one, other = found.moment("0.weight"), expected.moment("0.weight")
    assert one.transposed
    np.testing.assert_allclose(one.matrix, other.matrix, rtol=1e-6)
    np.testing.assert_allclose(one.row_weight, other.row_weight, rtol=1e-5)


class ByHand(nn.Module):
    """Attention of one head by three layers."""

    def __init__(self, attention):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(4, 4) for _ in range(4))
        weights, biases = attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)
        for layer, weight, bias in zip((self.q, self.k, self.v), weights, biases, strict=True):
            layer.weight.data, layer.bias.data = weight.detach().clone(), bias.detach().clone()
        self.out.load_state_dict(attention.out_proj.state_dict())

    def forward(self, batch):
        q, k, v = self.q(batch[0]), self.k(batch[1]), self.v(batch[1])
        return self.out(torch.softmax(q @ k.mT / 2, -1) @ v)


@pytest.mark.parametrize("crossed", [True, False])
def test_projections_of_attention_have_blocks_of_rows(crossed):
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.attention = nn.MultiheadAttention(4, 1, batch_first=True)

        def forward(self, batch):
            return self.attention(batch[0], batch[1], batch[1], need_weights=False)[0]

    def pairs(net, batch):
        outputs = net(batch)
        return F.cross_entropy(outputs.flatten(0, 1), torch.arange(15) % 4)

    x = filled(3, 5, 4)
    data = [(x, filled(3, 7, 4, seed=1) if crossed else x)]
    net = Attends()
    found, expected = (
        measured(net, data, loss=pairs),
        measured(ByHand(net.attention), data, loss=pairs),
    )
    moment = found.moment("attention.in_proj_weight")
    sides = [expected.moment(f"{name}.weight") for name in "qkv"]
    np.testing.assert_allclose(
        moment.row_weight, np.concatenate([side.row_weight for side in sides]), rtol=1e-4, atol=1e-9
    )
    assert len(moment.matrix) == (3 if crossed else 1)
    for matrix, side in zip(moment.matrix, sides, strict=False):
        np.testing.assert_allclose(matrix, side.matrix[0], rtol=1e-5, atol=1e-6)
    assert expected.shared["v.weight"] == ("k.weight" if crossed else "q.weight")
    assert len(expected.arrays["second_moment"]) == (3 if crossed else 2)


def test_weights_that_read_the_same_at_first_only_have_moments_of_their_own():
    class Forking(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.c = (nn.Linear(4, 3) for _ in range(3))

        def forward(self, x):
            other = x if len(x) == 5 else 2 * x
            return self.a(x) + self.b(other) * self.c(other)

    net, data = Forking(), [filled(rows, 4, seed=rows) for rows in (5, 6, 5)]
    found = measured(net, data)
    assert found.shared == {"c.weight": "b.weight"}
    check_linear(found, net, data, "a", "b", "c")


def test_inputs_that_change_in_place_between_two_layers():
    class Doubling(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            x = x.clone()
            return self.a(x) + self.b(x.mul_(2))

    found = measured(Doubling(), [filled(5, 4)])
    one, other = found.moment("a.weight").matrix, found.moment("b.weight").matrix
    np.testing.assert_allclose(4 * one, other, rtol=1e-6)


def test_layers_behind_an_operation_of_its_own_kind_are_measured():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.recurrent, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.recurrent(x)[0])

    net, data = Recurrent(), [filled(2, 6, 4)]
    check_linear(measured(net, data), net, data, "head")


class Tied(nn.Module):
    """A language model whose table is the matrix of its output layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(7, 4)
        self.layer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.layer(self.table(tokens))))


def test_tied_tables_have_the_joint_model_of_both_uses():
    tied, data = Tied(), [torch.arange(10).reshape(2, 5) % 6]
    apart = copy.deepcopy(tied)
    apart.head.weight = nn.Parameter(tied.table.weight.detach().clone())
    sides = measured(apart, data)
    inner, outer = sides.moment("table.weight"), sides.moment("head.weight")
    found = measured(tied, data)
    moment = found.moment("table.weight")
    assert found.tied == {"head.weight": "table.weight"}
    np.testing.assert_array_equal(found.moment("head.weight").matrix, moment.matrix)
    parts = [(side.row_weight, side.matrix[0]) for side in (inner, outer)]
    total = sum(rows.mean() * matrix for rows, matrix in parts)
    np.testing.assert_allclose(moment.matrix[0], total, rtol=1e-4, atol=1e-7)
    # An isotropic error costs the same in both models, row by row.
    np.testing.assert_allclose(
        moment.row_weight * np.trace(moment.matrix[0]),
        sum(rows * np.trace(matrix) for rows, matrix in parts),
        rtol=1e-4,
    )


def test_parts_of_a_weight_that_experts_read():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.up = nn.Parameter(filled(3, 6, 4) / 2)
            self.down = nn.Parameter(filled(3, 6, 2, seed=1) / 2)  # inputs × outputs

        def forward(self, x):
            routed = [F.linear(x[:2], self.up[0]), F.linear(x[2:], self.up[2])]
            return torch.cat(
                [torch.tanh(h) @ self.down[e] for e, h in zip((0, 2), routed, strict=True)]
            )

    x = filled(5, 4)
    found = measured(Experts(), [x])
    up, down = found.moment("up"), found.moment("down")
    assert up.matrix.shape == (3, 4, 4)
    for expert, rows in ((0, x[:2]), (2, x[2:])):
        np.testing.assert_allclose(up.matrix[expert], rows.T @ rows / len(rows), rtol=1e-5)
    assert not up.matrix[1].any()
    assert not up.row_weight[6:12].any()
    assert up.row_weight[:6].all()
    assert down.matrix.shape == (3, 6, 6)
    assert down.transposed
    assert down.row_weight.shape == (6,)
    assert down.row_weight.astype(bool).tolist() == [True, True, False, False, True, True]
    assert up.positions == down.positions == 2


def test_a_batch_of_matrices_is_that_of_single_products():
    weight = nn.Parameter(filled(3, 6, 4))

    class Batched(nn.Module):
        def __init__(self, *, at_once):
            super().__init__()
            self.weight, self.at_once = weight, at_once

        def forward(self, x):
            if self.at_once:
                return torch.bmm(x, self.weight.mT).sum(0)
            return sum(F.linear(x[at], self.weight[at]) for at in range(3))

    found, expected = (measured(Batched(at_once=way), [filled(3, 5, 4)]) for way in (True, False))
    for statistic in CURVATURE:
        np.testing.assert_allclose(
            found.of(statistic, "weight"), expected.of(statistic, "weight"), rtol=1e-4, atol=1e-6
        )


def test_a_weight_of_both_orders_has_no_moment():
    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(filled(3, 4))
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(F.linear(x, self.weight) @ self.weight)

    found = measured(Folded(), [filled(5, 4)])
    assert list(found.positions) == ["head.weight"]
    assert found.unreached == ()


def test_what_other_operations_read_has_no_moment():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain, self.squared, self.part = (nn.Linear(4, 4) for _ in range(3))
            self.left = nn.Parameter(filled(4, 4))
            self.up = nn.ConvTranspose1d(4, 4, 1)

        def forward(self, x):
            x = self.plain(x) + self.squared(x) * self.squared.weight.square().sum()
            x = x[:, :2] @ self.part.weight[:, :2].T + (self.left @ x.T).T
            return self.up(x[..., None])[..., 0]

    found = measured(Odd(), [filled(3, 4)])
    assert (
        list(found.arrays["second_moment"]) == ["plain.weight"] == list(found.arrays["row_weight"])
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_models_in_other_precisions_are_near(dtype):
    net, data = attending(torch.float32), token_batches()
    expected, found = measured(net, data), measured(copy.deepcopy(net).to(dtype), data)
    limit = 1e-4 if dtype == torch.float64 else 0.1
    for name in expected.arrays["row_weight"]:
        one, other = found.moment(name), expected.moment(name)
        assert one.matrix.dtype == one.row_weight.dtype == np.float32
        assert np.linalg.norm(one.matrix - other.matrix) < limit * np.linalg.norm(other.matrix)
    with torch.autocast("cpu", torch.bfloat16):
        found = measured(net, data)
        inputs = torch.cat(of_hooks(net, [tokens for tokens, _ in data])[0]["head"])
    x = inputs.bfloat16().double().flatten(0, -2)
    moment = found.moment("head.weight").matrix[0]
    np.testing.assert_allclose(moment, x.T @ x / len(x), rtol=1e-5, atol=1e-6)
    assert found.arrays["row_weight"].keys() == expected.arrays["row_weight"].keys()
    one, other = found.moment("head.weight").matrix, expected.moment("head.weight").matrix
    assert np.linalg.norm(one - other) < 0.1 * np.linalg.norm(other)


OUTPUTS = {
    "a tensor": lambda y: y,
    "an attribute": lambda y: SimpleNamespace(logits=y, loss=None),
    "a mapping": lambda y: {"hidden": 7 * y, "logits": y},
    "a mapping without the name": lambda y: {"count": torch.arange(3), "scores": y},
    "a tuple": lambda y: (torch.arange(3), y, 5 * y),
}


@pytest.mark.parametrize("form", OUTPUTS)
def test_outputs_in_any_form(form):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = InPlace()

        def forward(self, x):
            return OUTPUTS[form](self.net(x))

    found, expected = measured(Wrapped(), [filled(5, 4)]), measured(InPlace(), [filled(5, 4)])
    np.testing.assert_array_equal(
        found.of("row_weight", "net.first.weight"), expected.of("row_weight", "first.weight")
    )


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer = nn.Embedding(9, 4), nn.Linear(4, 6)

    def forward(self, input_ids, attention_mask=None):
        return SimpleNamespace(last_hidden_state=self.layer(self.table(input_ids)))


def test_padding_does_not_count_and_sentences_are_unit_vectors():
    torch.manual_seed(0)
    tokens = [torch.randint(1, 9, (length,)) for length in (3, 5, 5)]
    padded = nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    batch = {"input_ids": padded, "attention_mask": (padded > 0).long()}
    found = measured(Encoder(), [batch])
    assert found.moment("table.weight").row_weight[0] == 0
    assert found.moment("layer.weight").positions == 13
    np.testing.assert_allclose(found.moment("table.weight").row_weight.sum(), 13 / 3, rtol=1e-6)
    net = Encoder()
    x = torch.cat([net.table(one) for one in tokens]).detach()
    np.testing.assert_allclose(
        found.moment("layer.weight").matrix[0], x.T @ x / 13, rtol=1e-5, atol=1e-6
    )
    # By the chain rule: unit vectors of means, noise of the same draws.
    outputs = [net.layer(net.table(one)) for one in tokens]
    for one in outputs:
        one.retain_grad()
    unit = torch.stack([F.normalize(one.mean(0), dim=0) for one in outputs])
    draws = torch.Generator().manual_seed(seed_of(0, 1))
    noise = torch.empty(3, 6).normal_(generator=draws)
    (unit * noise).sum().backward()
    expected = torch.cat([one.grad for one in outputs]).square().sum(0) / 3
    check_rows(found, "layer.weight", expected)


def test_labels_are_drawn_from_the_prediction():
    """Of one linear layer the Fisher information of output r is p_r (1 - p_r)."""
    layer = nn.Linear(2, 3)
    found = measured(layer, [torch.ones(20_000, 2)])
    p = layer(torch.ones(2)).softmax(-1).detach()
    np.testing.assert_allclose(found.moment("weight").row_weight, p * (1 - p), rtol=0.05)
    other = measured(layer, [torch.ones(20_000, 2)], seed=1)
    assert (other.moment("weight").row_weight != found.moment("weight").row_weight).any()


def test_the_model_predicts_the_loss_of_small_errors():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 8))
    data = [filled(4000, 16) @ filled(16, 16, seed=1) / 4]
    found = measured(net, data)
    clean = net(data[0]).log_softmax(-1).detach()
    for at in (0, 2):
        moment = found.moment(f"{at}.weight")
        predicted, actual = [], []
        for seed in range(20):
            noisy = copy.deepcopy(net)
            error = filled(*net[at].weight.shape, seed=seed) * 0.02
            noisy[at].weight.data += error
            costs = ((error.numpy() @ moment.matrix[0]) * error.numpy()).sum(1)
            predicted.append((moment.row_weight * costs).sum() / 2)
            output = noisy(data[0]).log_softmax(-1)
            actual.append(F.kl_div(output, clean, reduction="batchmean", log_target=True).item())
        assert np.mean(predicted) == pytest.approx(np.mean(actual), rel=0.25)


def test_a_loss_of_ones_own_is_the_one_that_counts():
    layer, x = nn.Linear(3, 2, bias=False), filled(4, 3)
    found = measured(layer, [x], loss=lambda net, batch: net(batch).square().sum(1).mean())
    expected = (2 * layer(x)).square().mean(0).detach()
    check_rows(found, "weight", expected)


@pytest.mark.parametrize(
    ("net", "data", "options", "words"),
    [
        (nn.Linear(2, 2), [torch.tensor([[1.0, np.nan]])], {}, "input of 'weight' is not finite"),
        (nn.Linear(2, 2), [], {}, "hold no minibatch"),
        (nn.Linear(2, 2), [torch.ones(1, 2)], {"dtype": "int8"}, "one of float32, bfloat16"),
        (nn.LayerNorm(2), [torch.ones(1, 2)], {}, "no matrices"),
        (nn.Linear(2, 2), [torch.ones(1, 2)], {"loss": lambda net, x: 0.0}, "is a float"),
        (
            nn.Linear(2, 2),
            [torch.ones(1, 2)],
            {"loss": lambda net, x: net(x).sum().detach()},
            "depends on no matrix",
        ),
    ],
)
def test_refusals(net, data, options, words):
    with pytest.raises(PruningError, match=words):
        measured(net, data, **options)


def test_other_statistics_are_measured_apart():
    with pytest.raises(PruningError, match="by a run of their own"):
        calibrate(nn.Linear(2, 2), [], statistics=("snip", "second_moment"))
    found = calibrate(nn.Linear(2, 2), [torch.ones(1, 2)], statistics="second_moment")
    assert list(found.arrays) == ["second_moment"]
