"""What steps took: figures of tensors, their sums, tables."""

import math

import ml_dtypes
import numpy as np
import pytest

from tensorcomp.errors import GradientError
from tensorcomp.gradients.base import GradientSpec, State, Wrapped
from tensorcomp.gradients.monitoring.metrics import (
    History,
    StepMetrics,
    TensorMetrics,
    tensor_metrics,
)
from tensorcomp.gradients.monitoring.tables import gradient_log, gradient_table
from tensorcomp.gradients.payload.decoded import DenseGradient, EmptyGradient, SparseGradient

F32 = np.float32


class Kept(Wrapped):
    """A state with a residual, as that of error feedback."""

    residual: np.ndarray

    def __init__(self, spec, residual):
        super().__init__(spec, State(spec))
        object.__setattr__(self, "residual", residual)


class Bounded(State):
    """A state with an achieved error, wrapped or not."""

    def __init__(self, spec, achieved):
        super().__init__(spec)
        object.__setattr__(self, "achieved", achieved)


def spec(*shape, name="w", dtype=F32):
    return GradientSpec(name, shape, np.dtype(dtype))


def sparse(positions, values):
    return SparseGradient(np.array(positions, np.int64), np.array(values, F32))


def metrics_of(gradient, sent, **options):
    gradient = np.asarray(gradient, F32)
    return tensor_metrics(spec(*gradient.shape), "c", 10, sent, gradient=gradient, **options)


# --- a tensor --------------------------------------------------------------------------------


def test_figures_by_hand():
    gradient = [[3.0, 4.0], [0.0, 12.0]]  # norm 13
    found = metrics_of(gradient, sparse([1, 3], [4.0, 6.0]))
    assert (found.name, found.elements, found.compressor) == ("w", 4, "c")
    assert (found.raw_bytes, found.payload_bytes, found.sent) == (16, 10, 2)
    assert found.density == 0.5
    assert found.bits == 20
    assert found.cosine == pytest.approx((16 + 72) / (13 * math.sqrt(52)))
    assert found.error.rel_l2 == pytest.approx(math.sqrt(9 + 36) / 13)
    assert found.error.max_abs == 6
    assert found.residual_norm is None
    assert found.residual_ratio is None
    assert found.nonfinite == 0


def test_what_is_not_observed_is_not_known():
    found = tensor_metrics(spec(4), "c", 3, DenseGradient(np.ones(4, F32)))
    assert (found.sent, found.density, found.bits) == (4, 1.0, 6.0)
    assert (found.error, found.cosine, found.residual_ratio, found.achieved) == (None,) * 4


@pytest.mark.parametrize("dtype", [F32, ml_dtypes.bfloat16, np.float64])
def test_the_residual_is_found_in_the_state(dtype):
    state = Kept(spec(2), np.array([6.0, 8.0], dtype))
    found = metrics_of([3.0, 4.0], EmptyGradient(), state=state)
    assert found.residual_norm == 10
    assert found.residual_ratio == 2
    assert found.cosine is None
    assert found.density == 0


def test_a_wrapped_state_is_searched():
    inner = Bounded(spec(2), 0.125)
    state = Wrapped(spec(2), Wrapped(spec(2), inner))
    found = metrics_of([1.0, 1.0], DenseGradient(np.ones(2, F32)), state=state)
    assert found.achieved == 0.125
    assert found.residual_norm is None
    assert found.cosine == pytest.approx(1)
    assert found.error.exact


def test_zero_and_empty_gradients_have_no_ratios():
    state = Kept(spec(2), np.array([1.0, 0.0], F32))
    zero = metrics_of([0.0, 0.0], EmptyGradient(), state=state)
    assert (zero.residual_norm, zero.residual_ratio, zero.cosine) == (1.0, None, None)
    empty = metrics_of(np.zeros((0, 3)), EmptyGradient())
    assert (empty.density, empty.bits, empty.cosine, empty.raw_bytes) == (None, None, None, 0)
    scalar = metrics_of(2.0, DenseGradient(np.array([2.0], F32)))
    assert (scalar.elements, scalar.density) == (1, 1.0)


def test_values_that_are_not_finite_are_counted():
    found = metrics_of([1.0, math.inf, math.nan, -math.inf], EmptyGradient())
    assert found.nonfinite == 3
    assert found.cosine is None


# --- a step ----------------------------------------------------------------------------------


def step_of(number, *tensors, **options):
    return StepMetrics(number, tensors, **options)


def test_a_step_sums_its_tensors_as_one_vector():
    first = metrics_of([3.0, 0.0], sparse([0], [3.0]), state=Kept(spec(2), np.array([0, 9.0], F32)))
    second = metrics_of([[4.0]], EmptyGradient(), state=Kept(spec(1), np.array([12.0], F32)))
    step = step_of(7, first, second)
    assert (step.elements, step.raw_bytes, step.payload_bytes) == (3, 12, 20)
    assert step.density == pytest.approx(1 / 3)
    assert step.residual_ratio == pytest.approx(15 / 5)
    assert step.cosine == pytest.approx(9 / (5 * 3))


