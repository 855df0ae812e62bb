"""What calibration measures, against numbers computed by hand and matrices."""

import copy
import itertools

import numpy as np
import pytest
import torch
from calibrated_nets import (
    W1,
    W2,
    WithOwnLoss,
    attending,
    half_square,
    token_batches,
    two_batches,
    two_layers,
)
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from unchanged import Seen

from tensorcomp.calibration.calibrate import CALIBRATED, calibrate
from tensorcomp.errors import PruningError
from tensorcomp.planning.statistics import Statistics
from tensorcomp.pruning.mask_hooks import hold

torch.set_num_threads(1)

# x = (1, 1), t = 1: W1 x = (3, 2), both on; y = 6 - 2 = 4; y - t = 3;
#   dL/dW2 = 3 (3, 2) = (9, 6); dL/dW1 = 3 (2, -1)' (1, 1) = (6, 6), (-3, -3)
# x = (1, -1), t = -6: W1 x = (-1, 4), the first is off; y = -4; y - t = 2;
#   dL/dW2 = 2 (0, 4) = (0, 8); dL/dW1 = (0, 0), 2 (-1) (1, -1) = (-2, 2)
BY_HAND = {
    "gradient": ([[3, 3], [2.5, 2.5]], [[4.5, 7]]),
    "taylor": ([[3, 6], [7.5, 2.5]], [[9, 7]]),
    "snip": ([[3, 6], [7.5, 0.5]], [[9, 7]]),
    "fisher": ([[18, 18], [6.5, 6.5]], [[40.5, 50]]),
    "input_norm": ([2**0.5, 2**0.5], [3, 20**0.5]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("statistic", list(BY_HAND))
def test_numbers_by_hand(statistic, dtype):
    found = calibrate(
        two_layers(dtype), two_batches(dtype), statistics=[statistic], loss=half_square
    )
    assert list(found.arrays) == [statistic]
    assert list(found.arrays[statistic]) == ["0.weight", "2.weight"]
    for name, expected in zip(("0.weight", "2.weight"), BY_HAND[statistic], strict=True):
        array = found.of(statistic, name)
        assert array.dtype == (np.float32 if dtype == torch.float32 else np.float64)
        np.testing.assert_allclose(array, expected, rtol=1e-6)
    assert (found.batches, found.samples) == (2, 2)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 200.0])
def test_grasp_is_that_of_matrices(temperature):
    """With z = y / T: g = (z - t) z', H = z' z'ᵀ + (z - t) z'', in the order W1, W2."""
    gradient, hessian = np.zeros(6), np.zeros((6, 6))
    for x, t in (((1, 1), 1), ((1, -1), -6)):
        hidden = W1 @ x
        on = hidden > 0
        z = (W2[0] @ (hidden * on)) / temperature
        first = np.concatenate([np.outer(W2[0] * on, x).ravel(), hidden * on]) / temperature
        second = np.zeros((6, 6))
        for i, j in itertools.product(range(2), range(2)):
            second[2 * i + j, 4 + i] = second[4 + i, 2 * i + j] = on[i] * x[j] / temperature
        gradient += (z - t) * first / 2
        hessian += (np.outer(first, first) + (z - t) * second) / 2
    expected = np.concatenate([W1.ravel(), W2.ravel()]) * (hessian @ gradient)
    found = calibrate(
        two_layers(),
        two_batches(),
        statistics=("grasp",),
        loss=half_square,
        temperature=temperature,
    )
    np.testing.assert_allclose(found.of("grasp", "0.weight").ravel(), expected[:4], rtol=1e-12)
    np.testing.assert_allclose(found.of("grasp", "2.weight").ravel(), expected[4:], rtol=1e-12)


