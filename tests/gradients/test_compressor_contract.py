"""Properties of every compressor with a state or a payload of its own, and of every wrapper."""

import numpy as np
import pytest

from tensorcomp.errors import GradientError, TensorcompError
from tensorcomp.gradients import (
    AdaptiveThreshold,
    Dense,
    ErrorBounded,
    ErrorFeedback,
    GradientSpec,
    Payload,
    PowerSgd,
    Qsgd,
    RandomK,
    SampledThreshold,
    Threshold,
    TreeCompressor,
)
from tensorcomp.gradients.autotune.adaptive import Adaptive
from tensorcomp.gradients.payload.states import flatten, unflatten
from tensorcomp.gradients.wrappers.momentum import MomentumCorrection
from tensorcomp.gradients.wrappers.packet_loss import PacketLoss
from tensorcomp.gradients.wrappers.per_role import PerRole
from tensorcomp.gradients.wrappers.phases import PhaseTracker
from tensorcomp.gradients.wrappers.schedules import PhaseTolerance, Warmup

SPEC = GradientSpec("w", (50, 60))
TOPK = TreeCompressor.of("topk(0.05, values=affine(8))")
INT8 = TreeCompressor.of("affine(8)")
FED_BACK = ErrorFeedback(TOPK)
BOUNDED = ErrorBounded(max_rel_l2=0.1)
COMPRESSORS = [
    *(TOPK, INT8, TreeCompressor.of("threshold(2.0)"), Qsgd(3)),
    *(Threshold(0.5), AdaptiveThreshold(0.05), SampledThreshold(0.05), RandomK(0.1), BOUNDED),
    *(ErrorBounded(max_abs=0.1), PowerSgd(2), PowerSgd(2, warm_start=False)),
    *(FED_BACK, ErrorFeedback(TOPK, "bfloat16", 0.9), MomentumCorrection(FED_BACK)),
]
every_compressor = pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)


def gradient(seed=0):
    return np.random.default_rng(seed).standard_t(3, SPEC.shape).astype(np.float32)


