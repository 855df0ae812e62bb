import re
from pathlib import Path

import pytest

from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.errors import PlanError
from tensorcomp.planning.roles.classify import (
    ROLES,
    SELECTORS,
    RoleDecision,
    check_selector,
    classify,
    classify_all,
    is_selector,
    matches_role,
)
from tensorcomp.planning.roles.rules import (
    RULES,
    MatchingRules,
    Place,
    RoleRule,
    numbered_alike,
)

# By name: lines of role | name | shape.
FAMILIES: dict[str, list[str]] = {}
for line in Path(__file__).with_name("role_families.txt").read_text().splitlines():
    if line.startswith("["):
        FAMILIES[line[1:-1]] = family_lines = []
    elif line and not line.startswith("#"):
        family_lines.append(line)


def info(name: str, *shape: int, dtype: str = "F32") -> TensorInfo:
    return TensorInfo(name, dtype, shape, 0)


def family(lines: list[str]) -> tuple[dict[str, RoleDecision], dict[str, str]]:
    """Return the roles that are found in a family, and those that are right."""
    infos, wanted = [], {}
    for line in lines:
        role, name, shape = (cell.strip() for cell in line.split("|"))
        infos.append(info(name, *map(int, shape.split())))
        wanted[name] = role
    return classify_all(infos), wanted


@pytest.mark.parametrize("model", FAMILIES)
def test_every_tensor_of_well_known_models(model):
    found, wanted = family(FAMILIES[model])
    assert {name: item.role for name, item in found.items()} == wanted
    assert all(item.reason for item in found.values())


def test_the_families_reach_almost_every_rule():
    reached = set()
    for lines in FAMILIES.values():
        found, _ = family(lines)
        reached |= {decision.role for decision in found.values()}
    assert set(ROLES) - reached <= {
        "integer",
        "boolean",
        "complex",
        "opaque",
        "optimizer",
        "attention",
        "scalar",
        "other",
    }


def spelled(rule: RoleRule) -> str:
    return rule.example["name"].lower().replace("/", ".")


def rule_id(rule: RoleRule) -> str:
    return f"{rule.role}-{rule.example['name']}"


@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_every_line_of_the_table_decides_its_own_example(rule):
    name, shape = spelled(rule), tuple(rule.example.get("shape", (64, 64)))
    around = {other: tuple(size) for other, size in rule.example.get("around", {}).items()}
    embeddings = [size for other, size in around.items() if "embedding" in other]
    place = Place(name, shape, {**around, name: shape}, lambda: embeddings)
    assert MatchingRules(name).first_fitting(place) is rule


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "role"),
    [
        ("bn1.num_batches_tracked", "I64", (), "integer"),
        ("embeddings.position_ids", "I64", (1, 512), "integer"),
        ("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", (32, 8), "integer"),
        ("optimizer.state.0.step", "I64", (), "step"),
        ("attn.mask", "BOOL", (9, 9), "boolean"),
        ("freqs_cis", "C64", (9, 9), "table"),
        ("spectrum", "C64", (9, 9), "complex"),
        ("q_proj.weight_scale", "F8_E8M0", (9, 9), "scale"),
        ("packed", "F4", (9, 9), "opaque"),
        ("new", "F99", (9, 9), "opaque"),
        ("q_proj.weight", "F8_E4M3", (9, 9), "attention.q"),
        ("q_proj.weight", "BF16", (9, 9), "attention.q"),
        ("w", "F32", (8, 3), "matrix"),
        ("w", "F32", (8,), "vector"),
        ("w", "F32", (), "scalar"),
        ("", "F32", (), "scalar"),
        ("", "F32", (0, 4), "matrix"),
        ("w", "F32", (2,) * 9, "conv"),
        ("w", "F32", (4, 64, 64), "other"),
        ("a\nb.q_proj.\x00", "F32", (4, 4), "attention.q"),
    ],
)
def test_types_shapes_and_odd_names(name, dtype, shape, role):
    assert classify(name, dtype, shape) == role
    assert classify_all([TensorInfo(name, dtype, shape, 0)])[name].role == role


def test_neighbours_tell_what_a_name_does_not():
    alone = classify("features.1.weight", "F32", (64,)), classify("1.bias", "F32", (64,))
    assert alone == ("norm", "bias")
    together = classify_all([info("1.weight", 64), info("1.bias", 64), info("1.running_mean", 64)])
    assert [decision.role for decision in together.values()] == ["norm"] * 3
    assert together["1.bias"].reason == "beside running_mean"
    linear = classify_all([info("1.weight", 64, 32), info("1.bias", 64)])
    assert [decision.role for decision in linear.values()] == ["matrix", "bias"]


def test_a_gate_is_a_router_unless_the_layer_beside_it_has_its_shape():
    moe = classify_all([info("mlp.gate.weight", 8, 64), info("mlp.experts.0.up.weight", 16, 64)])
    assert moe["mlp.gate.weight"].role == "router"
    gated = classify_all([info("mlp.gate.weight", 48, 64), info("mlp.up.weight", 48, 64)])
    assert gated["mlp.gate.weight"].role == "mlp"
    assert classify("feed_forward.gate.weight", "F32", (448, 160)) == "mlp"


def test_a_matrix_of_an_embedding_s_shape_is_a_head():
    infos = [info("embed.weight", 99, 64), info("out.weight", 99, 64), info("x.weight", 64, 64)]
    found = classify_all(infos)
    assert [decision.role for decision in found.values()] == ["embedding", "head", "matrix"]
    square = classify_all([info("embed.weight", 64, 64), info("x.weight", 64, 64)])
    assert square["x.weight"].role == "matrix"


def test_selectors():
    assert matches_role("attention", "attention")
    assert matches_role("attention", "attention.qkv")
    assert not matches_role("attention.q", "attention.qkv")
    assert not matches_role("attention.q", "attention")
    assert matches_role("moment", "moment.second")
    linear = {role for role in ROLES if matches_role("linear", role)}
    assert linear == {
        "attention",
        *(f"attention.{part}" for part in ("q", "k", "v", "o", "qkv")),
        "mlp",
        "recurrent",
        "head",
        "matrix",
    }
    assert all(matches_role("all", role) for role in ROLES)
    assert all(is_selector(role) for role in ROLES)
    assert {"moment", "linear", "all"} <= set(SELECTORS)
    check_selector("linear")
    with pytest.raises(PlanError, match=r"role of all, attention, attention\.k.*got 'atention'"):
        check_selector("atention")


def test_a_name_of_any_length_takes_little_time():
    name = "attn." * 20_000 + "x"
    assert classify(name, "F32", (4, 4)) == "attention"
    assert classify("a" * 100_000, "F32", (4, 4)) == "matrix"
    assert classify("a_" * 50_000, "F32", (4, 4)) == "matrix"


@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_no_pattern_cares_which_number_a_layer_has(rule):
    names = set(map(spelled, RULES))
    for name in names | {f"layers.{name}" for name in names}:
        for number in (1, 27, 345):
            other = re.sub(r"(?:^|(?<=\.))\d+(?=\.|$)", str(number), name)
            assert numbered_alike(other) == numbered_alike(name)
            assert rule.is_in(other) == rule.is_in(numbered_alike(name))