def test_the_usual_loss_is_cross_entropy():
    """One linear layer: with p = softmax(W x / T), g = (p - y) x' / T and Hg in closed form."""
    random = np.random.default_rng(0)
    weight, inputs, classes = (
        random.normal(size=(3, 4)),
        random.normal(size=(5, 4)),
        [0, 2, 1, 1, 0],
    )
    layer = nn.Linear(4, 3, bias=False).double()
    layer.weight.data = torch.tensor(weight)
    found = calibrate(layer, [(torch.tensor(inputs), torch.tensor(classes))])

    def mean(parts):
        return np.mean(list(parts), axis=0)

    def softmax(temperature):
        powers = np.exp(inputs @ weight.T / temperature)
        return powers / powers.sum(1, keepdims=True)

    error = softmax(1) - np.eye(3)[classes]
    gradient = mean(np.outer(e, x) for e, x in zip(error, inputs, strict=True))
    np.testing.assert_allclose(found.of("snip", "weight"), abs(weight * gradient))
    np.testing.assert_allclose(found.of("fisher", "weight"), gradient**2)
    divided = softmax(200)
    tempered = mean(
        np.outer(p - np.eye(3)[c], x) / 200
        for p, c, x in zip(divided, classes, inputs, strict=True)
    )
    product = mean(
        np.outer((np.diag(p) - np.outer(p, p)) @ tempered @ x, x) / 200**2
        for p, x in zip(divided, inputs, strict=True)
    )
    np.testing.assert_allclose(found.of("grasp", "weight"), weight * product)


def test_grasp_is_that_of_finite_differences_of_the_gradient():
    net, data, temperature, step = attending(), token_batches(), 20.0, 1e-3
    found = calibrate(net, data, statistics=("grasp",), temperature=temperature)
    names = list(found.arrays["grasp"])
    assert "attention.in_proj_weight" in names
    weights = [net.get_parameter(name) for name in names]

    def gradient():
        losses = [
            F.cross_entropy((net(x) / temperature).flatten(0, 1), t.flatten()) for x, t in data
        ]
        return torch.autograd.grad(torch.stack(losses).mean(), weights)

    direction = gradient()
    values = []
    for sign in (1, -1):
        moved = [sign * step * part for part in direction]
        with torch.no_grad():
            torch._foreach_add_(weights, moved)
        values.append(gradient())
        with torch.no_grad():
            torch._foreach_sub_(weights, moved)
    for name, weight, ahead, behind in zip(names, weights, *values, strict=True):
        expected = (weight * (ahead - behind) / (2 * step)).detach().numpy()
        scale = abs(expected).max()
        np.testing.assert_allclose(found.of("grasp", name), expected, atol=1e-6 * scale)


def test_running_mean_of_gradients():
    """With decay ½ the weights of two minibatches are ⅓ and ⅔."""
    found = calibrate(
        two_layers(), two_batches(), statistics=("gradient", "taylor"), loss=half_square, decay=0.5
    )
    np.testing.assert_allclose(found.of("gradient", "2.weight"), [[3, 6 / 3 + 16 / 3]])
    np.testing.assert_allclose(found.of("taylor", "2.weight"), [[9, 7]])


def test_masks_are_as_good_as_zeros():
    net, data = attending(), token_batches()
    random = np.random.default_rng(0)
    masks = {
        name: random.random(tuple(weight.shape)) < 0.5
        for name, weight in net.named_parameters()
        if weight.ndim == 2
    }
    seen = Seen(net)
    found = calibrate(net, data, masks=masks)
    seen.check(net)
    zeroed = copy.deepcopy(net)
    for name, mask in masks.items():
        zeroed.get_parameter(name).data.mul_(torch.tensor(mask))
    expected = calibrate(zeroed, data)
    for statistic in CALIBRATED:
        for name, array in expected.arrays[statistic].items():
            np.testing.assert_array_equal(found.of(statistic, name), array)
    assert not found.of("snip", "head.weight")[~masks["head.weight"]].any()
    assert found.of("gradient", "head.weight")[~masks["head.weight"]].any()


def test_a_tied_weight_is_measured_once_with_all_of_its_uses():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[0].weight.data = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    net[1].weight = net[0].weight
    found = calibrate(
        net,
        [torch.tensor([[3.0, 4.0]])],
        statistics=("gradient", "input_norm"),
        loss=lambda model, x: model(x).sum(),
    )
    # W (3, 4) = (11, 4); the gradient is 1 (11, 4)' of the second use and W'1 (3, 4)' of the first.
    assert list(found.arrays["gradient"]) == ["0.weight"]
    np.testing.assert_allclose(found.of("gradient", "0.weight"), [[14, 8], [20, 16]])
    np.testing.assert_allclose(
        found.of("input_norm", "0.weight"), np.sqrt([9 + 121, 16 + 16]), rtol=1e-6
    )


