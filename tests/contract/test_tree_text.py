import json
import math
from dataclasses import fields

import pytest
from contract_trees import OWN_TREES
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import Node, format_tree, parse_tree, tree_from_json, tree_to_json
from tensorcomp.codecs.entropy.bitpack import Bitpack
from tensorcomp.codecs.entropy.huffman import Huffman
from tensorcomp.codecs.entropy.raw import Raw
from tensorcomp.codecs.entropy.zstd import Zstd
from tensorcomp.codecs.floats.fields import Fields
from tensorcomp.codecs.registry import own_codecs
from tensorcomp.errors import PlanError
from tensorcomp.planning.profiles import parse_rule
from tensorcomp.planning.steps import check_template


def test_text_becomes_a_tree():
    wanted = Node(
        Fields(mantissa_bits=2),
        (
            ("exponent", Node(Huffman(contexts=8))),
            ("mantissa", Node(Raw(), (("bytes", Node(Zstd(level=19))),))),
        ),
    )
    texts = (
        "fields(2, exponent=huffman(8), mantissa=raw(bytes=zstd(19)))",
        "fields(mantissa_bits=2,mantissa=raw(bytes=zstd(level=19)),exponent=huffman(contexts=8))",
        "  fields ( exponent = huffman ( 8 ) ,\n mantissa = raw ( bytes = zstd ( 19 ) ) , 2 )  ",
    )
    assert [parse_tree(text) for text in texts] == [wanted] * 3


def test_parts_that_are_left_out_get_their_default():
    exponent, mantissa = parse_tree("fields").children
    assert exponent == ("exponent", Node(Huffman(contexts=8)))
    assert mantissa == ("mantissa", Node(Bitpack()))
    assert parse_tree("fields()") == parse_tree("fields")


def test_text_shows_only_what_differs_from_the_defaults():
    assert format_tree(parse_tree("huffman(contexts=1)")) == "huffman"
    assert format_tree(parse_tree("huffman(8)")) == "huffman(contexts=8)"


