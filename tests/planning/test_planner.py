from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.codecs import format_tree
from tensorcomp.dtypes import dtype_name
from tensorcomp.errors import PlanError
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.planning.allocation import AllocationProblem
from tensorcomp.planning.budgets import Bound, Budget
from tensorcomp.planning.importance import load_importance
from tensorcomp.planning.planner import Planner, Tensor
from tensorcomp.planning.profiles import PROFILES, Candidates, Profile, load_profile
from tensorcomp.planning.roles.classify import classify, roles_of

UNIFORM = Profile(
    "plain", budget=Budget(min_snr=30), candidates=(Candidates(("all",), ("uniform($step)",)),)
)


def weights(*shape: int, scale: float = 0.02, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def tensor(name: str, array: np.ndarray, role: str = "mlp", same_as: str | None = None) -> Tensor:
    info = TensorInfo(name, dtype_name(array.dtype), array.shape, array.nbytes)
    return Tensor(info, role, array, same_as)


def problem_of(planner: Planner, *tensors: Tensor) -> AllocationProblem:
    with Workers(1) as workers:
        return replace(planner.plan(iter(tensors), workers), overhead=1000)


def make_planner(**asked: Any) -> Planner:
    return CompressOptions(**asked).planner()


def planner(**asked: Any) -> Planner:
    return make_planner(**{"profile": UNIFORM, **asked})


def test_what_is_lossy_and_what_is_not():
    bad = weights(100, 100)
    bad[50, 50] = np.nan
    worse = weights(100, 100)
    worse[0, 1] = np.inf
    tensors = {
        "plain": (weights(100, 100), "mlp", "profile plain"),
        "half": (weights(100, 100).astype(ml_dtypes.bfloat16), "mlp", "profile plain"),
        "norm": (weights(100, 100), "norm", "norm is protected"),
        "router": (weights(100, 100), "router", "router is protected"),
        "small": (weights(63, 65), "mlp", "small: fewer than 4096 elements"),
        "integers": (np.arange(10_000), "integer", "no floats"),
        "nan": (bad, "mlp", "holds NaN or infinity"),
        "inf": (worse, "mlp", "holds NaN or infinity"),
        "zeros": (np.zeros((100, 100), np.float32), "mlp", None),
        "scales": (np.ones((100, 100), ml_dtypes.float8_e8m0fnu), "mlp", "no floats"),
    }
    for budget in (Budget(min_snr=30), Budget(bits_per_weight=15)):
        made = problem_of(
            planner(budget=budget),
            *(tensor(name, array, role) for name, (array, role, _) in tensors.items()),
        )
        plan = made.allocate(made.max_bytes(10**6), tensors)
        assert list(plan.tensors) == list(tensors)
        for name, (_, _, reason) in tensors.items():
            found = plan.tensors[name]
            lossy = name in ("plain", "half")
            assert (found.tree is not None) == lossy, name
            if not lossy and reason is not None:
                assert found.reason == reason


def test_the_first_rule_that_selects_counts():
    asked = planner(
        codecs=["special=affine(8)", "norm=uniform(0.25)", "all=uniform(0.5)"], budget=None
    )
    plan = problem_of(
        asked,
        tensor("special", weights(10, 10), "norm"),
        tensor("other", weights(10, 10), "norm"),
        tensor("bias", weights(100, 100), "bias"),
        tensor("small", weights(10, 10), "mlp"),
        tensor("large", weights(100, 100), "mlp"),
    ).fixed
    trees = {name: item.tree and item.tree.codec.id for name, item in plan.items()}
    assert trees == {
        "special": "affine",
        "other": "uniform",
        "bias": None,
        "small": None,
        "large": "uniform",
    }
    assert plan["special"].reason == "asked for by 'special'"
    assert plan["large"].reason == "asked for all"
    assert plan["bias"].reason == "bias is protected"


def test_integers_take_lossless_trees_that_are_asked_for_by_name():
    asked = planner(codecs=["ids=bitpack", "more=uniform(0.5)"])
    made = problem_of(asked, tensor("ids", np.arange(50)), tensor("more", np.arange(50)))
    tree = made.fixed["ids"].tree
    assert tree is not None
    assert format_tree(tree) == "bitpack"
    assert made.fixed["more"].tree is None


def test_rules_and_bounds_must_be_for_something():
    asked = planner(
        codecs=["conv=uniform(0.5)", "nowhere.*=raw"], bounds={"gone": Budget(min_snr=3)}
    )
    made = problem_of(asked, tensor("a", weights(8, 8), "conv"))
    with pytest.raises(PlanError, match=r"got 'nowhere\.\*'; .* role: .*attention"):
        asked.check_used(made)
    asked = planner(bounds={"gone": Budget(min_snr=3), "a": Budget(min_snr=3)})
    with pytest.raises(PlanError, match=r"that exist, got 'gone'$"):
        asked.check_used(problem_of(asked, tensor("a", weights(8, 8))))
    asked = planner(bounds={"a": Budget(min_snr=3)})
    asked.check_used(problem_of(asked, tensor("a", weights(8, 8))))


def test_a_bound_of_its_own_replaces_the_budget():
    own = {"a": Budget(min_snr=50), "c": Budget(max_abs_error=0.001)}
    tensors = [tensor(name, weights(100, 100)) for name in "abc"]
    for budget in (Budget(min_snr=20), Budget(bits_per_weight=8)):
        made = problem_of(planner(budget=budget, bounds=own), *tensors)
        assert made.fixed["a"].bound == Bound(max_rel_l2=10**-2.5)
        assert made.fixed["c"].bound == Bound(max_abs_error=0.001)
        assert made.fixed["a"].rel_l2 <= 10**-2.5
        assert ("b" in made.options) == budget.is_size


def test_a_free_step_needs_a_budget():
    asked = make_planner(codecs=["all=uniform($step)"])
    with pytest.raises(PlanError, match="budget"):
        problem_of(asked, tensor("a", weights(100, 100)))
    make_planner(codecs=["all=uniform($step)"], budget=Budget(min_snr=30))


def test_dear_trees_are_compared_with_lossless():
    half = weights(200, 200).astype(ml_dtypes.bfloat16)
    found = problem_of(planner(budget=Budget(min_snr=70)), tensor("a", half)).fixed["a"]
    assert found.tree is None
    assert "lossless" in found.reason or "no tree" in found.reason
    grid = np.random.default_rng(0).integers(-1, 2, (200, 200)).astype(np.float32)
    found = problem_of(planner(budget=Budget(min_snr=30)), tensor("a", grid)).fixed["a"]
    assert found.tree is None or found.rel_l2 == 0  # exact costs no more


def test_equal_tensors_share_a_plan():
    array = weights(200, 200)
    tensors = [
        tensor("a", array),
        tensor("b", array, same_as="a"),
        tensor("c", array, "norm", same_as="a"),  # protected: a plan of its own
        tensor("d", weights(200, 200, seed=1)),
    ]
    made = problem_of(planner(budget=Budget(bits_per_weight=9)), *tensors)
    assert made.copies == {"b": "a"}
    assert made.weights == 160_000
    plan = made.allocate(made.max_bytes(10**6), "abcd")
    assert plan.tensors["a"] is plan.tensors["b"]
    assert plan.tensors["c"].tree is None
    alone = problem_of(
        planner(budget=Budget(bits_per_weight=9)), tensors[0], tensors[2], tensors[3]
    ).least_bytes()
    assert made.least_bytes() == alone
    asked = planner(budget=Budget(bits_per_weight=9), bounds={"b": Budget(min_snr=60)})
    assert problem_of(asked, *tensors).copies == {}


def test_the_dearest_of_equal_tensors_counts():
    array = weights(100, 100)
    tensors = [tensor("a", array), tensor("b", array, same_as="a"), tensor("c", array + 1)]
    importance = {"a": 1.0, "b": 9.0, "c": 2.0}
    asked = planner(budget=Budget(bits_per_weight=4), importance=importance)
    assert problem_of(asked, *tensors).importance == {"a": 9.0, "c": 2.0}
    asked = planner(budget=Budget(bits_per_weight=4), importance={"a": 1.0, "b": 9.0})
    with pytest.raises(PlanError, match="'c'"):
        problem_of(asked, *tensors)


def test_problems_of_files_add_up():
    asked = planner(budget=Budget(bits_per_weight=4), codecs=["conv=affine(8)"])
    first = problem_of(asked, tensor("w", weights(100, 100)))
    second = problem_of(asked, tensor("w", weights(100, 90), "conv"), tensor("i", np.arange(7)))
    both = AllocationProblem(asked.budget, asked.effort)
    both.add(first, {"w": "x:w"})
    both.add(second, {"w": "w", "i": "i"})
    assert set(both.options) == {"x:w"}
    assert set(both.fixed) == {"w", "i"}
    assert both.weights == 10_000 + 9_000 + 7
    assert both.overhead == 2000
    asked.check_used(both)
    with pytest.raises(PlanError, match="conv"):
        asked.check_used(first)


def test_impossible_sizes_name_a_possible_one():
    made = problem_of(planner(budget=Budget(bits_per_weight=0.01)), tensor("a", weights(200, 200)))
    with pytest.raises(PlanError, match=r"50 bytes is not possible.* bits per weight$") as caught:
        made.allocate(made.max_bytes(10**6), ["a"])
    bits = float(str(caught.value).split(" bytes, ")[1].split()[0])
    asked = planner(budget=Budget(bits_per_weight=bits))
    made = problem_of(asked, tensor("a", weights(200, 200)))
    made.allocate(made.max_bytes(10**6), ["a"])


def test_nothing_to_plan():
    for budget in (Budget(min_snr=30), Budget(bits_per_weight=4)):
        made = problem_of(planner(budget=budget))
        assert made.weights == 0
        assert made.allocate(None, []).tensors == {}
    empty = problem_of(
        planner(budget=Budget(bits_per_weight=4)), tensor("e", np.zeros((0, 3), "f4"))
    )
    assert empty.fixed["e"].tree is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"profile": "transfromer"}, "transfromer"),
        ({"profile": "lossless", "budget": Budget(min_snr=30)}, "expected no budget"),
        ({"profile": "lossless", "bounds": {"a": Budget(min_snr=30)}}, "expected no budget"),
        ({"codecs": ["linear=nonsense"]}, "nonsense"),
        ({"codecs": "linear=nonsense"}, "nonsense"),
        ({"importance": {"a": 1.0}}, "bits per weight"),
        ({"importance": {"a": 1.0}, "budget": Budget(min_snr=30)}, "bits per weight"),
        ({"importance": {"a": -1.0}, "budget": Budget(bits_per_weight=3)}, "positive"),
        ({"importance": {"a": np.nan}, "budget": Budget(bits_per_weight=3)}, "positive"),
        ({"bounds": {"a": Budget(bits_per_weight=3)}}, "'a'"),
        ({"bounds": {"a": Budget()}}, "'a'"),
    ],
)
def test_what_does_not_go_together(asked, words):
    with pytest.raises(PlanError) as caught:
        make_planner(**asked)
    assert words in str(caught.value)