def assert_same_fields(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


@every_compressor
def test_a_dropped_step_leaves_no_trace(compressor):
    _, state = compressor.step(gradient(0), compressor.init(SPEC))
    kept = {name: np.copy(value) for name, value in flatten(state).items()}
    array = gradient(1)
    payload, after = compressor.step(array, state)
    expected = {name: np.copy(value) for name, value in flatten(after).items()}
    np.testing.assert_array_equal(array, gradient(1))
    compressor.step(-3 * array, state)
    assert_same_fields(flatten(state), kept)
    again, after = compressor.step(array, state)
    assert again == payload
    assert_same_fields(flatten(after), expected)


@every_compressor
def test_a_saved_state_goes_on_alike(compressor):
    _, state = compressor.step(gradient(0), compressor.init(SPEC))
    saved = flatten(state)
    assert not any("spare" in name for name in saved)
    loaded = unflatten(compressor.init(SPEC), saved)
    assert_same_fields(flatten(loaded), saved)
    payload, after = compressor.step(gradient(1), state)
    again, other = compressor.step(gradient(1), loaded)
    assert again == payload
    assert_same_fields(flatten(other), flatten(after))


@every_compressor
def test_damaged_payloads_are_refused(compressor):
    payload, _ = compressor.step(gradient(), compressor.init(SPEC))
    data = payload.data
    # The factor before the blob of `ErrorBounded` is checked on its own.
    for at in range(8, len(data), max(1, len(data) // 50)):
        damaged = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with pytest.raises(TensorcompError):
            compressor.receive(Payload(damaged, SPEC))
    for stop in (1, 5, 8, 40, len(data) // 2, len(data) - 9, len(data) - 1):
        with pytest.raises(TensorcompError):
            compressor.receive(Payload(data[:stop], SPEC))


@every_compressor
def test_an_empty_payload_stands_for_zeros(compressor):
    np.testing.assert_array_equal(compressor.decode(Payload(b"", SPEC)), np.zeros(SPEC.shape))


NAN, INF = float("nan"), float("inf")
ARGUMENTS_OUT_OF_RANGE = [
    (Threshold, {"value": -1}, "value"),
    (Threshold, {"value": NAN}, "value"),
    (Threshold, {"value": 1, "values": "nothing"}, "no codec"),
    (Threshold, {"value": 1, "mask": "gaps(-"}, "cannot read"),
    (AdaptiveThreshold, {"density": 0}, "density"),
    (AdaptiveThreshold, {"density": True}, "density"),
    (AdaptiveThreshold, {"density": 0.1, "seed": -1}, "seed"),
    (SampledThreshold, {"density": 1.5}, "density"),
    (SampledThreshold, {"density": 0.1, "sample": 0}, "sample"),
    (Qsgd, {"bits": 1}, "bits"),
    (Qsgd, {"bits": 9}, "bits"),
    (Qsgd, {"group": -2}, "group"),
    (Qsgd, {"seed": -1}, "seed"),
    (Qsgd, {"seed": 1.0}, "seed"),
    (PowerSgd, {"rank": 0}, "rank"),
    (PowerSgd, {"rank": 2.0}, "rank"),
    (PowerSgd, {"warm_start": 1}, "warm_start"),
    (PowerSgd, {"seed": -1}, "seed"),
    (RandomK, {"keep": 1.5}, "keep"),
    (RandomK, {"keep": 0}, "keep"),
    (RandomK, {"keep": 0.0}, "keep"),
    (RandomK, {"seed": -1}, "seed"),
    (RandomK, {"scale": 1}, "scale"),
    (ErrorBounded, {}, "max_rel_l2, max_abs or both"),
    (ErrorBounded, {"max_rel_l2": -1}, "expected max_rel_l2 to be a finite number from 0"),
    (ErrorBounded, {"max_abs": INF}, "expected max_abs to be a finite number from 0"),
    (ErrorBounded, {"max_abs": NAN}, "expected max_abs to be a finite number from 0"),
    (ErrorBounded, {"max_abs": True}, "expected max_abs to be a finite number from 0"),
    (ErrorBounded, {"max_abs": 1, "tree": "nothing"}, "no codec"),
    (ErrorFeedback, {"inner": Dense(), "dtype": "float16"}, "dtype"),
    (ErrorFeedback, {"inner": Dense(), "decay": 1.5}, "decay"),
    (ErrorFeedback, {"inner": Dense(), "decay": -0.1}, "decay"),
    (MomentumCorrection, {"inner": FED_BACK, "momentum": 1.0}, "momentum"),
    (MomentumCorrection, {"inner": FED_BACK, "momentum": -0.1}, "momentum"),
    (MomentumCorrection, {"inner": FED_BACK, "momentum": NAN}, "momentum"),
    (MomentumCorrection, {"inner": FED_BACK, "clip": 0.0}, "clip"),
    (MomentumCorrection, {"inner": FED_BACK, "clip": INF}, "clip"),
    (MomentumCorrection, {"inner": FED_BACK, "workers": 0}, "workers"),
    (MomentumCorrection, {"inner": TOPK}, "no error feedback"),
    (MomentumCorrection, {"inner": PerRole(Dense())}, "no error feedback"),
    (Warmup, {"inner": FED_BACK, "dense_steps": -1}, "dense_steps"),
    (Warmup, {"inner": FED_BACK, "steps_each": -1}, "steps_each"),
    (Warmup, {"inner": FED_BACK, "ratios": (0.25, 0.0)}, "ratios"),
    (Warmup, {"inner": FED_BACK, "ratios": (1.0,)}, "ratios"),
    (PhaseTracker, {"middle_below": 0.01}, "middle_below"),
    (PhaseTracker, {"final_below": -0.1}, "final_below"),
    (PhaseTracker, {"window": 0}, "window"),
    (PhaseTracker, {"phase": "end"}, "expected a phase among .*, got 'end'"),
    (PhaseTolerance, {"inner": FED_BACK}, "either ratios or bounds"),
    (
        PhaseTolerance,
        {"inner": FED_BACK, "ratios": {"final": 0.1}, "bounds": {"final": 0.1}},
        "either ratios or bounds",
    ),
    (PhaseTolerance, {"inner": FED_BACK, "ratios": {"end": 0.1}}, "expected a phase among"),
    (PhaseTolerance, {"inner": FED_BACK, "ratios": {"final": 1.0}}, "ratios above 0 and below 1"),
    (PhaseTolerance, {"inner": FED_BACK, "bounds": {"final": 0.1}}, "a compressor with a bound"),
    (PhaseTolerance, {"inner": INT8, "ratios": {"final": 0.1}}, "a compressor with a ratio"),
    (PhaseTolerance, {"inner": BOUNDED, "bounds": {"final": 0.0}}, "expected bounds above 0"),
    (Adaptive, {"max_rel_l2": -1.0}, "max_rel_l2"),
    (Adaptive, {"every": 0}, "every"),
    (Adaptive, {"hysteresis": 1.0}, "hysteresis"),
    (PacketLoss, {"loss": 1.5}, "expected loss to be a share in .*, got 1.5"),
    (PacketLoss, {"loss": NAN}, "expected loss to be a share in .*, got nan"),
    (PacketLoss, {"tolerance": -0.1}, "expected tolerance to be a share in .*, got -0.1"),
    (PacketLoss, {"tolerance": {"beginning": 0.1, "middle": 0.1}}, "for each of .* for 'final'"),
    (
        PacketLoss,
        {"tolerance": {"beginning": 2, "middle": 0, "final": 0}},
        r"tolerance\['beginning'\]",
    ),
    (PacketLoss, {"chunk": 0}, "expected chunk to be 1 or more, got 0"),
]


@pytest.mark.parametrize(("make", "arguments", "message"), ARGUMENTS_OUT_OF_RANGE)
def test_arguments_out_of_range_are_refused(make, arguments, message):
    error = GradientError if make is PacketLoss else ValueError
    with pytest.raises(error, match=message) as caught:
        make(**arguments)
    assert "\n" not in str(caught.value)
