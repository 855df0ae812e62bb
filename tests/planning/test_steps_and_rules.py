import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import format_tree, parse_tree
from tensorcomp.errors import PlanError
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.lossless import EFFORTS
from tensorcomp.planning.profiles import Rule, parse_rule
from tensorcomp.planning.steps import (
    QUANTIZERS,
    check_template,
    expand_quantizer,
    has_free_step,
    instantiate,
    is_free,
    may_lose,
    rounded,
    scale_steps,
)

NESTED = "svd(0.5, left=uniform($step), right=uniform($step))"


def test_every_effort_has_a_quantizer_that_is_a_tree():
    assert set(QUANTIZERS) == set(EFFORTS)
    for effort in EFFORTS:
        tree = instantiate(expand_quantizer("$quantizer", effort), 0.25)
        assert has_free_step(tree)
        assert "0.25" in format_tree(tree)


def test_codes_of_a_trellis_are_coded_for_its_states():
    for quantizer in QUANTIZERS.values():
        tree = instantiate(quantizer, 0.25)
        if tree.codec.id == "trellis":
            codes = dict(tree.children)["codes"].codec
            assert codes.trellis == tree.codec.states


def test_bounds_on_every_element_are_kept_by_uniform():
    for effort in EFFORTS:
        bounded = expand_quantizer("$quantizer", effort, Bound(max_abs_error=1e-3))
        assert instantiate(bounded, 0.25).codec.id == "uniform"
        assert expand_quantizer("$quantizer", effort, Bound(max_rel_l2=0.1)) == QUANTIZERS[effort]


def test_a_template_is_filled_everywhere():
    tree = instantiate(NESTED, 0.125)
    steps = [codec.step for codec in tree.walk() if codec.id == "uniform"]
    assert steps == [0.125, 0.125]
    doubled = scale_steps(tree, 2)
    assert [c.step for c in doubled.walk() if c.id == "uniform"] == [0.25, 0.25]
    assert scale_steps(parse_tree("raw"), 3) == parse_tree("raw")


@pytest.mark.parametrize(
    "template",
    [
        "uniform($step)",
        "trellis($step, states=4)",
        NESTED,
        "uniform(0.5)",
        "raw",
        "threshold($step, mask=gaps, values=uniform($step, codes=huffman))",
        "rotate(16, rotated=uniform(step=+$step))",
    ],
)
@pytest.mark.parametrize("step", [1.0, 0.123456789, 3e-7])
def test_a_filled_template_is_the_tree_of_its_text(template, step):
    text = template.replace("$step", repr(rounded(step)))
    for _ in range(2):
        assert instantiate(template, step) == parse_tree(text)


def test_what_is_free_and_what_may_lose():
    assert is_free(NESTED)
    assert is_free("$quantizer")
    assert not is_free("uniform(0.5)")
    assert may_lose("uniform(0.5)")
    assert may_lose("$quantizer")
    assert not may_lose("raw(bytes=zstd)")
    assert has_free_step(parse_tree("uniform(0.5)"))
    assert not has_free_step(parse_tree("affine(4)"))


@pytest.mark.parametrize(
    "template",
    ["", "uniform(", "nonsense", "uniform($stop)", "uniform($step", "zstd", "uniform(step=-1)"],
)
def test_what_is_no_template_is_refused(template):
    with pytest.raises(PlanError):
        check_template(template)


@given(st.floats(1e-320, 1e308) | st.sampled_from([0.0, math.inf]))
def test_steps_stay_numbers_that_a_tree_can_hold(step):
    tree = instantiate("uniform($step)", step)
    for factor in (0.0, 1e-300, 0.7, 1e300, math.inf):
        found = scale_steps(tree, factor).codec.step
        assert 0 < found < math.inf
    assert rounded(rounded(step)) == rounded(step)
    if 1e-300 < step < 1e300:
        assert math.isclose(rounded(step), step, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("text", "selector", "tree"),
    [
        ("linear=uniform(0.5)", "linear", "uniform(0.5)"),
        (" attention.q = uniform( step = 0.5 ) ", "attention.q", "uniform( step = 0.5 ) "),
        ("uniform(step=0.5)", "all", "uniform(step=0.5)"),
        ("$quantizer", "all", "$quantizer"),
        ("all=raw", "all", "raw"),
        ("encoder.*.weight=affine(4, 128)", "encoder.*.weight", "affine(4, 128)"),
        ("layer[0]=raw", "layer[0]", "raw"),
    ],
)
def test_rules_are_read(text, selector, tree):
    rule = parse_rule(text)
    assert (rule.selector, rule.tree) == (selector, tree)


@pytest.mark.parametrize("text", ["", "=raw", "linear=", "linear", "a=b", "linear=zstd", "x=raw("])
def test_what_is_no_rule_is_refused(text):
    with pytest.raises(PlanError):
        parse_rule(text)


@pytest.mark.parametrize(
    ("selector", "name", "role", "selects"),
    [
        ("all", "x", "norm", True),
        ("attention", "x", "attention.q", True),
        ("attention.q", "x", "attention.k", False),
        ("linear", "x", "head", True),
        ("linear", "x", "conv", False),
        ("x", "x", "conv", True),
        ("layers.*", "layers.0.weight", "mlp", True),
        ("layers.*", "encoder.layers.0", "mlp", False),
        ("layers.?", "layers.10", "mlp", False),
        ("w[0]", "w[0]", "mlp", True),  # a name before a pattern
        ("w[0]", "w0", "mlp", True),
        ("Layer", "layer", "mlp", False),
        ("bias", "bias", "vector", True),  # a tensor that is called like a role
        ("bias", "other", "vector", False),
    ],
)
def test_selectors(selector, name, role, selects):
    assert Rule(selector, "raw").selects(name, role) is selects


def test_only_all_is_not_by_name():
    assert not Rule("all", "raw").by_name
    assert Rule("linear", "raw").by_name
    assert Rule("*", "raw").by_name
