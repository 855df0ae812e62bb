"""Texts of compressors: what they build, where error feedback is, and what is refused."""

import subprocess
import sys

import numpy as np
import pytest

from tensorcomp.codecs import format_tree, parse_tree
from tensorcomp.codecs.text import short_tree
from tensorcomp.errors import GradientError
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
    StepInfo,
    Threshold,
    TreeCompressor,
    parse_compressor,
)
from tensorcomp.gradients.registry import compressor_ids
from tensorcomp.gradients.text import label, short
from tensorcomp.gradients.wrappers.base import leaf_of

TREE = TreeCompressor.of
PLAIN = {
    "dense": Dense(),
    "raw": TREE("raw"),
    "fp16": TREE('cast("F16", values=raw)'),
    "bf16": TREE('cast("BF16", values=raw)'),
    "int8": TREE("affine(8, 128)"),
    "int4": TREE("affine(4)"),
    "nf4": TREE("nf4"),
    "qsgd": Qsgd(),
    "qsgd(2, group=64, seed=5)": Qsgd(2, 64, 5),
    "randomk(0.01)": RandomK(0.01),
    "randomk(100, 7)": RandomK(100, 7),
    "error_bounded(max_rel_l2=0.1)": ErrorBounded(max_rel_l2=0.1),
    "error_bounded(0.1, tree=uniform(2, codes=ans))": ErrorBounded(
        max_rel_l2=0.1, tree="uniform(2, codes=ans)"
    ),
}
FED_BACK = {
    "int2": TREE("affine(2)"),
    "sign": TREE("sign"),
    "sign(64)": TREE("sign(64)"),
    "ternary": TREE("ternary"),
    "topk(0.01)": TREE("topk(0.01)"),
    " topk( 0.01 , values = affine(8), indices=gaps ) ": TREE("topk(0.01, values=affine(8))"),
    "powersgd(2)": PowerSgd(2),
    "powersgd(4, warm_start=false)": PowerSgd(4, warm_start=False),
    "randomk(0.1, scale=false)": RandomK(0.1, scale=False),
    "threshold(0.001)": Threshold(0.001),
    "threshold(1e-3, values=affine(8), indices=bitpack)": Threshold(1e-3, "affine(8)", "bitpack"),
    "adaptive_threshold(0.01, seed=3)": AdaptiveThreshold(0.01, seed=3),
    "sampled_threshold(0.01, sample=0.1, values=raw)": SampledThreshold(
        0.01, sample=0.1, values="raw"
    ),
    "error_bounded(max_abs=0.1)": ErrorBounded(max_abs=0.1),
    "error_bounded(max_rel_l2=0.5)": ErrorBounded(max_rel_l2=0.5),
}


@pytest.mark.parametrize("text", PLAIN)
def test_what_needs_no_feedback(text):
    assert parse_compressor(text) == PLAIN[text]
    assert parse_compressor(text, feedback=False) == PLAIN[text]


@pytest.mark.parametrize("text", FED_BACK)
def test_what_needs_feedback(text):
    assert parse_compressor(text) == ErrorFeedback(FED_BACK[text])
    assert parse_compressor(text, feedback=True) == ErrorFeedback(FED_BACK[text])
    assert parse_compressor(text, feedback=False) == FED_BACK[text]


@pytest.mark.parametrize("text", ["dense", "int8", "qsgd(4)", "error_bounded(max_rel_l2=0.1)"])
def test_feedback_can_be_forced(text):
    assert parse_compressor(text, feedback=True) == ErrorFeedback(PLAIN.get(text, Qsgd(4)))


def test_random_elements_are_scaled_or_fed_back():
    assert parse_compressor("randomk(0.1)", feedback=True) == ErrorFeedback(
        RandomK(0.1, scale=False)
    )
    assert parse_compressor("randomk(0.1, scale=false)", feedback=False) == RandomK(
        0.1, scale=False
    )
    with pytest.raises(GradientError, match="diverge"):
        parse_compressor("randomk(0.1, scale=true)", feedback=True)


