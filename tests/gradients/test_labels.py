"""Short texts of compressors: what tables show must say what the user asked for, and no more."""

import pytest

from tensorcomp.codecs import format_tree, parse_tree
from tensorcomp.codecs.text import short_tree
from tensorcomp.gradients import parse_compressor
from tensorcomp.gradients.labels import label, short

LABELS = [
    *("dense", "fp16", "bf16", "int8", "int4", "int2", "sign", "ternary", "nf4", "qsgd(4)"),
    *("topk(0.01)", "topk(100)", "topk(0.01, values=affine(8))", "threshold(0.001)"),
    *("adaptive_threshold(0.01)", "sampled_threshold(0.02, sample=0.1)", "randomk(0.01)"),
    *("powersgd(4)", "powersgd(2, warm_start=false)", "qsgd(2, group=64, seed=3)"),
    *("error_bounded(max_rel_l2=0.1)", "error_bounded(max_abs=0.001, tree=uniform(1))"),
    *("owners(topk(0.01))", "warmup(topk(0.01), steps=9, ratios=(), each=100)"),
]


@pytest.mark.parametrize("text", LABELS)
def test_a_label_is_the_recipe_as_users_write_it_and_is_read_as_the_same(text: str) -> None:
    compressor = parse_compressor(text, feedback=False)
    assert parse_compressor(label(compressor), feedback=False) == compressor
    if not text.startswith("warmup"):
        assert label(compressor) == text
    assert len(label(compressor)) < 70


def test_defaults_and_wrappers_are_left_out() -> None:
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
def test_a_short_tree_is_no_longer_and_the_same(text: str) -> None:
    found = short_tree(parse_tree(text))
    assert parse_tree(found) == parse_tree(text)
    assert len(found) <= len(text)
