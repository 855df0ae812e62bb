"""Compressors that decide by the step, by the phase of training, and by the role of a tensor."""

import numpy as np
import pytest

from tensorcomp.errors import GradientError, PlanError
from tensorcomp.gradients.base import GradientSpec, StepInfo
from tensorcomp.gradients.compressors.dense import Dense
from tensorcomp.gradients.compressors.error_bounded import ErrorBounded
from tensorcomp.gradients.compressors.randomk import RandomK
from tensorcomp.gradients.compressors.thresholds import SampledThreshold
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.payload.states import carry
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.base import leaf_of
from tensorcomp.gradients.wrappers.feedback import ErrorFeedback
from tensorcomp.gradients.wrappers.momentum import MomentumCorrection
from tensorcomp.gradients.wrappers.per_role import PerRole, gradient_roles
from tensorcomp.gradients.wrappers.phases import PhaseTracker
from tensorcomp.gradients.wrappers.schedules import PhaseTolerance, Warmup

SPEC = GradientSpec("layer.weight", (100, 100))
TOPK = ErrorFeedback(TreeCompressor.of("topk(0.001, values=raw)"))
INT8 = TreeCompressor.of("affine(8, 128)")


def kept(compressor):
    leaf = leaf_of(compressor)
    return "dense" if isinstance(leaf, Dense) else leaf.keep


def at_step(compressor, step, spec=SPEC):
    return compressor.at(StepInfo(step), spec)


def test_warmup_is_dense_then_keeps_less_and_less():
    warmup = Warmup(TOPK, dense_steps=2, ratios=(0.25, 0.01), steps_each=3)
    found = [kept(at_step(warmup, step)) for step in range(10)]
    assert found == ["dense"] * 2 + [0.25] * 3 + [0.01] * 3 + [0.001] * 2
    assert warmup.steps == 8
    assert isinstance(at_step(warmup, 0), ErrorFeedback)
    assert at_step(warmup, 8) is TOPK


def test_warmup_never_goes_below_the_leafs_own_ratio():
    warmup = Warmup(ErrorFeedback(TreeCompressor.of("topk(0.1)")), ratios=(0.25, 0.01))
    assert [kept(at_step(warmup, step)) for step in range(3)] == [0.25, 0.1, 0.1]
    counted = Warmup(ErrorFeedback(TreeCompressor.of("topk(50)")), ratios=(0.25, 0.004))
    assert [kept(at_step(counted, step)) for step in range(3)] == [0.25, 50, 50]


def test_warmup_of_other_leaves():
    assert at_step(Warmup(INT8, dense_steps=1), 0) == Dense()
    assert at_step(Warmup(INT8, dense_steps=1), 1) is INT8
    assert at_step(Warmup(RandomK(0.01)), 0).keep == 0.25
    assert at_step(Warmup(SampledThreshold(0.01)), 1).density == 0.0625
    warmup = Warmup(MomentumCorrection(TOPK), dense_steps=1)
    assert at_step(warmup, 0) == MomentumCorrection(ErrorFeedback(Dense()))
    assert at_step(Warmup(TOPK, dense_steps=1, ratios=(), steps_each=0), 1) is TOPK


def test_what_is_left_out_goes_on_when_the_ratio_changes():
    warmup = Warmup(TOPK, dense_steps=1, ratios=(0.01,), steps_each=1)
    gradients = np.random.default_rng(0).normal(size=(4, *SPEC.shape)).astype(np.float32)
    state = at_step(warmup, 0).init(SPEC)
    sent = np.zeros(SPEC.shape)
    for step, gradient in enumerate(gradients):
        compressor = at_step(warmup, step)
        payload, state = compressor.step(gradient, carry(compressor, state))
        sent += compressor.decode(payload)
    total = sent + state.residual.reshape(SPEC.shape)
    np.testing.assert_allclose(total, gradients.sum(axis=0), atol=1e-5)
    assert np.count_nonzero(state.residual) > 9000


def test_what_decides_is_not_stepped():
    warmup = Warmup(TOPK, dense_steps=1)
    with pytest.raises(GradientError, match="only decides"):
        warmup.step(np.zeros(SPEC.shape, np.float32), warmup.init(SPEC))
    with pytest.raises(GradientError, match="only decides"):
        warmup.decode(
            at_step(warmup, 0).step(np.zeros((100, 100), np.float32), warmup.init(SPEC))[0]
        )


@pytest.mark.parametrize(
    "text",
    [
        "warmup(topk(0.01), steps=3, ratios=(0.5, 0.25), each=7)",
        "phases(topk(0.01), beginning=0.001, final=0.1)",
        'per_role(topk(0.01), small=17, dense_roles="norm bias")',
        "warmup(per_role(phases(topk(0.01), final=0.1)), steps=3)",
    ],
)
def test_texts_are_read_back(text):
    found = parse_compressor(text)
    assert parse_compressor(found.text()) == found