def test_feedback_by_name():
    assert parse_compressor('feedback(int8, dtype="bfloat16", decay=0.5)') == ErrorFeedback(
        TREE("affine(8)"), "bfloat16", 0.5
    )
    assert parse_compressor('feedback("topk(0.1)")') == ErrorFeedback(TREE("topk(0.1)"))


@pytest.mark.parametrize("text", [*PLAIN, *FED_BACK])
def test_a_text_reads_the_payloads_of_its_compressor(text):
    compressor = parse_compressor(text, feedback=False)
    array = np.random.default_rng(0).standard_t(3, (40, 50)).astype(np.float32)
    spec = GradientSpec("w", array.shape)
    payload, _ = compressor.step(array, compressor.init(spec))
    reader = parse_compressor(compressor.text(), feedback=False)
    assert reader.text() == compressor.text()
    np.testing.assert_array_equal(
        reader.decode(Payload(payload.data, spec)), compressor.decode(payload)
    )


def test_deep_gradient_compression():
    from tensorcomp.gradients.wrappers.momentum import MomentumCorrection

    built = parse_compressor("dgc(0.002, momentum=0.8, clip=2.5, values=affine(8))")
    assert built == MomentumCorrection(
        ErrorFeedback(TREE("topk(0.002, values=affine(8))")), momentum=0.8, clip=2.5
    )
    assert leaf_of(parse_compressor("dgc")) == TREE("topk(0.001)")
    with pytest.raises(GradientError, match="needs feedback"):
        parse_compressor("dgc(0.001)", feedback=False)


def test_schedules():
    spec = GradientSpec("layer.weight", (100, 100))
    warm = parse_compressor("warmup(topk(0.001), steps=10, ratios=(0.25, 0.05), each=5)")
    found = [leaf_of(warm.at(StepInfo(step), spec)) for step in (0, 9, 10, 15, 20)]
    assert found == [Dense(), Dense(), *(TREE(f"topk({k})") for k in ("0.25", "0.05", "0.001"))]
    for ratios in ("0.1", "(0.1)", "(0.1,)"):
        single = parse_compressor(f"warmup(dgc(0.001), steps=1, ratios={ratios}, each=1)")
        assert leaf_of(single.at(StepInfo(1), spec)) == TREE("topk(0.1)")
    phases = parse_compressor("phases(topk(0.01), beginning=0.1, final=0.5)")
    found = [phases.at(StepInfo(0, phase), spec) for phase in ("beginning", "middle", "final")]
    assert found == [ErrorFeedback(TREE(f"topk({k})")) for k in ("0.1", "0.01", "0.5")]
    bounds = parse_compressor("phases(error_bounded(max_rel_l2=0.1), beginning=0.3, final=0.05)")
    assert bounds.at(StepInfo(0, "final"), spec) == ErrorBounded(max_rel_l2=0.05)
    for text in ("randomk(0.01)", "adaptive_threshold(0.01)", "sampled_threshold(0.01)"):
        kept = leaf_of(parse_compressor(f"phases({text}, beginning=0.5)").at(StepInfo(), spec))
        assert kept == leaf_of(parse_compressor(text.replace("0.01", "0.5")))


def test_roles():
    compressor = parse_compressor('per_role(topk(0.01), small=100, dense_roles="norm, bias")')
    norm = GradientSpec("a.norm.weight", (200,), role="norm")
    linear = GradientSpec("a.weight", (200,), role="linear")
    assert leaf_of(compressor.at(StepInfo(), norm)) == Dense()
    assert leaf_of(compressor.at(StepInfo(), linear)) == TREE("topk(0.01)")
    assert leaf_of(compressor.at(StepInfo(), GradientSpec("a.w", (99,), role="linear"))) == Dense()


def test_owners():
    compressor = parse_compressor("owners(topk(0.01))")
    assert compressor.reduction == "reduce_scatter"
    assert leaf_of(compressor) == TREE("topk(0.01)")