def test_what_is_taken_where_nothing_is_said():
    assert make_planner().is_lossless
    assert make_planner(budget=Budget()).is_lossless  # no limit: nothing may be lost
    assert make_planner(budget=Budget(min_snr=20)).profile.name == "transformer"
    assert make_planner(profile="cnn").budget.given()
    assert make_planner(profile="cnn", budget=Budget(min_snr=7)).budget == Budget(min_snr=7)
    assert make_planner(profile="memory").effort == "max"
    assert make_planner(profile="memory", effort="fast").effort == "fast"
    ruled = make_planner(codecs="linear=affine(4)", budget=Budget(min_snr=20))
    assert (ruled.profile.name, ruled.is_lossless) == ("lossless", False)


@pytest.fixture
def importance(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "importance.safetensors"
    save_file({"a": np.array([1, 3], np.float32), "b": np.array(5, np.float16)}, path)
    return path


def test_importance_of_a_file_is_the_mean_of_each_tensor(importance):
    assert load_importance(importance) == {"a": 2.0, "b": 5.0}
    asked = make_planner(importance=importance, budget=Budget(target_ratio=4))
    assert asked.importance == {"a": 2.0, "b": 5.0}


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, 0], np.float32),
        np.array([1, -2], np.float32),
        np.array([1, np.nan], np.float32),
        np.array([0x3F800000, 0x7FA00000], np.uint32).view(np.float32),  # a signaling NaN
        np.array([1, np.inf], np.float16),
        np.array([1, 2]),
        np.zeros(0, np.float32),
    ],
)
def test_importance_that_is_not_positive_is_refused(importance, array):
    save_file({"good": np.ones(2, np.float32), "bad": array}, importance)
    with pytest.raises(PlanError, match=r"positive, finite importance; change that of 'bad'$"):
        load_importance(importance)