def test_the_residual_ratio_leaves_out_tensors_without_one():
    with_one = metrics_of([3.0], EmptyGradient(), state=Kept(spec(1), np.array([6.0], F32)))
    without = metrics_of([400.0], DenseGradient(np.array([400.0], F32)))
    assert step_of(0, with_one, without).residual_ratio == 2
    assert step_of(0, without).residual_ratio is None


def test_scalars_are_what_is_known():
    found = metrics_of([3.0, 4.0], EmptyGradient())
    step = step_of(0, found, wire_bytes=30, communicate_seconds=0.25)
    figures = step.scalars()
    assert figures["bytes/raw"] == 8
    assert figures["bytes/payload"] == 10
    assert figures["bytes/wire"] == 30
    assert figures["ms/communicate"] == 250
    assert figures["density"] == 0
    assert not {"cosine", "residual_ratio"} & set(figures)
    assert all(type(value) is float for value in figures.values())
    assert step_of(0).scalars()["bytes/raw"] == 0


# --- history and tables ----------------------------------------------------------------------


def small(name="w", payload=10, **options):
    return TensorMetrics(name, 1000, "topk(0.01)", 4000, payload, 10, **options)


def test_a_history_keeps_the_last_steps_and_the_sums_of_all():
    history = History(keep=2)
    assert history.last is None
    assert history.summary() == "no step yet"
    for number in range(3):
        history.add(step_of(number, small(payload=10 + number), framed_bytes=20, wire_bytes=40))
    assert [step.step for step in history] == [1, 2]
    assert len(history) == 2
    assert history.last.step == 2
    assert (history.count, history.skipped) == (3, 0)
    assert (history.raw_bytes, history.payload_bytes) == (12_000, 33)
    assert (history.framed_bytes, history.wire_bytes) == (60, 120)
    history.add(step_of(3, small(), skipped=True))
    assert history.skipped == 1
    with pytest.raises(GradientError, match="at least 1 step must be kept; got 0"):
        History(keep=0)


def words(line):
    return " ".join(line.split())


def test_the_summary_has_totals_and_a_table():
    history = History()
    seconds = {"encode_seconds": 0.001, "communicate_seconds": 0.02, "decode_seconds": 0.003}
    for payload in (10, 30):
        tensor = small(payload=payload, encode_seconds=0.001)
        dense = TensorMetrics("b", 10, "dense", 40, 40, 10)
        history.add(step_of(0, tensor, dense, framed_bytes=100, wire_bytes=200, **seconds))
    lines = history.summary().splitlines()
    assert lines[0] == ("2 steps: gradients 8.08 kB, payloads 120 B, framed 200 B, 40.4× smaller")
    assert lines[1] == "sent by this worker: 400 B by formula"
    assert lines[2] == (
        "a step, mean of the last 2: encode 1.00 ms, communicate 20.0 ms, decode 3.00 ms"
    )
    assert lines[3] == ""
    head = "Tensor Compressor Elements Raw Payload Bits Density Encode ms Decode ms"
    assert words(lines[4]) == head
    assert words(lines[5]) == "w topk(0.01) 1,000 4.00 kB 20 B 0.16 0.01 1.00 0.00"
    assert words(lines[6]) == "b dense 10 40 B 40 B 32.00 1 0.00 0.00"
    assert words(lines[7]) == "all 1,010 4.04 kB 60 B 0.48 0.0198 1.00 3.00"
    assert len(lines) == 8


def test_a_skipped_step_is_told():
    history = History()
    tensor = small(nonfinite=3)
    history.add(step_of(0, tensor, skipped=True, framed_bytes=1))
    text = history.summary()
    assert "1 step skipped: a value was not finite on some worker" in text
    assert text.splitlines()[-2].endswith("3")


def test_the_table_shows_the_tensors_of_the_last_step_only():
    steps = [step_of(0, small("old")), step_of(1, small("new"), small("w\x1b[2J"))]
    lines = gradient_table(steps).lines()
    assert [line.split()[0] for line in lines] == ["Tensor", "new", "w\\x1b[2J", "all"]
    assert gradient_table([]).lines() == []
    assert gradient_table([step_of(0)]).lines() == []


@pytest.mark.parametrize("width", [54, 60, 80, 100])
def test_a_narrow_table_keeps_within_its_width(width):
    state = Kept(spec(2), np.array([6.0, 8.0], F32))
    known = metrics_of([3.0, 4.0], sparse([1], [4.0]), state=state)
    long = TensorMetrics("encoder.layer.0.attention.self.query.weight", 2, "c", 8, 10, 1)
    lines = gradient_table([step_of(0, known, long)]).lines(width)
    assert max(map(len, lines)) <= width
    assert "Payload" in lines[0]
    assert "Residual" in lines[0]


def test_comma_separated_values():
    found = metrics_of([3.0, 4.0], sparse([1], [4.0]))
    head, first, second = gradient_log([step_of(5, found), step_of(6, small())]).csv()
    assert head.startswith("step,name,compressor,elements,raw_bytes,payload_bytes,density,")
    row = dict(zip(head.split(","), first.split(","), strict=True))
    assert (row["step"], row["name"], row["density"], row["cosine"]) == ("5", "w", "0.5", "0.8")
    assert row["rel_l2"] == "0.6"
    assert row["residual_ratio"] == ""
    assert dict(zip(head.split(","), second.split(","), strict=True))["rel_l2"] == ""