def test_adaptive():
    compressor = parse_compressor('adaptive(int8, "topk(0.01)", topk(0.1, values=raw), every=7)')
    inner = leaf_of(compressor)
    assert list(inner.candidates) == ["int8", "topk(0.01)", "topk(0.1, values=raw)"]
    assert inner.every == 7
    info = StepInfo(3, "beginning", {"w": "int8"})
    assert leaf_of(compressor.at(info, GradientSpec("w", (5,)))) == TREE("affine(8)")
    assert leaf_of(compressor.at(info, GradientSpec("v", (5,)))) == Dense()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a compressor's name, got the end"),
        ("topk(0.1", "expected ',' or '\\)', got the end"),
        ("qsgd(4))", "expected the end, got '\\)'"),
        ("qsgd(4,,5)", "expected an argument, got ','"),
        ("x" * 20_000, "at most 16384 characters"),
        ("int9", "no codec is called 'int9'; known: .*; compressors that are not trees: adaptive"),
        ("int8(4)", "int8: expected at most 0 arguments"),
        ("dense(4)", "dense: expected at most 0 arguments"),
        ("topk(0.1, nothing=3)", "topk"),
        ("topk(2.5)", "topk: expected keep to be a count"),
        ("qsgd(4, bits=4)", "qsgd: got 'bits' twice"),
        ("qsgd(bits=4, 5)", "qsgd: got 'bits' twice"),
        ("qsgd(levels=4)", "qsgd: expected arguments among bits, group, seed, got 'levels'"),
        ("qsgd(1, 2, 3, 4)", "qsgd: expected at most 3 arguments .bits, group, seed., got 4"),
        ("qsgd(1)", "qsgd: expected bits to be an integer from 2 to 8, got 1"),
        ("qsgd(four)", "expected a number, true, false, null or a quoted string, got 'four'"),
        ("powersgd(0)", "powersgd: expected rank to be an integer from 1, got 0"),
        ("randomk(2.0)", "randomk: expected keep to be a count"),
        ("randomk(0.1, values=raw)", "randomk: expected .*keep, seed, scale, got 'values'"),
        ("threshold", "threshold: .*'value'"),
        ("threshold(1, values=nothing)", "no codec is called 'nothing'"),
        ("error_bounded()", "expected max_rel_l2, max_abs or both"),
        ("error_bounded(0.1, tree=pq(16))", "pq cannot go on the wire"),
        ("pq", "pq cannot go on the wire: it learns a codebook"),
        ("kmeans(16)", "kmeans cannot go on the wire: .*affine"),
        ("topk(0.1, values=kmeans(16))", "kmeans cannot go on the wire"),
        ("svd(4)", "svd cannot go on the wire: .*powersgd"),
        ("rotate(values=affine(8))", "rotate"),
        ("gaps", "gaps cannot go on the wire: it codes positions, not floats"),
        ("zstd", "got the filter zstd"),
        ("warmup(steps=4)", "warmup: expected the text of an inner compressor, got none"),
        ("warmup(topk(0.1), steps=-1)", "warmup"),
        ("warmup(topk(0.1), stops=1)", "warmup: expected .* got 'stops'; did you mean 'steps'"),
        ("warmup(nothing, steps=1)", "no codec is called 'nothing'"),
        ("phases(topk(0.1))", "phases"),
        ("phases(topk(0.1), beginning=7)", "phases"),
        ("feedback(int8, decay=2)", "feedback: expected decay to be a finite number from 0 to 1"),
        ("feedback(dgc)", "dgc .*needs feedback"),
        ("adaptive(int8, often=3)", "adaptive: expected .* got 'often'"),
        ("adaptive(nothing)", "no codec is called 'nothing'"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(GradientError, match=message) as error:
        parse_compressor(text)
    assert "\n" not in str(error.value)


def test_feedback_is_one_of_three():
    with pytest.raises(GradientError, match="feedback is True, False or"):
        parse_compressor("int8", feedback="on")
    with pytest.raises(GradientError, match="a compressor is a text"):
        parse_compressor(8)


def test_every_recipe_is_parsed_somewhere_above():
    used = " ".join([*PLAIN, *FED_BACK])
    others = {"dgc", "warmup", "phases", "per_role", "owners", "adaptive", "feedback"}
    assert {name for name in compressor_ids() if name not in used} <= others


def test_parsing_imports_no_torch():
    code = (
        "import sys; from tensorcomp.gradients import parse_compressor; "
        "parse_compressor('warmup(per_role(dgc(0.001)), steps=5)'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


HOSTILE = [
    *("", "topk(", "topk(0.01))", "(" * 8000, "topk(" + "9" * 5000 + ")", "\ud800", "tópk(💥)"),
    *("feedback(" * 3000, "owners(" * 1000 + "int8" + ")" * 1000, "a" * 20_000),
    *("warmup(" * 500 + "topk(0.1)" + ")" * 500, "topk(" * 2000 + "0.01" + ")" * 2000),
    *("topk(0)", "topk(1e-400)", "dgc(0)", "threshold(1, values=svd(3))", 'cast("\n")'),
    *("warmup(topk(0.1), steps=nan)", "warmup(topk(0.1), steps=1.5)", "adaptive(int8, every=nan)"),
    *("adaptive(int8, every=3, every=4)", "adaptive(int8, candidates=(1, 2))"),
    *("per_role(int8, small=nan)", 'per_role(int8, dense_roles="nonsense")', "powersgd(nan)"),
]


@pytest.mark.parametrize("feedback", [True, False, "auto"])
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_every_bad_text_is_answered_by_one_clear_line(text, feedback):
    with pytest.raises(GradientError) as caught:
        parse_compressor(text, feedback=feedback)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


LABELS = [
    *("dense", "fp16", "bf16", "int8", "int4", "int2", "sign", "ternary", "nf4", "qsgd(4)"),
    *("topk(0.01)", "topk(100)", "topk(0.01, values=affine(8))", "threshold(0.001)"),
    *("adaptive_threshold(0.01)", "sampled_threshold(0.02, sample=0.1)", "randomk(0.01)"),
    *("powersgd(4)", "powersgd(2, warm_start=false)", "qsgd(2, group=64, seed=3)"),
    *("error_bounded(max_rel_l2=0.1)", "error_bounded(max_abs=0.001, tree=uniform(1))"),
    *("owners(topk(0.01))", "warmup(topk(0.01), steps=9, ratios=(), each=100)"),
]


@pytest.mark.parametrize("text", LABELS)
def test_a_label_is_the_recipe_as_users_write_it_and_is_read_as_the_same(text):
    compressor = parse_compressor(text, feedback=False)
    assert parse_compressor(label(compressor), feedback=False) == compressor
    if not text.startswith("warmup"):
        assert label(compressor) == text
    assert len(label(compressor)) < 70


def test_defaults_and_wrappers_are_left_out():
    full = "topk(0.01, values=affine(8, 128), indices=gaps)"
    assert label(parse_compressor(full)) == "topk(0.01, values=affine(8))"
    assert label(parse_compressor("dgc(0.02, values=affine(8))")) == "dgc(0.02, values=affine(8))"
    assert short(format_tree(parse_tree(full))) == "topk(0.01, values=affine(8))"
    assert short("no such thing") == "no such thing"


@pytest.mark.parametrize(
    "text",
    [
        "magnitude(0.9, values=kmeans(16, codes=huffman))",
        "affine(4, 128, codes=bitpack(bytes=zstd))",
        "svd(0.25, left=affine(8, -1), right=affine(8, -1))",
        "fields(mantissa_bits=2, exponent=ans(contexts=16), mantissa=bitpack)",
        'cast("F16", values=raw(bytes=zstd))',
    ],
)
def test_a_short_tree_is_no_longer_and_the_same(text):
    found = short_tree(parse_tree(text))
    assert parse_tree(found) == parse_tree(text)
    assert len(found) <= len(text)