def test_projections_of_attention_have_all_statistics():
    found = calibrate(attending(torch.float32), token_batches())
    assert set(found.arrays) == set(CALIBRATED)
    everything = ["attention.in_proj_weight", "attention.out_proj.weight"]
    everything += ["head.weight", "query.weight"]
    for statistic in CALIBRATED:
        assert list(found.arrays[statistic]) == everything


def test_what_a_tensor_cannot_have_is_left_out():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.pair = nn.Linear(2, 2), nn.Bilinear(2, 2, 3)

        def forward(self, x):
            return self.pair(self.first(x), x)

    found = calibrate(Pair(), [(torch.ones(1, 2), torch.tensor([0]))])
    for statistic in CALIBRATED:
        expected = ["first.weight"] + ["pair.weight"] * (statistic != "input_norm")
        assert list(found.arrays[statistic]) == expected
    with pytest.raises(PruningError, match=r"of tensor 'pair\.weight', got none"):
        found.of("input_norm", "pair.weight")


def test_a_model_that_is_held_stays_so():
    net = two_layers()
    masks = {"0.weight": np.array([[True, False], [True, True]])}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with hold(net, optimizer, masks):
        seen = Seen(net)
        found = calibrate(net, two_batches(), loss=half_square)
        seen.check(net)
        expected = calibrate(two_layers(), two_batches(), loss=half_square, masks=masks)
        for statistic in CALIBRATED:
            np.testing.assert_array_equal(
                found.of(statistic, "0.weight"), expected.of(statistic, "0.weight")
            )
        half_square(net, two_batches()[0]).backward()
        optimizer.step()
        assert net[0].weight[0, 1] == 0
        assert net[0].weight[0, 0] != 1


def test_frozen_weights_are_measured_where_they_are_named():
    net = two_layers().requires_grad_(False)
    found = calibrate(net, two_batches(), where="0.*", loss=half_square, statistics=["snip"])
    np.testing.assert_allclose(found.of("snip", "0.weight"), BY_HAND["snip"][0])
    assert not net[0].weight.requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_float32(dtype):
    net = attending(torch.float32)
    expected = calibrate(net, token_batches(), temperature=2.0)
    found = calibrate(net.to(dtype), token_batches(), temperature=2.0)
    for statistic in CALIBRATED:
        for name, array in expected.arrays[statistic].items():
            measured = found.of(statistic, name)
            assert measured.dtype == np.float32
            error = np.linalg.norm(measured - array) / np.linalg.norm(array)
            assert error < (0.1 if dtype == torch.bfloat16 else 0.02), (statistic, name)


def test_float16_gradients_neither_vanish_nor_overflow():
    layer = nn.Linear(1, 2, bias=False).half()
    layer.weight.data.fill_(1)
    for scale in (3e-8, 1.0, 3000.0):
        found = calibrate(
            layer,
            [torch.ones(1, 1, dtype=torch.float16)],
            statistics=["gradient"],
            loss=lambda model, x, scale=scale: (model(x).float() * scale).sum(),
        )
        np.testing.assert_allclose(found.of("gradient", "weight"), scale, rtol=1e-3)


def test_inputs_take_the_type_of_the_model():
    layer = nn.Linear(3, 2).bfloat16()
    found = calibrate(layer, [(np.ones((2, 3)), np.array([0, 1]))], statistics=["input_norm"])
    np.testing.assert_allclose(found.of("input_norm", "weight"), [2**0.5] * 3, rtol=1e-6)


def test_synaptic_flow_takes_the_shape_of_the_first_minibatch():
    told = []
    found = calibrate(
        two_layers(),
        two_batches(),
        statistics=["synflow"],
        progress=lambda done, total: told.append((done, total)),
    )
    np.testing.assert_allclose(found.of("synflow", "0.weight"), [[2, 4], [3, 1]])
    assert told == [(1, 1)]