@pytest.mark.parametrize("text", OWN_TREES)
def test_text_and_json_are_stable(text):
    tree = parse_tree(text)
    assert parse_tree(format_tree(tree)) == tree
    assert tree_from_json(json.loads(json.dumps(tree_to_json(tree)))) == tree


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "expected a codec's name, got the end at character 0"),
        ("   ", "expected a codec's name, got the end"),
        ("7", "expected a codec's name, got '7' at character 0"),
        ("true", "expected a codec's name, got 'true' at character 0"),
        ("raw raw", "expected the end, got 'raw' at character 4"),
        ("raw)", "expected the end, got ')' at character 3"),
        ("huffman(", "got the end at character 8"),
        ("huffman(8", "expected ',' or ')', got the end at character 9"),
        ("huffman(8 2)", "expected ',' or ')', got '2' at character 10"),
        ("huffman(8,)", "expected an argument, got ')' at character 10"),
        ("huffman(,8)", "expected an argument, got ',' at character 8"),
        ("huffman(contexts=)", "expected an argument, got ')' at character 17"),
        ("huffman(contexts=raw)", "null or a quoted string, got 'raw' at character 17"),
        ("fields(exponent=8)", "expected a codec's name, got '8' at character 16"),
        ("fields(exponent=)", "expected an argument, got ')' at character 16"),
        ("raw;raw", "cannot read ';raw' at character 3"),
        ("raw  §", "cannot read '§' at character 5"),
        ("raw(bytes=zstd('a'))", "cannot read \"'a'))\" at character 15"),
        ('huffman("a)', "cannot read '\"a)' at character 8"),
        ('huffman("\\q")', "expected a JSON string, got"),
        ("huffman(8, 8)", "huffman: expected at most 1 arguments (contexts), got 8 too"),
        ("raw(8)", "raw: expected at most 0 arguments (none), got 8 too"),
        ("huffman(8, contexts=8)", "huffman: got 'contexts' twice"),
        ("uniform", "uniform: expected the argument step, got none; give uniform(step=…)"),
        ("fields(exponent=raw, exponent=raw)", "fields: got 'exponent' twice"),
        ("nonesuch", "no codec is called 'nonesuch'; known: "),
        ("fields(exponent=nonesuch)", "part 'exponent' of fields: no codec is called 'nonesuch'"),
        ("hufman", "; did you mean 'huffman'?"),
        ("fields(sign=raw)", "fields: expected parts among ['exponent', 'mantissa'], got 'sign'"),
        ("huffman(contexts=3)", "huffman: expected contexts to be one of 1, 2, 4, 8,"),
        ("fields(mantissa_bits=9)", "expected mantissa_bits to be an integer from 0 to 4, got 9"),
        ("fields(exponent=zstd)", "for part 'exponent', an array, got the filter 'zstd'"),
        ("raw(bytes=raw)", "one part, 'bytes', a filter such as zstd, got bytes=raw"),
        (
            "raw(codes=zstd)",
            "raw: expected at most one part, 'bytes', a filter such as zstd, got codes",
        ),
        ("zstd(bytes=zstd)", "zstd: expected no parts, as it filters bytes, got 'bytes'"),
        ("zstd", "at the root of a tree, got the filter zstd; put it behind a serializer"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_place(text, wanted):
    with pytest.raises(PlanError) as refusal:
        parse_tree(text)
    assert wanted in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("codec", own_codecs().values(), ids=lambda codec: codec.id)
@pytest.mark.parametrize(
    "value", ["true", "1.0", "8.0", "1e400", "-1", "-0.0", "1" + "0" * 40, '"8"', "null", "0.5"]
)
def test_arguments_of_the_wrong_kind_are_refused(codec, value):
    takes_floats = fields(codec)[:1] and "float" in str(fields(codec)[0].type)
    if takes_floats and value in ("1.0", "8.0", "0.5", "1" + "0" * 40):
        pytest.skip("a number of the right kind")
    if value == "-1" and [field.name for field in fields(codec)][:1] == ["group"]:
        pytest.skip("a row is a group")
    with pytest.raises(PlanError):
        parse_tree(f"{codec.id}({value})")


def test_depth_and_length_are_limited():
    deep = "fields(exponent=" * 12 + "raw" + ")" * 12
    assert parse_tree(format_tree(parse_tree(deep))) == parse_tree(deep)
    with pytest.raises(PlanError, match="at most 16 levels deep"):
        parse_tree("fields(exponent=" * 17 + "raw" + ")" * 17)
    with pytest.raises(PlanError, match="at most 16 levels deep"):
        parse_tree("fields(exponent=" * 900)
    with pytest.raises(PlanError, match="at most 16384 characters"):
        parse_tree(" " * 20_000)
    with pytest.raises(PlanError):
        parse_tree("(" * 16_000)


def test_deep_json_is_refused():
    value: dict[str, object] = {"id": "raw"}
    for _ in range(5000):
        value = {"id": "fields", "parts": {"exponent": value}}
    with pytest.raises(PlanError, match="at most 16 levels deep"):
        tree_from_json(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "raw",
        {},
        {"id": 7},
        {"id": "raw", "config": []},
        {"id": "raw", "config": {"level": 3}},
        {"id": "raw", "parts": []},
        {"id": "raw", "parts": {"bytes": "zstd"}},
        {"id": "raw", "parts": {"bytes": {"id": "raw"}}},
        {"id": "huffman", "config": {"contexts": [8]}},
        {"id": "huffman", "config": {"contexts": {"a": 1}}},
        {"id": "fields", "parts": {"sign": {"id": "raw"}}},
        {"id": "nonesuch"},
    ],
)
def test_json_that_is_no_tree_is_refused(value):
    with pytest.raises(PlanError):
        tree_from_json(value)


def test_json_may_leave_out_defaults():
    assert tree_from_json({"id": "fields"}) == parse_tree("fields")


@pytest.mark.parametrize(
    "children",
    [
        (("exponent", Node(Raw())),),
        (("mantissa", Node(Raw())), ("exponent", Node(Raw()))),
        (("exponent", Node(Raw())), ("mantissa", Node(Zstd()))),
        (),
    ],
)
def test_nodes_check_their_parts(children):
    with pytest.raises(PlanError):
        Node(Fields(), children)


def test_a_serializer_takes_one_filter_at_most():
    with pytest.raises(
        PlanError,
        match="such as zstd, got bytes=zstd, bytes=zstd",
    ):
        Node(Raw(), (("bytes", Node(Zstd())), ("bytes", Node(Zstd()))))


_WORDS = st.sampled_from([*"(),= ", *own_codecs(), "exponent", "bytes", "8"])


@given(st.one_of(st.lists(_WORDS).map("".join), st.text(max_size=30)))
def test_no_text_raises_anything_but_a_plan_error(text):
    try:
        tree = parse_tree(text)
    except PlanError:
        return
    assert parse_tree(format_tree(tree)) == tree


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "config", "parts", "bytes", "a"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(_JSON, st.sampled_from(list(own_codecs())))
def test_no_json_raises_anything_but_a_plan_error(value, name):
    if isinstance(value, dict) and "id" in value:
        value = {**value, "id": name}
    try:
        tree = tree_from_json(value)
    except PlanError:
        return
    assert all(not isinstance(v, float) or math.isfinite(v) for v in tree.codec.config().values())


@pytest.mark.parametrize("value", [["topk"], 5, {"id": "raw"}, None])
@pytest.mark.parametrize("parse", [parse_tree, parse_rule, check_template])
def test_what_is_no_text_is_no_tree(parse, value):
    with pytest.raises(PlanError, match="got "):
        parse(value)
