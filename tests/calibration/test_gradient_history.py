"""The running mean of gradients that a training loop keeps."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from tensorcomp.errors import PruningError
from tensorcomp.pruning import GradientHistory, calibrate

torch.set_num_threads(1)


def step(layer, inputs):
    layer.zero_grad()
    layer(torch.tensor([inputs])).sum().backward()


@pytest.mark.parametrize(("decay", "expected"), [(None, [2, 3]), (0.5, [10 / 7, 3])])
def test_means_by_hand(decay, expected):
    """Magnitudes (4, 1), (1, 6), (1, 2): with decay ½ in parts of 1, 2 and 4 of 7."""
    layer, history = nn.Linear(2, 1), GradientHistory(decay)
    for inputs in ([-4.0, 1.0], [1.0, 6.0], [1.0, -2.0]):
        step(layer, inputs)
        history.update(layer)
    found = history.statistics()
    assert found.batches == 3
    assert list(found.arrays) == ["gradient"]
    assert list(found.arrays["gradient"]) == ["weight"]
    np.testing.assert_allclose(found.of("gradient", "weight"), [expected], rtol=1e-6)


def test_updates_may_go_on_after_a_look():
    layer, history = nn.Linear(2, 1), GradientHistory()
    step(layer, [1.0, 2.0])
    history.update(layer)
    early = history.statistics().of("gradient", "weight")
    step(layer, [3.0, 2.0])
    history.update(layer)
    np.testing.assert_allclose(early, [[1, 2]])
    np.testing.assert_allclose(history.statistics().of("gradient", "weight"), [[2, 2]])


@pytest.mark.parametrize("decay", [None, 0.7])
def test_it_is_what_calibration_measures_of_a_model_at_rest(decay):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    data = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(4)]
    expected = calibrate(net, data, statistics=["gradient"], decay=decay)
    history = GradientHistory(decay)
    wrapped = nn.DataParallel(net)
    for inputs, classes in data:
        net.zero_grad()
        nn.functional.cross_entropy(net(inputs), classes).backward()
        history.update(wrapped)
    for name, array in expected.arrays["gradient"].items():
        np.testing.assert_allclose(history.statistics().of("gradient", name), array, rtol=1e-5)


def test_a_layer_without_a_gradient_counts_as_zero_unless_it_never_has_one():
    net = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    history = GradientHistory(0.5)
    step(net[0], [1.0, 1.0])
    history.update(net)
    assert history.statistics().unreached == ("1.weight",)
    assert list(history.statistics().arrays["gradient"]) == ["0.weight"]
    net.zero_grad()
    step(net[1], [3.0, 3.0])
    history.update(net)
    found = history.statistics()
    np.testing.assert_allclose(found.of("gradient", "0.weight"), [[1 / 3, 1 / 3]], rtol=1e-6)
    np.testing.assert_allclose(found.of("gradient", "1.weight"), [[2, 2]], rtol=1e-6)


def test_half_precision_and_sparse_gradients():
    table = nn.Embedding(3, 2, sparse=True).bfloat16()
    history = GradientHistory(where="weight")
    table(torch.tensor([1, 1])).sum().backward()
    history.update(table)
    found = history.statistics().of("gradient", "weight")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[0, 0], [2, 2], [0, 0]])


def test_refusals():
    layer, history = nn.Linear(2, 1), GradientHistory()
    with pytest.raises(PruningError, match="the history is empty"):
        history.statistics()
    step(layer, [1.0, 2.0])
    history.update(layer)
    before = copy.deepcopy(history.statistics())
    step(layer, [1.0, float("inf")])
    with pytest.raises(PruningError, match="gradient of 'weight' is not finite at update 2"):
        history.update(layer)
    with pytest.raises(PruningError, match="other parameters"):
        history.update(nn.Linear(3, 1))
    after = history.statistics()
    assert after.batches == before.batches
    np.testing.assert_array_equal(after.of("gradient", "weight"), before.of("gradient", "weight"))
    for decay in (1.0, -0.1, float("nan")):
        with pytest.raises(PruningError, match="expected decay to be at least 0 and below 1"):
            GradientHistory(decay)