# Changes: 0.1, 0.08, 0.05, 0.02, 0.0199; means of two of them: 0.09, 0.065, 0.035, 0.01995.
FALLING = np.cumprod([1.0, 0.9, 0.92, 0.95, 0.98, 1 - 0.0199]).tolist()
AT_ONE_HALF = {"window": 1, "middle_below": 0.5, "final_below": 0.25}


@pytest.mark.parametrize(
    ("options", "metrics", "phases"),
    [
        ({"window": 1, "middle_below": 0.0801, "final_below": 0.01999}, FALLING, "bbmmmf"),
        ({"window": 2}, FALLING, "bbbmmf"),
        (AT_ONE_HALF, [4.0, 2.0, 1.5], "bmm"),  # a change at a threshold is of the middle
        (AT_ONE_HALF, [1.0, 1.25, 1.5], "bmf"),
        ({"window": 1}, [1.0, 0.99, 0.5, 0.47], "bfff"),
        ({"window": 1, "may_return": True}, [1.0, 0.99, 0.5, 0.47], "bfbm"),
        ({"window": 1}, [0.0, 0.0, 1.0], "bff"),
        ({"window": 1}, [0.0, 1.0, -1.0], "bbb"),
    ],
)
def test_phases_follow_the_change_of_the_metric(options, metrics, phases):
    tracker, found = PhaseTracker(**options), ""
    for metric in metrics:
        tracker = tracker.observe(metric)
        found += tracker.phase[0]
    assert found == phases


def test_a_metric_is_finite_and_few_are_kept():
    tracker = PhaseTracker()
    for metric in (float("nan"), float("inf")):
        with pytest.raises(GradientError, match="finite"):
            tracker.observe(metric)
    assert len(tracker.observe(1.0).observe(1.0).observe(1.0).observe(1.0).metrics) == 3


def test_each_phase_has_its_ratio():
    phases = PhaseTolerance(TOPK, ratios={"beginning": 0.01, "final": 0.1})
    found = [
        kept(phases.at(StepInfo(5, phase), SPEC)) for phase in ("beginning", "middle", "final")
    ]
    assert found == [0.01, 0.001, 0.1]
    small = PhaseTolerance(PerRole(TOPK), ratios={"final": 0.1})
    norm = GradientSpec("norm.weight", (8192,), role="norm")
    assert kept(small.at(StepInfo(5, "final"), norm)) == "dense"
    assert kept(small.at(StepInfo(5, "final"), SPEC)) == 0.1


def test_each_phase_has_its_bound():
    bounded = ErrorFeedback(ErrorBounded(max_rel_l2=0.2))
    phases = PhaseTolerance(bounded, bounds={"final": 0.05})
    assert phases.at(StepInfo(0, "middle"), SPEC) is bounded
    assert phases.at(StepInfo(0, "final"), SPEC).inner.max_rel_l2 == 0.05
    absolute = PhaseTolerance(ErrorBounded(max_abs=0.2), bounds={"final": 0.05})
    leaf = absolute.at(StepInfo(0, "final"), SPEC)
    assert (leaf.max_abs, leaf.max_rel_l2) == (0.05, None)


@pytest.mark.parametrize(
    ("spec", "dense"),
    [
        (GradientSpec("layer.weight", (64, 64), role="mlp"), False),
        (GradientSpec("layer.weight", (63, 65), role="mlp"), True),  # 4,095 elements
        (GradientSpec("norm.weight", (8192,), role="norm"), True),
        (GradientSpec("gate.weight", (64, 1024), role="router"), True),
        (GradientSpec("encoder.layers.0.norm1.weight", (8192,)), True),  # told from the name
        (GradientSpec("encoder.layers.0.linear1.bias", (8192,)), True),
        (GradientSpec("encoder.layers.0.linear1.weight", (512, 512)), False),
    ],
)
def test_small_tensors_and_some_roles_are_dense(spec, dense):
    found = PerRole(TOPK).at(StepInfo(), spec)
    assert found == (ErrorFeedback(Dense()) if dense else TOPK)


def test_roles_can_be_chosen():
    head = GradientSpec("lm_head.weight", (512, 512))
    assert PerRole(TOPK).at(StepInfo(), head) is TOPK
    assert kept(PerRole(TOPK, dense_roles=("head",)).at(StepInfo(), head)) == "dense"
    with pytest.raises(PlanError, match=r"expected a role of .* got 'nonesuch'"):
        PerRole(TOPK, dense_roles=("nonesuch",))


def test_roles_of_a_models_parameters():
    shapes = {"embed.weight": (100, 8), "norm.weight": (8,), "lm_head.weight": (100, 8)}
    roles = gradient_roles(shapes)
    assert (roles["norm.weight"], roles["lm_head.weight"]) == ("norm", "head")
