import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import parse_tree
from tensorcomp.errors import PlanError
from tensorcomp.planning.budgets import Bound, Budget
from tensorcomp.planning.plan import Plan, TensorPlan, check_names, plan_from_json, plan_to_json

TREES = (
    None,
    parse_tree("raw(bytes=zstd)"),
    parse_tree("uniform(0.0123456)"),
    parse_tree("affine(4, 128)"),
    parse_tree("svd(0.25, left=uniform(0.5), right=uniform(1e-9, codes=huffman))"),
)
POSITIVE = st.floats(1e-30, 1e30)
BOUNDS = st.none() | st.builds(
    Bound, max_rel_l2=POSITIVE | st.just(math.inf), max_abs_error=POSITIVE
)
PLANS = st.builds(TensorPlan, tree=st.sampled_from(TREES), reason=st.text(max_size=9), bound=BOUNDS)


@given(
    tensors=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), PLANS, max_size=4),
    budget=st.sampled_from([Budget(), Budget(min_snr=-3.5), Budget(target_size=10**12)]),
    effort=st.sampled_from(["fast", "balanced", "max"]),
    pruned=st.sampled_from(["", "magnitude, element"]),
)
def test_plans_are_read_as_they_are_written(tensors, budget, effort, pruned):
    plan = Plan(tensors, budget, effort, pruned)
    text = plan_to_json(plan, {name: {"role": "mlp", "predicted_bytes": 3} for name in tensors})
    read = plan_from_json(text, "plan.json")
    assert (read.budget, read.effort, read.pruned) == (budget, effort, pruned)
    assert list(read.tensors) == list(tensors)
    for name, wanted in tensors.items():
        found = read.tensors[name]
        assert (found.tree, found.reason) == (wanted.tree, wanted.reason)
        assert found.bound == (None if wanted.tree is None else wanted.bound)


def described(**changes: Any) -> str:
    """Return the text of a plan of two tensors, with changes to the first one's entry."""
    entry = {"role": "mlp", "tree": "uniform(0.5)", "bound": {"max_rel_l2": 0.1}, **changes}
    entry = {key: value for key, value in entry.items() if value is not ...}
    return json.dumps(
        {"tensorcomp_plan": 1, "tensors": {"first": entry, "second": {"tree": "lossless"}}}
    )


def test_an_edited_tree_loses_the_reason_of_the_one_before():
    plan = Plan({"a": TensorPlan(TREES[2], "best"), "b": TensorPlan(None, "exact")})
    value = json.loads(plan_to_json(plan, {}))
    value["tensors"]["a"]["tree"] = "raw"
    read = plan_from_json(json.dumps(value), "plan.json").tensors
    assert (read["a"].reason, read["b"].reason) == ("the plan, edited", "exact")


def test_little_is_needed():
    plan = plan_from_json(described(role=..., bound=...), "plan.json")
    assert plan.tensors["first"] == TensorPlan(parse_tree("uniform(0.5)"))
    assert plan.tensors["second"] == TensorPlan()
    assert plan.budget == Budget()
    assert (plan.effort, plan.pruned) == ("balanced", "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tree": ...}, "expected a tree"),
        ({"tree": 3}, "expected a tree"),
        ({"tree": "unifrom(0.5)"}, "unifrom"),
        ({"tree": "uniform($step)"}, "cannot read"),
        ({"tree": "zstd"}, "root"),
        ({"role": "atention"}, "atention"),
        ({"role": ["mlp"]}, "role"),
        ({"bound": 3}, "bound"),
        ({"bound": {"min_snr": 30}}, "min_snr"),
        ({"bound": {"max_rel_l2": "small"}}, "small"),
        ({"bound": {"max_rel_l2": -1}}, "above 0"),
        ({"bound": {"max_rel_l2": math.nan}}, "above 0"),
    ],
)
def test_every_fault_of_a_tensor_is_named(changes, words):
    with pytest.raises(PlanError, match=r"^plan.json: 'first': ") as caught:
        plan_from_json(described(**changes), "plan.json")
    assert words in str(caught.value)


def test_all_faults_are_listed():
    tensors = {f"t{number}": {"tree": f"codec{number}"} for number in range(12)}
    with pytest.raises(PlanError) as caught:
        plan_from_json(json.dumps({"tensorcomp_plan": 1, "tensors": tensors}), "plan.json")
    message = str(caught.value)
    assert all(f"'t{number}'" in message and f"codec{number}" in message for number in range(8))
    assert message.endswith("and 4 more")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a plan in JSON"),
        ("{", "expected a plan in JSON"),
        pytest.param("[" * 100_000, "expected a plan in JSON", id="deep"),
        ("[]", "expected a plan of version 1"),
        ('{"tensors": {}}', "expected a plan of version 1"),
        ('{"tensorcomp_plan": 2, "tensors": {}}', "version 1"),
        ('{"tensorcomp_plan": 1}', "tensors"),
        ('{"tensorcomp_plan": 1, "tensors": []}', "tensors"),
        ('{"tensorcomp_plan": 1, "tensors": {"a": 3}}', "'a'"),
        ('{"tensorcomp_plan": 1, "tensors": {}, "effort": "some"}', "effort"),
        ('{"tensorcomp_plan": 1, "tensors": {}, "effort": ["fast"]}', "effort"),
        ('{"tensorcomp_plan": 1, "tensors": {}, "pruned": 3}', "expected 'pruned'"),
        ('{"tensorcomp_plan": 1, "tensors": {}, "budget": 3}', "budget"),
        ('{"tensorcomp_plan": 1, "tensors": {}, "budget": {"size": 3}}', "size"),
        ('{"tensorcomp_plan": 1, "tensors": {}, "budget": {"min_snr": "x"}}', "min_snr"),
    ],
)
def test_what_is_no_plan_is_refused(text, words):
    with pytest.raises(PlanError, match=r"^plan.json: ") as caught:
        plan_from_json(text, "plan.json")
    assert words in str(caught.value)


def test_names_must_be_those_of_the_checkpoint():
    plan = Plan(dict.fromkeys(["a", "b", "c"], TensorPlan()))
    check_names(plan, ["c", "b", "a"], "plan.json")
    with pytest.raises(PlanError, match=r"do not exist: 'a', 'b'$"):
        check_names(plan, ["c"], "plan.json")
    with pytest.raises(PlanError, match=r"lacks 'd', 'e'$"):
        check_names(plan, list("abcde"), "plan.json")
    with pytest.raises(PlanError, match="do not exist: 'c'; lacks 'd'"):
        check_names(plan, list("abd"), "plan.json")
    with pytest.raises(PlanError, match="and 95 more"):
        check_names(plan, [*"abc", *map(str, range(100))], "plan.json")


def test_the_plan_of_one_file_has_its_own_names_and_no_budget():
    first, second = TensorPlan(reason="1"), TensorPlan(reason="2")
    plan = Plan({"x:a": first, "b": second}, Budget(target_size=9), "max")
    own = plan.of({"a": "x:a"})
    assert own == Plan({"a": first}, Budget(), "max")
