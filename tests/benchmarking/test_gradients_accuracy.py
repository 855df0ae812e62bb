"""What the benchmark of accuracy by compressed gradients is made of."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tensorcomp.gradients import StepInfo, parse_compressor


@pytest.fixture
def training(bench):
    return bench("gradients.training")


@pytest.fixture
def tasks(bench):
    return bench("gradients.tasks")


def one_epoch(tasks):
    return replace(tasks.TASKS["digits"], epochs=1)


def test_workers_gradients_are_those_of_a_network_each(tasks):
    network = tasks.Network(64)
    weights = network.weights(3)
    parts = dict(zip(network.shapes, weights.split(network.sizes), strict=True))
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    model = nn.Sequential(*layers)
    own = {}
    for layer, linear in enumerate(layers[::2]):
        for name, parameter in linear.named_parameters():
            key = f"{layer}.{name}"
            own[key] = parameter
            parameter.data = parts[key].view(network.shapes[key]).clone()
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(3, 5, 64, generator=generator)
    classes = torch.randint(10, (3, 5), generator=generator)
    found = network.gradients(weights, images, classes)
    assert found.shape == (3, 64 * 256 + 256 * 256 + 2560 + 522)
    for worker in range(3):
        loss = F.cross_entropy(model(images[worker]), classes[worker])
        expected = torch.autograd.grad(loss, [own[name] for name in network.shapes])
        joined = torch.cat([part.reshape(-1) for part in expected]).numpy()
        np.testing.assert_allclose(found[worker], joined, atol=1e-6)


def test_small_parameters_are_one_unit_behind_the_large_ones(tasks):
    units = list(tasks.Network(64).units())
    assert [(name, shape) for _, name, shape in units] == [
        ("0.weight", (256, 64)),
        ("1.weight", (256, 256)),
        ("small", (2560 + 256 + 256 + 10,)),
    ]
    stops = [part.stop for part, _, _ in units]
    assert [part.start for part, _, _ in units] == [0, *stops[:-1]]
    assert stops[-1] == 85_002


def padded(*rows):
    """Return rows with zeros behind: short ones would cost less as they are than in parts."""
    return np.pad(np.float32(rows), [(0, 0), (0, 400 - len(rows[0]))])


def test_the_mean_of_what_is_sent_is_taken(training):
    unit = training.Unit(parse_compressor("topk(2)", feedback=True), "w", (400,), 2)
    gradients = padded([4, -3, 0, 1, 0, 0], [0, 0, 8, 2, -6, 1])
    first = unit.mean(gradients, StepInfo(0))
    np.testing.assert_array_equal(first, padded([2, -1.5, 4, 0, -3, 0])[0])
    # What was left out is added to the next gradients: 1 + 1, and 2 + 2 and 1 + 1.
    second = unit.mean(padded([0, 0, 0, 1, 0, 0.5], [0, 0, 0, 2, 0, 1]), StepInfo(1))
    np.testing.assert_array_equal(second, padded([0, 0, 0, 3, 0, 1.25])[0])


@pytest.mark.parametrize("text", ["dense", "powersgd(6)", "int8", "qsgd(8)"])
def test_every_kind_of_reduction_comes_near_the_mean(training, text):
    generator = np.random.default_rng(0)
    gradients = generator.standard_normal((4, 24 * 6)).astype(np.float32)
    unit = training.Unit(parse_compressor(text, feedback=False), "w", (24, 6), 4)
    mean = unit.mean(gradients, StepInfo(0))
    assert mean.shape == (144,)
    error = np.linalg.norm(mean - gradients.mean(0)) / np.linalg.norm(gradients.mean(0))
    assert error < (1e-6 if text == "dense" else 0.03)
    assert unit.nbytes > 0


def test_states_go_on_when_a_schedule_changes_the_compressor(training):
    compressor = parse_compressor("warmup(topk(1), steps=1, ratios=0.005, each=1)", feedback=True)
    unit = training.Unit(compressor, "w", (400,), 1)
    sent = [unit.mean(padded([4, 3, 2.5, 1]), StepInfo(step))[:4] for step in range(4)]
    np.testing.assert_array_equal(sent, [[4, 3, 2.5, 1], [4, 3, 0, 0], [0, 0, 5, 0], [8, 0, 0, 0]])
    np.testing.assert_array_equal(unit.states[0].residual, padded([0, 6, 2.5, 3])[0])


def test_a_payload_that_is_not_what_its_maker_says_is_found(training):
    compressor = parse_compressor("topk(1)", feedback=False)
    spec = training.GradientSpec("w", (3,))
    one, _ = compressor.step(np.float32([1, 5, 2]), compressor.init(spec))
    other, _ = compressor.step(np.float32([1, 4, 2]), compressor.init(spec))
    assert training.decoded(compressor, one, StepInfo(0)) is one.decoded
    wrong = replace(one, decoded=other.decoded)
    with pytest.raises(SystemExit, match="differ"):
        training.decoded(compressor, wrong, StepInfo(0))


def test_four_dense_workers_learn_as_one_with_their_minibatches(training, tasks):
    task, rule = one_epoch(tasks), tasks.Rule("sgd", 0.05, 0.9)
    four = training.train(task, parse_compressor("dense"), rule, 0)
    one = training.train(replace(task, batch=64), parse_compressor("dense"), rule, 0, workers=1)
    assert four.steps == one.steps == task.steps == 1437 // 64
    assert four.accuracy == pytest.approx(one.accuracy, abs=0.6)
    assert four.accuracy > 70
    assert four.sent == four.steps * four.raw == 4 * 85_002 * four.steps


def test_training_ends_where_a_gradient_is_not_finite(training, tasks):
    task, rule = one_epoch(tasks), tasks.Rule("sgd", 1e20)
    outcome = training.train(task, parse_compressor("dense"), rule, 0)
    assert outcome.sent < outcome.steps * outcome.raw
    assert outcome.accuracy < 30


def test_the_order_of_digits_has_whole_steps_only(training):
    rows = list(training.orders(10, 4, 2, seed=1))
    assert [len(part) for part in rows] == [4, 4, 4, 4]
    for epoch in (rows[:2], rows[2:]):
        assert len(set(torch.cat(epoch).tolist())) == 8
    again = list(training.orders(10, 4, 2, seed=1))
    assert all(torch.equal(one, other) for one, other in zip(rows, again, strict=True))


def test_the_learning_rate_rises_and_falls(tasks):
    rule = tasks.Rule("sgd", 0.5, rising=0.1)
    rates = [rule.rate_at(step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.5 / 11)
    assert max(rates) == rates[10] == 0.5
    assert rates[55] == pytest.approx(0.25)
    assert rates[-1] < 0.001


def test_every_method_makes_a_compressor(bench):
    methods = bench("gradients.methods")
    assert len({method.name for method in methods.METHODS}) == len(methods.METHODS)
    for method in methods.METHODS:
        method.compressor_for(1000)


def test_shares_of_the_steps_become_a_warm_up(bench):
    methods = bench("gradients.methods")
    by_name = {method.name: method for method in methods.METHODS}
    falling = by_name["top-k 0.1 %, DGC"].compressor_for(1000)
    assert (falling.dense_steps, falling.steps) == (0, 200)
    dense = by_name["Adam: the same, 15 % of steps dense first"].compressor_for(1000)
    assert dense.dense_steps == dense.steps == 150


def test_rows_are_compared_with_dense_ones_of_their_optimizer(bench):
    tables = bench("gradients.accuracy_rows")

    def row(method, *accuracies, within=None):
        return tables.AccuracyRow("digits", method, accuracies, 1000.0, 10.0, 400.0, 20, within)

    rows = [
        row("dense", 97.0, 98.0),
        row("int8", 97.0, 97.5, within=0.2),
        row("Adam: dense", 90.0, 90.0),
        row("Adam: int8", 90.0, 90.5),
    ]
    sheet = tables.accuracy_sheet("digits", rows)
    assert sheet.rows == (
        ("dense", "97.50 ± 0.71", "-", "10", "100.0", "50.0"),
        ("int8", "97.25 ± 0.35", "-0.25 ± 0.25", "10", "100.0", "50.0"),
        ("Adam: dense", "90.00 ± 0.00", "-", "10", "100.0", "50.0"),
        ("Adam: int8", "90.25 ± 0.35", "+0.25 ± 0.25", "10", "100.0", "50.0"),
    )
    (limit,) = tables.accuracy_limits(rows)
    assert (limit.measured, limit.limit, limit.met) == (0.25, 0.2, False)
    (alone,) = tables.accuracy_limits([rows[1]])
    assert math.isnan(alone.measured)
    assert not alone.met


def test_a_short_run_prints_its_table(bench, tmp_path, capsys):
    accuracy = bench("gradients.accuracy")
    path = tmp_path / "found.json"
    chosen = "top-k 1 %, int8, feedback"
    accuracy.main(["digits"], only=chosen, seeds=1, epochs=1, json_path=path)
    printed = capsys.readouterr().out
    assert "top-k 1 %, int8, feedback" in printed
    assert '"accuracies"' in path.read_text()


def test_an_unknown_task_is_refused(bench):
    accuracy = bench("gradients.accuracy")
    with pytest.raises(accuracy.typer.BadParameter, match="letters is not one of digits"):
        accuracy.main(tasks=["letters"])
