"""`prune`: every score on a small network, which is as it was afterwards."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from tensorcomp.errors import PruningError
from tensorcomp.pruning import calibrate, prune
from tensorcomp.selection.scores import SCORES

WEIGHTS = ("0.weight", "3.weight", "7.weight")


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(8 * 9, 5),
    )


def batches(count: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(6, 1, 8, 8, generator=generator), torch.randint(5, (6,), generator=generator))
        for _ in range(count)
    ]


@pytest.mark.parametrize("score", SCORES)
def test_every_score_prunes_exactly_and_leaves_the_model_alone(score):
    model = network()
    model[0](torch.ones(1, 1, 8, 8)).sum().backward()
    before = copy.deepcopy(model.state_dict())
    gradients = {name: p.grad for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    result = prune(model, score, 0.7, data=batches())
    assert sorted(result.masks) == sorted(WEIGHTS)
    size = sum(before[name].numel() for name in WEIGHTS)
    if score == "wanda":  # in rows, each tensor on its own
        assert result.pruned == {n: round(0.7 * before[n].numel()) for n in WEIGHTS}
    else:
        assert sum(result.pruned.values()) == round(0.7 * size)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is gradients[name] for name, parameter in model.named_parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


@pytest.mark.parametrize("score", ["snip", "grasp", "taylor", "obd", "wanda", "gradient"])
def test_statistics_in_place_of_data_select_the_same(score):
    model = network()
    statistics = calibrate(
        model, batches(), statistics=("snip", "grasp", "taylor", "fisher", "input_norm", "gradient")
    )
    there = prune(model, score, 0.8, data=batches())
    here = prune(model, score, 0.8, statistics=statistics)
    for name in WEIGHTS:
        np.testing.assert_array_equal(there.masks[name], here.masks[name])


def test_rounds_score_what_is_left():
    model = network()
    once = prune(model, "snip", 0.9, data=batches())
    often = prune(model, "snip", 0.9, data=batches(), rounds=5)
    assert once.sparsity == often.sparsity
    assert any((once.masks[name] != often.masks[name]).any() for name in WEIGHTS)


def test_synflow_needs_no_data_but_a_shape():
    model = network()
    given = prune(model, "synflow", 0.9, example=torch.zeros(1, 1, 8, 8), rounds=10)
    taken = prune(model, "synflow", 0.9, data=batches(), rounds=10)
    for name in WEIGHTS:
        np.testing.assert_array_equal(given.masks[name], taken.masks[name])
    with pytest.raises(PruningError, match="shape of an input"):
        prune(model, "synflow", 0.9)


def test_rounds_with_nothing_left_to_prune():
    """The usual hundred rounds of SynFlow, too."""
    model, example = network(), torch.zeros(1, 1, 8, 8)
    assert prune(model, "synflow", 0, example=example).sparsity == 0
    first = prune(model, "magnitude", 0.4)
    again = prune(model, "synflow", 0.4, example=example, previous=first)
    for name in WEIGHTS:
        np.testing.assert_array_equal(again.masks[name], first.masks[name])
    # What was pruned is a part of all weights, not of the tensors it was pruned from.
    part = prune(model, "magnitude", 0.9, where="0.weight")
    more = prune(model, "magnitude", 0.5, previous=part, rounds=3)
    assert more.sparsity == pytest.approx(0.5, abs=1e-3)


def test_synflow_takes_one_minibatch_of_an_iterator():
    model, taken = network(), []

    def loader():
        for batch in batches():
            taken.append(batch)
            yield batch

    found = prune(model, "synflow", 0.9, data=loader(), rounds=10)
    expected = prune(model, "synflow", 0.9, data=batches(), rounds=10)
    assert len(taken) == 1
    for name in WEIGHTS:
        np.testing.assert_array_equal(found.masks[name], expected.masks[name])


def test_synflow_cuts_no_layer_off_where_magnitude_does():
    """With one thin layer among wide ones and no floor (Tanaka et al. 2020)."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
    )
    with torch.no_grad():
        model[4].weight.mul_(1e-3)
    example = torch.zeros(1, 64)
    by_magnitude = prune(model, "magnitude", 0.95, floor=0)
    by_flow = prune(model, "synflow", 0.95, floor=0, example=example)
    assert by_magnitude.pruned["4.weight"] == 128
    assert by_flow.pruned["4.weight"] < 128


def test_previous_masks_stay():
    model = network()
    first = prune(model, "magnitude", 0.5)
    second = prune(model, "magnitude", 0.75, previous=first)
    assert second.sparsity == pytest.approx(0.75, abs=1e-3)
    for name in WEIGHTS:
        assert not (second.masks[name] & ~first.masks[name]).any()


def test_structured():
    result = prune(network(), "magnitude", 0.5, granularity="filter", scope="tensor")
    assert result.pruned["3.weight"] == 4 * 36
    kept = result.masks["3.weight"].reshape(8, -1)
    assert set(kept.sum(axis=1)) == {0, 36}
    assert prune(network(), granularity="nm(2, 3)", where="3.weight").sparsity == pytest.approx(
        1 / 3
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"score": "snip", "sparsity": 0.5}, "needs data"),
        ({"score": "slow", "sparsity": 0.5}, "no score is called"),
        ({"score": "magnitude"}, "how much"),
        ({"sparsity": 0.5, "where": "nothing.*"}, "nothing"),
        ({"sparsity": {"0.weight": 0.5}, "where": "0.weight", "rounds": 3}, "give rounds=1"),
        ({"sparsity": 0.5, "rounds": 0}, "expected rounds to be an integer of at least 1, got 0"),
        ({"sparsity": 0.5, "rounds": True}, "expected rounds to be an integer"),
        ({"sparsity": 1, "rounds": 2}, "never reach a sparsity of 1; take less"),
        ({"sparsity": 2, "rounds": 2}, "a number from 0 to 1"),
        ({"sparsity": -1, "rounds": 2}, "a number from 0 to 1"),
        ({"score": 3, "sparsity": 0.5}, "a score is a text"),
    ],
)
def test_what_cannot_be_done_is_said(arguments, words):
    model = network()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(PruningError, match=words):
        prune(model, **arguments)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("score", ["snip", "grasp", "obd"])
def test_gradients_are_measured_in_the_mode_of_the_model(score):
    model = network()
    masks = {
        asked: prune(model, score, 0.5, data=batches(), train_mode=asked).masks
        for asked in (None, True, False)
    }
    assert model.training
    for name, mask in masks[None].items():
        np.testing.assert_array_equal(mask, masks[True][name])
    assert any((mask != masks[False][name]).any() for name, mask in masks[None].items())
    evaluated = prune(model.eval(), score, 0.5, data=batches()).masks
    for name, mask in masks[False].items():
        np.testing.assert_array_equal(mask, evaluated[name])