def sinusoid(rows: int, width: int, *, interleaved: bool) -> np.ndarray:
    angles = np.arange(rows)[:, None] / 10_000 ** (np.arange(width // 2) / (width // 2))
    parts = np.sin(angles), np.cos(angles)
    return np.stack(parts, -1).reshape(rows, width) if interleaved else np.concatenate(parts, 1)


COMPUTED = {
    "rotary_emb.cos_cached": np.cos(np.arange(64)[:, None] * np.ones(128)),
    "stft.window": np.hanning(5000),
    "mel_scale.fb": np.abs(weights(100, 80)),
    "quantizer.layers.0.codebook.embed": weights(128, 64),
    "layers.0.mixer.A_log": weights(512, 16),
    "layers.0.mixer.D": weights(5120),
    "blocks.0.att.time_decay": weights(64, 64),
    "conv.weight_v": weights(64, 16, 7),
    "fc.weight_mask": (weights(64, 80) > 0).astype(np.float32),
    "unnamed": (weights(64, 80) > 0).astype(np.float32),
    "encoder.embed_positions.weight": sinusoid(100, 64, interleaved=False),
    "positions": sinusoid(100, 64, interleaved=True),
}
ASKED: list[dict[str, Any]] = [
    *(
        {"profile": name, "budget": Budget(min_snr=20)}
        for name in PROFILES
        if load_profile(name).candidates
    ),
    {"codecs": "all=affine(4, 128)"},
    {"codecs": "!lm_head=affine(4, 128)"},
]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_what_is_computed_is_kept_exactly(asked, dtype):
    arrays = {name: np.ascontiguousarray(array.astype(dtype)) for name, array in COMPUTED.items()}
    arrays |= {"lm_head": weights(80, 64), "fc1.weight": weights(80, 64)}
    roles = roles_of([tensor(name, array).info for name, array in arrays.items()])
    made = problem_of(
        make_planner(**asked), *(tensor(name, array, roles[name]) for name, array in arrays.items())
    )
    plan = made.allocate(made.max_bytes(10**6), arrays)
    assert {name for name in COMPUTED if plan.tensors[name].tree is not None} == set()
    assert plan.tensors["fc1.weight"].tree is not None
    assert (plan.tensors["lm_head"].tree is None) == ("!lm_head" in str(asked))


def test_what_is_computed_may_be_asked_for_by_name_or_role():
    for selector, name in [("table", "a.cos_cached"), ("*mask", "mask"), ("codebook", "codebook")]:
        asked = make_planner(codecs=f"{selector}=affine(4, 128)")
        array = (weights(64, 64) > 0).astype(np.float32)
        made = problem_of(asked, tensor(name, array, classify(name, "F32", array.shape)))
        assert made.fixed[name].tree is not None


def test_all_but_what_does_not_exist_is_refused():
    asked = planner(codecs="!lm_haed=affine(4, 128)")
    with pytest.raises(PlanError, match="select a tensor, got '!lm_haed'"):
        asked.check_used(problem_of(asked, tensor("lm_head", weights(64, 64))))


def test_no_lossy_tree_where_an_exact_one_takes_no_more():
    shape = (128, 256)
    rng = np.random.default_rng(0)
    arrays = {
        "signs": np.sign(rng.standard_normal(shape)),
        "pattern": (rng.random(shape) < 0.2) * -10_000.0,
        "ternary": rng.integers(-1, 2, shape) * 0.37,
        "constant": np.full(shape, 0.3),
        "sparse": np.where(rng.random(shape) < 0.01, rng.standard_normal(shape), 0),
    }
    asked: list[dict[str, Any]] = [
        {"codecs": "all=affine(4, 128)"},
        {"codecs": "!norm=affine(8, 128)"},
        {"profile": "memory", "budget": Budget(min_snr=12)},
    ]
    for options in asked:
        made = problem_of(
            make_planner(**options),
            *(tensor(name, array.astype(np.float32)) for name, array in arrays.items()),
        )
        exact = {name for name, plan in made.fixed.items() if plan.tree is None}
        assert exact >= arrays.keys() - ({"ternary", "sparse"} if "profile" in options else set())
    by_name = make_planner(codecs="mlp=affine(4, 128)")
    signs = tensor("signs", arrays["signs"].astype(np.float32))
    assert problem_of(by_name, signs).fixed["signs"].tree is not None