def test_inputs_alone_are_enough_for_their_norms():
    found = [
        calibrate(two_layers(), data, statistics=["input_norm"])
        for data in ([x for x, _ in two_batches()], [[x] for x, _ in two_batches()], two_batches())
    ]
    for each in found:
        np.testing.assert_allclose(each.of("input_norm", "2.weight"), BY_HAND["input_norm"][1])


def test_progress_counts_both_passes():
    told = []
    data = two_batches()
    calibrate(two_layers(), data, loss=half_square, progress=lambda *numbers: told.append(numbers))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_outputs_that_hold_logits_or_a_loss():
    net, x, labels = WithOwnLoss(), torch.randn(6, 4), torch.arange(6) % 3
    expected = calibrate(net.layer, [(x, labels)])
    named = calibrate(net, [{"x": x, "labels": labels}], statistics=["snip"])
    by_hand = calibrate(net, [((x,), labels)])
    in_dict = calibrate(net, [({"x": x}, labels)])
    own = calibrate(net, [{"x": x, "labels": labels}], temperature=1.0)
    plain = calibrate(net.layer, [(x, labels)], temperature=1.0)
    for statistic in CALIBRATED:
        for found in (by_hand, in_dict):
            np.testing.assert_array_equal(
                found.of(statistic, "layer.weight"), expected.of(statistic, "weight")
            )
        np.testing.assert_array_equal(
            own.of(statistic, "layer.weight"), plain.of(statistic, "weight")
        )
    np.testing.assert_array_equal(named.of("snip", "layer.weight"), expected.of("snip", "weight"))


@pytest.mark.parametrize(
    ("shape", "targets"), [((2, 3), (2,)), ((2, 5, 3), (2, 5)), ((2, 3, 4, 4), (2, 4, 4))]
)
@pytest.mark.parametrize("soft", [False, True])
def test_forms_of_targets(shape, targets, soft):
    """The loss of the same rows of logits is the same in every arrangement."""
    torch.manual_seed(0)
    logits = torch.randn(shape, dtype=torch.float64)
    classes = torch.randint(3, targets)
    axis = 1 if len(shape) == 4 else -1
    net = nn.Linear(1, 1, bias=False).double()
    given = F.one_hot(classes, 3).movedim(-1, axis).double() if soft else classes.int()

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = net

        def forward(self, x):
            return x * self.layer(torch.ones(1, dtype=torch.float64))

    found = calibrate(Scaled(), [(logits, given)], statistics=["gradient"])
    rows = logits.movedim(axis, -1).reshape(-1, 3)
    weight = net.weight.detach().clone().requires_grad_()
    F.cross_entropy(rows * weight, classes.flatten()).backward()
    np.testing.assert_allclose(found.of("gradient", "layer.weight"), weight.grad.abs().numpy())


def test_the_file_holds_what_was_measured(tmp_path):
    found = calibrate(attending(torch.float32), token_batches())
    found.save(tmp_path / "stats.safetensors")
    loaded = Statistics.load(tmp_path / "stats.safetensors")
    assert (loaded.batches, loaded.samples) == (3, 6)
    for statistic in CALIBRATED:
        assert list(loaded.arrays[statistic]) == list(found.arrays[statistic])
        for name, array in found.arrays[statistic].items():
            np.testing.assert_array_equal(loaded.of(statistic, name), array)


def test_works_on_a_wrapped_model_and_within_no_grad():
    expected = calibrate(two_layers(), two_batches(), loss=half_square)
    with torch.no_grad():
        found = calibrate(nn.DataParallel(two_layers()), two_batches(), loss=half_square)
    net, data = two_layers(), two_batches()
    with torch.inference_mode():
        inferred = calibrate(net, data, loss=half_square)
    for statistic in CALIBRATED:
        for each in (found, inferred):
            for name, array in expected.arrays[statistic].items():
                np.testing.assert_array_equal(each.of(statistic, name), array)


def test_a_dataset_of_torch():
    data = TensorDataset(torch.randn(10, 4), torch.arange(10) % 3)
    found = calibrate(nn.Linear(4, 3), DataLoader(data, batch_size=4))
    assert (found.batches, found.samples) == (3, 10)
