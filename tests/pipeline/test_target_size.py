"""Writing again until a size is kept, with a writer that takes other bytes than were predicted."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.checkpoints.base import SourceTemplate
from tensorcomp.codecs import parse_tree
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.records import TensorRecord
from tensorcomp.errors import PlanError
from tensorcomp.pipeline.summary import FileResult
from tensorcomp.pipeline.target_size import write_to_budget, write_with_plan
from tensorcomp.planning.allocation import AllocationProblem
from tensorcomp.planning.budgets import Bound, Budget
from tensorcomp.planning.plan import Plan, TensorPlan
from tensorcomp.planning.rate_distortion import RDCurve

WEIGHTS = 100_000
HEADER = 1500
BYTES = dict[str, Callable[[float], float]]


def curve(scale: float = 1.0) -> RDCurve:
    """Return lossless at 27 bits, and steps of 0 to 12 bits at 6.02 dB each."""
    octaves = np.arange(0, 12, 1 / 256)
    return RDCurve(
        weights=WEIGHTS,
        scale=scale,
        bits=np.concatenate([[27.0], 12 - octaves]),
        mse=np.concatenate([[0.0], scale**2 * 4.0 ** -(12 - octaves)]),
        trees=(("", None), ("uniform($step)", -12.0)),
        first=(0, 1),
    )


def problem_of(budget: Budget, **scales: float) -> AllocationProblem:
    return AllocationProblem(
        budget=budget,
        effort="balanced",
        fixed={},
        options={name: curve(scale) for name, scale in scales.items()},
        importance=dict.fromkeys(scales, 1.0),
        copies={},
        overhead=HEADER,
        fixed_bytes=0,
        weights=WEIGHTS * len(scales),
        used=frozenset(),
    )


def bits_of(plan: TensorPlan) -> float:
    """Return the bits that the curve says of a step."""
    if plan.tree is None:
        return 27.0
    return -math.log2(plan.tree.codec.step)


class Writer:
    """Takes for each tensor what a function says of its bits, and keeps count."""

    def __init__(self, taken: BYTES, coded: Callable[[float], bool] = lambda _: True) -> None:
        self.taken = taken
        self.coded = coded
        self.totals: list[int] = []
        self.plan = Plan({})

    def __call__(self, plan: Plan) -> list[FileResult]:
        self.plan = plan
        records, sizes, refused = {}, {}, set()
        for name, planned in plan.tensors.items():
            bits = bits_of(planned)
            coded = planned.tree is None or self.coded(bits)
            sizes[name] = int(WEIGHTS * (self.taken[name](bits) if coded else 27.0) / 8)
            records[name] = TensorRecord(name, "F32", (WEIGHTS,), "mlp", 4 * WEIGHTS)
            if not coded:
                refused.add(name)
        self.totals.append(HEADER + sum(sizes.values()))
        source_bytes = 4 * WEIGHTS * len(records)
        manifest = Manifest(1, (), records, SourceTemplate("safetensors"), source_bytes)
        return [FileResult(manifest, sizes, self.totals[-1], refused)]


def run(budget: Budget, writer: Writer, **scales: float) -> int:
    """Return the size that is written in the end."""
    made = problem_of(budget, **scales)
    most = made.max_bytes(4 * WEIGHTS * len(scales))
    keys = [{name: name for name in scales}]
    (report,) = write_to_budget(made, most, keys, writer)
    assert writer.totals[-1] == report.output_bytes
    return report.output_bytes


@settings(max_examples=60)
@given(
    bits=st.floats(2, 10.5),
    errors=st.lists(st.floats(-0.3, 0.6), min_size=2, max_size=2),
    slopes=st.lists(st.floats(0.9, 1.1), min_size=2, max_size=2),
)
def test_wrong_predictions_are_corrected(bits, errors, slopes):
    taken: BYTES = {
        name: lambda b, e=error, s=slope: max(s * b + e, 0.05)
        for name, error, slope in zip("ab", errors, slopes, strict=True)
    }
    writer = Writer(taken)
    most = int(bits * 2 * WEIGHTS / 8)
    size = run(Budget(bits_per_weight=bits), writer, a=1.0, b=3.0)
    assert size <= most
    assert size >= 0.995 * most
    assert len(writer.totals) <= 4


def test_what_is_predicted_well_is_written_once():
    writer = Writer({"a": lambda bits: bits})
    run(Budget(bits_per_weight=5), writer, a=1.0)
    assert len(writer.totals) == 1


def test_nothing_is_written_again_where_nothing_could_grow():
    writer = Writer({"a": lambda bits: bits})
    size = run(Budget(bits_per_weight=20), writer, a=1.0)
    assert size < 0.7 * 20 * WEIGHTS / 8
    assert len(writer.totals) == 1


def test_the_best_that_fits_is_what_stays():
    """Sizes that leap: either 60 % of the limit or 110 %."""
    writer = Writer({"a": lambda bits: 3.0 if bits < 4.6 else 5.5})
    size = run(Budget(bits_per_weight=5), writer, a=1.0)
    assert size == HEADER + 3 * WEIGHTS // 8
    assert max(writer.totals) > 5 * WEIGHTS / 8


def test_steps_that_cannot_be_taken_are_given_up():
    writer = Writer({"a": lambda b: b, "b": lambda b: b}, coded=lambda bits: bits < 6.5)
    size = run(Budget(bits_per_weight=7), writer, a=1.0, b=1.0)
    assert size <= 7 * 2 * WEIGHTS / 8
    assert all(bits_of(plan) < 6.5 for plan in writer.plan.tensors.values())


def test_an_impossible_size_names_what_was_seen():
    writer = Writer({"a": lambda bits: bits + 1.0})
    with pytest.raises(PlanError, match="is not possible") as caught:
        run(Budget(bits_per_weight=0.9), writer, a=1.0)
    assert f"{min(writer.totals):,} bytes" in str(caught.value)


def obeyed(budget: Budget, *tensors: TensorPlan, taken: float = 0.0) -> Writer:
    names = [chr(97 + number) for number in range(len(tensors))]
    writer = Writer(dict.fromkeys(names, lambda bits: bits + taken))
    plan = Plan(dict(zip(names, tensors, strict=True)), budget)
    write_with_plan(plan, [{name: name for name in names}], writer)
    return writer


def test_a_given_plan_is_written_as_it_is_if_it_fits():
    plan = TensorPlan(parse_tree("uniform(0.0625)"))
    for budget in (Budget(), Budget(min_snr=3), Budget(bits_per_weight=4.2)):
        writer = obeyed(budget, plan, plan)
        assert len(writer.totals) == 1
        assert writer.plan.tensors["a"] == plan


def test_steps_of_a_given_plan_grow_alike_until_it_fits():
    coarse, fine = TensorPlan(parse_tree("uniform(0.25)")), TensorPlan(parse_tree("uniform(0.01)"))
    bound = Bound(max_rel_l2=0.1)
    bounded = TensorPlan(parse_tree("uniform(0.0625)"), bound=bound)
    writer = obeyed(Budget(bits_per_weight=4), coarse, fine, bounded, taken=0.5)
    assert 0.99 * 4 * 3 * WEIGHTS / 8 <= writer.totals[-1] <= 4 * 3 * WEIGHTS / 8
    found = writer.plan.tensors
    assert found["c"] == bounded
    moved = bits_of(coarse) - bits_of(found["a"])
    assert moved > 0.1
    assert bits_of(fine) - bits_of(found["b"]) == pytest.approx(moved, abs=1e-4)


def test_a_given_plan_that_cannot_fit_is_refused():
    plan = TensorPlan(parse_tree("uniform(0.0625)"), bound=Bound(max_rel_l2=0.1))
    with pytest.raises(PlanError, match="under the plan; give a larger budget"):
        obeyed(Budget(bits_per_weight=3), plan)
    with pytest.raises(PlanError, match="under the plan; give a larger budget"):
        obeyed(Budget(target_size=100), TensorPlan())
