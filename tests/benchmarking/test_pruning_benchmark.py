"""What the benchmark of pruning is made of, on scikit-learn's small digits."""

import numpy as np
import pytest
import torch

from tensorcomp.pruning import prune

CASE = "digits-300-100"


def test_digits_are_split_by_class_and_seed(bench):
    case = bench("pruning.networks").CASES[CASE]
    one, again, other = case.digits(0), case.digits(0), case.digits(1)
    assert (len(one.classes), len(one.held_out_classes)) == (1437, 360)
    assert torch.equal(one.images, again.images)
    assert not torch.equal(one.classes, other.classes)
    assert set(one.held_out_classes.bincount().tolist()) <= {35, 36, 37}
    assert sum(len(classes) for _, classes in one.batches()) == 1437
    assert abs(float(one.images.mean())) < 1e-4


def test_a_course_in_two_goes_is_the_same_course(bench):
    networks = bench("pruning.networks")
    case = networks.CASES[CASE]
    course = networks.Course(case, case.digits(0), 1, 0, case.peak)
    states = []
    for stops in ((course.steps,), (7, course.steps)):
        model = case.seeded_model(0)
        optimizer, start = case.optimizer(model), 0
        for stop in stops:
            course.train(model, optimizer, start, stop)
            start = stop
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_the_learning_rate_rises_to_its_peak_and_falls_to_nothing(bench):
    networks = bench("pruning.networks")
    case = networks.CASES[CASE]
    course = networks.Course(case, case.digits(0), 2, 0, 0.25)
    rates = [course.rate(step) for step in range(course.steps)]
    top = rates.index(max(rates))
    assert 0.24 < max(rates) <= 0.25
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] < 0.002


@pytest.mark.parametrize(
    ("work", "methods"),
    [
        ("random", {"random"}),
        ("snip", {"SNIP", "SNIP, shuffled"}),
        (
            "training",
            {"dense", "lottery ticket", "ticket, re-initialised", "magnitude, fine-tuned"},
        ),
    ],
)
def test_jobs_score_every_method_at_every_sparsity(bench, work, methods):
    found = bench("pruning.methods").done(
        bench("pruning.methods").Job(work, CASE, 0, (0.5, 0.8), 1)
    )
    assert {score.method for score in found} == methods
    for method in methods - {"dense"}:
        assert sorted(s.sparsity for s in found if s.method == method) == [0.5, 0.8]
    assert all(score.accuracy > 60 for score in found)  # 10 by chance


def test_training_holds_the_masks(bench):
    networks, methods = bench("pruning.networks"), bench("pruning.methods")
    case = networks.CASES[CASE]
    digits = case.digits(0)
    course = networks.Course(case, digits, 1, 0, case.peak)
    setting = methods.Setting(case, digits, 0, (0.9,), course)
    model = setting.model()
    result = prune(model, "magnitude", 0.9)
    setting.trained(result, model)
    state = model.state_dict()
    assert all(not state[name].numpy()[~mask].any() for name, mask in result.masks.items())


def test_orderings_are_judged_by_means_and_spreads(bench):
    orderings, methods = bench("pruning.orderings"), bench("pruning.methods")

    def row(method, sparsity, *accuracies):
        return methods.MethodRow("a case", method, sparsity, accuracies)

    rows = [
        row("dense", 0.0, 90.0, 92.0),
        row("random", 0.95, 50.0, 52.0),
        row("SNIP", 0.95, 80.0, 82.0),
        row("SNIP, shuffled", 0.95, 78.0, 80.5),
        row("lottery ticket", 0.95, 89.0, 90.0),
        row("ticket, re-initialised", 0.95, 89.5, 89.5),
    ]
    found = {verdict.ordering: verdict for verdict in orderings.verdicts(rows)}
    assert found["random ≪ SNIP"].holds
    assert found["random ≪ SNIP"].difference == 30
    assert found["SNIP, shuffled ≈ SNIP"].holds
    assert not found["lottery ticket keeps dense"].holds  # 89.5, but 91 less 1.41 is 89.59
    assert not found["ticket, re-initialised < lottery ticket"].holds
    assert len(found) == 4
    kept = [limit.met for limit in orderings.method_limits(rows)]
    assert kept == [False, False, True]


def test_what_is_counted_is_what_was_asked_for(bench):
    exactness = bench("pruning.exactness")
    rows = list(exactness.weight_rows())
    assert exactness.all_exact(rows) == 0
    # The peers' own counts are the benchmark's point: thresholds fail on ties.
    equal = next(row for row in rows if row.what == "a layer, equal")
    assert equal.pruned["≤ quantile"] == 1000
    model = exactness.filled(exactness._layers((1000, 8), (4, 1000)), "equal")
    assert exactness.units_by_tensorcomp(model) == 900


def test_selecting_is_timed_as_it_is_done(bench):
    speed = bench("pruning.speed")
    weights = {"a": np.random.default_rng(0).standard_normal((100, 1000), np.float32)}
    choosing, seconds = speed.selected(weights)
    assert 0 < choosing <= seconds
