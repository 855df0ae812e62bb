"""Pruning of stored checkpoints: which tensors, which weights, and that nothing else is touched."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.errors import CheckpointError, PruningError
from tensorcomp.pruning import NM, Pruning, Statistics, prune_to_error
from tensorcomp.selection.stored.select import pruned_sources

TYPES = [
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
]


def weights(*shape: int, seed: int = 0, dtype=np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def model() -> dict[str, np.ndarray]:
    return {
        "layers.0.mlp.up_proj.weight": weights(12, 8, seed=1),
        "layers.0.mlp.up_proj.bias": weights(12, seed=2),
        "layers.0.self_attn.q_proj.weight": weights(8, 8, seed=3, dtype=ml_dtypes.bfloat16),
        "conv1.weight": weights(4, 3, 3, 3, seed=4, dtype=np.float16),
        "embed_tokens.weight": weights(20, 8, seed=5),
        "norm.weight": weights(8, seed=6),
        "position_ids": np.arange(64),
    }


QUERY = "layers.0.self_attn.q_proj.weight"
PRUNED = {"conv1.weight", "layers.0.mlp.up_proj.weight", "layers.0.self_attn.q_proj.weight"}


def prune(tensors: dict[str, np.ndarray], pruning: Pruning, **asked) -> dict[str, np.ndarray]:
    """Return the tensors as they are read after pruning."""
    source = MemoryCheckpoint(tensors)
    (pruned,) = pruned_sources([source], pruning, threads=1, **asked)
    assert (pruned.tensors, pruned.nbytes) == (source.tensors, source.nbytes)
    assert pruned.template() == source.template()
    return {
        name: pruned.read(name).view(array.dtype).reshape(array.shape)
        for name, array in tensors.items()
    }


def words(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(f"u{array.itemsize}")


def lowest(tensors: dict[str, np.ndarray], names: set[str], k: int) -> dict[str, np.ndarray]:
    """Return what dropping the k lowest by (magnitude, name, index) leaves: +0.0 there."""
    order = sorted(names)
    flat = np.concatenate([np.abs(tensors[n].astype(np.float64)).reshape(-1) for n in order])
    dropped = np.zeros(flat.size, np.bool_)
    dropped[np.argsort(flat, kind="stable")[:k]] = True
    left, start = dict(tensors), 0
    for name in order:
        array = tensors[name]
        part = dropped[start : start + array.size]
        left[name] = np.where(part, 0, words(array)).view(array.dtype).reshape(array.shape)
        start += array.size
    return left


def assert_bits(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    for name, array in wanted.items():
        np.testing.assert_array_equal(words(found[name]), words(array), err_msg=name)


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_as_many_weights_as_asked_for_are_dropped_over_all_tensors(sparsity):
    tensors = model()
    total = sum(tensors[name].size for name in PRUNED)
    found = prune(tensors, Pruning("magnitude", sparsity, floor=0))
    assert_bits(found, lowest(tensors, PRUNED, round(sparsity * total)))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
@given(st.data())
def test_ties_grids_and_signs_in_every_float_type(dtype, data):
    few = st.sampled_from([-2.0, -0.5, -0.0, 0.0, 0.5, 1.0])
    values = data.draw(st.lists(few, min_size=24, max_size=24))
    tensors = {
        "b.weight": np.array(values[:12]).reshape(3, 4).astype(dtype),
        "a.weight": np.array(values[12:]).reshape(4, 3).astype(dtype),
    }
    sparsity = data.draw(st.floats(0, 1))
    found = prune(tensors, Pruning(sparsity=sparsity, floor=0, where="*.weight"))
    names, k = set(tensors), round(sparsity * 24)  # other shapes: never one weight
    assert_bits(found, lowest(tensors, names, k))


def test_what_is_not_selected_is_passed_on_without_a_copy():
    source = MemoryCheckpoint(model())
    (pruned,) = pruned_sources([source], Pruning(sparsity=0.5))
    for info in source.tensors:
        same = np.shares_memory(pruned.read(info.name), source.read(info.name))
        assert same == (info.name not in PRUNED)
        assert pruned.is_selected(info.name) == (info.name in PRUNED)


def test_the_record_tells_count_and_cost():
    tensors = {"a.weight": np.array([[3.0, 0.0, -1.0, 2.0]], np.float32)}
    (pruned,) = pruned_sources([MemoryCheckpoint(tensors)], Pruning("magnitude", 0.5))
    done = pruned.prune("a.weight")
    assert done is not None
    assert (done.record.score, done.record.granularity, done.record.count) == (
        "magnitude",
        "element",
        2,  # the zero, which was one before, and -1
    )
    assert done.record.rel_l2 == pytest.approx(np.sqrt(1 / 14), rel=1e-15)
    assert done.data.view(np.float32).tolist() == [3, 0, 0, 2]
    assert pruned.planned()["a.weight"].count == 2


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (None, PRUNED),
        ("conv", {"conv1.weight"}),
        (["conv", "mlp"], {"conv1.weight", "layers.0.mlp.up_proj.weight"}),
        ("layers.*.weight", PRUNED - {"conv1.weight"}),
        ("embed_tokens.weight", {"embed_tokens.weight"}),
        ("all", set(model()) - {"position_ids"}),
        ("*", set(model()) - {"position_ids"}),
    ],
)
def test_where_selects_by_role_name_and_pattern(where, names):
    source = MemoryCheckpoint(model())
    (pruned,) = pruned_sources([source], Pruning(sparsity=0.5, where=where))
    assert {info.name for info in source.tensors if pruned.is_selected(info.name)} == names


def test_a_sparsity_for_each_tensor_selects_those_tensors():
    tensors = model()
    found = prune(tensors, Pruning(sparsity={"conv1.weight": 0.5, "norm.weight": 0.25}))
    zeros = {name: np.count_nonzero(array == 0) for name, array in found.items()}
    assert zeros.pop("position_ids") == 1
    assert {name: count for name, count in zeros.items() if count} == {
        "conv1.weight": 54,
        "norm.weight": 2,
    }
    with pytest.raises(PruningError, match=r"where='absent' selects no tensor"):
        prune(tensors, Pruning(sparsity={"absent": 0.5}))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("score", ["magnitude", "random(1)"])
def test_nan_and_infinity_are_named(bad, score):
    tensors = model()
    tensors["conv1.weight"][1, 1, 1, 1] = bad
    with pytest.raises(PruningError, match=r"'conv1\.weight'"):
        prune(tensors, Pruning(score, 0.5))
    prune(tensors, Pruning(score, 0.5, where="layers.*"))


def test_squares_beyond_float64_are_refused():
    with pytest.raises(PruningError, match="squares of its weights"):
        prune({"a.weight": np.full((2, 2), 1e200)}, Pruning(sparsity=0.5))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "how much is to be pruned is not said"),
        (
            {"sparsity": 0.5, "max_rel_l2": 0.1},
            "one target of pruning, got sparsity and max_rel_l2",
        ),
        ({"score": "absent", "sparsity": 0.5}, "no score is called 'absent'"),
        ({"sparsity": 0.5, "granularity": "absent"}, "no granularity is called 'absent'"),
    ],
)
def test_a_request_that_means_nothing_is_refused_at_once(asked, message):
    with pytest.raises(PruningError, match=message):
        Pruning(**asked)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"sparsity": 1.5}, "from 0 to 1"),
        ({"sparsity": 1.0, "floor": 0.5}, "cannot be pruned"),
        ({"where": "nothing", "sparsity": 0.5}, "where='nothing' selects no tensor"),
        ({"where": ["conv", "nothing"], "sparsity": 0.5}, "where='nothing' selects no tensor"),
        ({"where": "position_ids", "sparsity": 0.5}, "selects no tensor of floats"),
        ({"where": (), "sparsity": 0.5}, "empty"),
        ({"score": "snip", "sparsity": 0.5}, "needs the statistic 'snip'"),
        ({"score": "obd", "sparsity": 0.5}, "training checkpoint that holds Adam's state"),
        ({"granularity": "nm(2, 4)", "where": "conv"}, "which 4 does not divide"),
        ({"granularity": "nm(2, 4)", "sparsity": 0.6, "where": "mlp"}, "says by itself"),
        ({"granularity": "row", "sparsity": 0.5, "where": "conv"}, "expected a matrix"),
        (
            {"granularity": "row", "sparsity": {"conv1.weight": 0.5, QUERY: 0.5}},
            r"'conv1\.weight' cannot be pruned: row: expected a matrix",
        ),
        ({"sparsity": 0.5, "scope": "row", "granularity": "filter"}, "scope row"),
    ],
)
def test_what_cannot_be_is_one_clear_error(asked, message):
    with pytest.raises(PruningError, match=message) as raised:
        prune(model(), Pruning(**asked))
    assert "\n" not in str(raised.value)


def test_no_layers_at_all_ask_for_where():
    with pytest.raises(PruningError, match="say what is by 'where'"):
        prune({"norm.weight": weights(8)}, Pruning(sparsity=0.5))


def test_structured_granularities():
    tensors = {"mlp.weight": np.array([[1, 1], [3, 3], [2, -2], [0, 4]], np.float32)}
    rows = prune(tensors, Pruning(sparsity=0.5, granularity="row"))["mlp.weight"]
    assert rows.tolist() == [[0, 0], [3, 3], [0, 0], [0, 4]] or rows.tolist() == [
        [0, 0],
        [3, 3],
        [2, -2],
        [0, 0],
    ]
    pairs = prune(tensors, Pruning(granularity=NM(1, 2)))["mlp.weight"]
    assert pairs.tolist() == [[0, 1], [0, 3], [0, -2], [0, 4]]  # the first of equals goes


def statistics(**arrays: np.ndarray) -> Statistics:
    return Statistics({"snip": arrays, "input_norm": {}}, 1, 1)


def test_scores_from_statistics_and_their_names():
    tensors = {
        "model.a.weight": np.ones((2, 2), np.float32),
        "model.b.weight": np.ones((2, 2), np.float16),
    }
    scores = {
        "a.weight": np.array([[4, 1], [6, 7]], np.float32),
        "b.weight": np.array([[8, 5], [2, 3]], np.float32),
    }
    for prefix in ("", "model.", "wrapped.model."):
        named = {prefix + name: array for name, array in scores.items()}
        asked = Pruning("snip", 0.5, stats=statistics(**named), where="*.weight")
        found = prune(tensors, asked)
        assert found["model.a.weight"].tolist() == [[0, 0], [1, 1]]
        assert found["model.b.weight"].astype(int).tolist() == [[1, 1], [0, 0]]


def test_statistics_that_do_not_fit_are_refused(tmp_path):
    tensors = {"a.weight": weights(2, 2), "b.weight": weights(2, 2, seed=1)}
    fits = np.ones((2, 2), np.float32)
    cases = [
        (
            Statistics({"snip": {}}, unreached=("a.weight", "b.weight")),
            "'snip' of tensor 'a.weight', got none: no sample of the calibration reaches it",
        ),
        (statistics(**{"a.weight": fits, "b.weight": np.ones((2, 3))}), "of another model"),
        (Statistics({"taylor": {"a.weight": fits}}), "expected the statistic 'snip'"),
        (
            statistics(**{"c.weight": fits}),
            r"or of other tensors of it: of 'c\.weight', not of 'a\.weight', 'b\.weight'",
        ),
    ]
    for stats, message in cases:
        with pytest.raises(PruningError, match=message):
            prune(tensors, Pruning("snip", 0.5, stats=stats, where="*.weight"))
    with pytest.raises(PruningError, match="magnitude needs no statistics"):
        prune(tensors, Pruning("magnitude", 0.5, stats=cases[1][0], where="*.weight"))
    with pytest.raises(CheckpointError, match="no such file"):
        prune(tensors, Pruning("snip", 0.5, stats=tmp_path / "absent", where="*.weight"))
    broken = {"a.weight": fits, "b.weight": np.full((2, 2), np.nan, np.float32)}
    with pytest.raises(PruningError, match=r"'b\.weight'.*NaN"):
        prune(tensors, Pruning("snip", 0.5, stats=statistics(**broken), where="*.weight"))


def test_statistics_are_read_from_a_file(tmp_path):
    tensors = {"a.weight": np.ones((2, 2), np.float32)}
    measured = statistics(**{"a.weight": np.array([[1, 4], [3, 2]], np.float32)})
    measured.save(tmp_path / "stats.safetensors")
    asked = Pruning("snip", 0.5, stats=tmp_path / "stats.safetensors", where="*.weight")
    assert prune(tensors, asked)["a.weight"].tolist() == [[0, 1], [1, 0]]


def test_equal_tensors_are_one_weight():
    # Were they two, the tie at the middle would be cut within the first.
    same = np.array([[1, 2], [2, 3]], np.float32)
    tensors = {"b.weight": same, "a.weight": same.copy(), "c.weight": same * 2}
    found = prune(tensors, Pruning(sparsity=0.5, where="*.weight"))
    assert found["a.weight"].tolist() == found["b.weight"].tolist() == [[0, 0], [0, 3]]
    assert found["c.weight"].tolist() == [[0, 4], [4, 6]]


def test_equal_tensors_with_statistics_of_their_own_are_two():
    same = np.ones((2, 2), np.float32)
    tensors = {"a.weight": same, "b.weight": same.copy()}
    own = {
        "a.weight": np.array([[1, 2], [3, 4]], np.float32),
        "b.weight": np.array([[4, 3], [2, 1]], np.float32),
    }
    found = prune(tensors, Pruning("snip", 0.5, stats=statistics(**own), where="*.weight"))
    assert found["a.weight"].tolist() == [[0, 0], [1, 1]]
    assert found["b.weight"].tolist() == [[1, 1], [0, 0]]
    one = statistics(**{"b.weight": own["b.weight"]})  # what calibrate finds of tied weights
    tied = prune(tensors, Pruning("snip", 0.5, stats=one, where="*.weight"))
    assert tied["a.weight"].tolist() == tied["b.weight"].tolist() == [[1, 1], [0, 0]]


def test_several_files_are_pruned_as_one():
    tensors = model()
    whole = prune(tensors, Pruning(sparsity=0.7))
    names = sorted(tensors)
    parts = [{name: tensors[name] for name in names[start::3]} for start in range(3)]
    sources = [MemoryCheckpoint(part) for part in parts]
    pruned = pruned_sources(sources, Pruning(sparsity=0.7))
    for part, source in zip(parts, pruned, strict=True):
        for name, array in part.items():
            np.testing.assert_array_equal(source.read(name), words(whole[name]).view(np.uint8))
            assert array is tensors[name]


def test_files_that_share_names_are_told_apart_by_keys():
    first, second = {"a.weight": weights(4, 4, seed=1)}, {"a.weight": weights(4, 4, seed=2)}
    keys = [{"a.weight": "x:a.weight"}, {"a.weight": "y:a.weight"}]
    sources = [MemoryCheckpoint(first), MemoryCheckpoint(second)]
    one, two = pruned_sources(sources, Pruning(sparsity=0.5, where="a.*"), keys)
    both = {"x:a.weight": first["a.weight"], "y:a.weight": second["a.weight"]}
    wanted = lowest(both, set(both), 16)
    np.testing.assert_array_equal(one.read("a.weight").view(np.uint32), words(wanted["x:a.weight"]))
    np.testing.assert_array_equal(two.read("a.weight").view(np.uint32), words(wanted["y:a.weight"]))
    one, two = pruned_sources(sources, Pruning(sparsity={"y:a.weight": 0.5}), keys)
    assert not one.is_selected("a.weight")
    assert two.is_selected("a.weight")


def test_masks_and_codebooks_are_never_pruned():
    tensors = {
        "fc1.weight": weights(40, 30, seed=1),
        "unnamed": (weights(40, 30, seed=2) > 0).astype(np.float32),
        "some_mask": weights(40, 30, seed=3),
        "quantizer.layers.0.codebook.embed": weights(40, 30, seed=4),
        "rotary_emb.cos_cached": weights(40, 30, seed=5),
        "conv.weight_v": weights(8, 8, 5, seed=6),
    }
    for where in (None, "all", ("*", "!*cos*", "!direction")):
        left = prune(tensors, Pruning(sparsity=0.5, where=where))
        changed = {name for name in tensors if not np.array_equal(left[name], tensors[name])}
        assert changed == {"fc1.weight"}
    left = prune(tensors, Pruning(sparsity=0.5, where="table"))
    assert (left["rotary_emb.cos_cached"] == 0).mean() == 0.5
    for where in ("mask", "codebook", "quantizer*"):
        with pytest.raises(PruningError, match="masks and codebooks are never pruned"):
            prune(tensors, Pruning(sparsity=0.5, where=where))


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("!conv", PRUNED - {"conv1.weight"}),
        (["!*q_proj*", "!mlp"], {"conv1.weight"}),
        (["all", "!norm", "!bias", "!embed*"], PRUNED),
        (["mlp", "!norm"], {"layers.0.mlp.up_proj.weight"}),
    ],
)
def test_where_may_leave_out(where, names):
    tensors = model()
    left = prune(tensors, Pruning(sparsity=0.5, where=where))
    assert {name for name in tensors if not np.array_equal(left[name], tensors[name])} == names


@pytest.mark.parametrize(
    ("where", "words"),
    [("!lm_haed", "'lm_haed' selects no"), (["mlp", "!mlp"], "'mlp', '!mlp' leaves no")],
)
def test_what_leaves_out_nothing_or_all_is_refused(where, words):
    with pytest.raises(PruningError, match=words):
        prune(model(), Pruning(sparsity=0.5, where=where))


@pytest.mark.parametrize(
    "asked",
    [
        {"granularity": "nm(2, 4)"},
        {"granularity": "row", "sparsity": 0.5},
        {"granularity": "block(4, 4)", "max_rel_l2": 0.9},
    ],
)
def test_layers_that_do_not_suit_a_granularity_are_skipped_and_listed(asked):
    tensors = model()
    (found,) = pruned_sources([MemoryCheckpoint(tensors)], Pruning(**asked), threads=1)
    assert list(found.unpruned) == ["conv1.weight"]
    assert "'conv1.weight'" in found.unpruned["conv1.weight"]
    assert "where" not in found.unpruned["conv1.weight"]
    assert set(found.planned()) == PRUNED - {"conv1.weight"}
    left = prune(tensors, Pruning(**asked))
    assert np.array_equal(left["conv1.weight"], tensors["conv1.weight"])
    assert (left[QUERY] == 0).any()


@pytest.mark.parametrize("where", [None, "all", ["linear", "conv"]])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_tensors_without_a_statistic_are_left_and_the_cause_is_named(tmp_path, where, prefix):
    tensors = model()
    norms = {prefix + QUERY: np.ones(8, np.float32)}
    unreached = (prefix + "layers.0.mlp.up_proj.weight",)
    measured = Statistics({"input_norm": norms}, 1, 1, unreached)
    measured.save(tmp_path / "stats.safetensors")
    asked = Pruning("wanda", 0.5, stats=tmp_path / "stats.safetensors", where=where)
    (found,) = pruned_sources([MemoryCheckpoint(tensors)], asked, threads=1)
    assert set(found.planned()) == {QUERY}
    why = found.unpruned
    assert why["layers.0.mlp.up_proj.weight"] == "no sample of the calibration reaches it"
    assert why["conv1.weight"].startswith("calibrate measured no input_norm of it")
    left = prune(tensors, asked)
    changed = {name for name in tensors if not np.array_equal(left[name], tensors[name])}
    assert changed == {QUERY}
    assert (left[QUERY] == 0).mean() == 0.5


def masked_layer(density: float = 0.3, dtype=np.float32) -> dict[str, np.ndarray]:
    mask = np.random.default_rng(9).random((40, 30)) < density
    return {
        "fc.weight_orig": weights(40, 30, seed=7, dtype=dtype),
        "fc.weight_mask": mask.astype(dtype),
        "fc.bias": weights(40, seed=8),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("score", ["magnitude", "random(3)", "lamp"])
@pytest.mark.parametrize("sparsity", [0.5, 0.8, 0.95])
def test_zeros_of_a_mask_are_zeros_of_the_weight(score, sparsity, dtype):
    tensors = masked_layer(0.4, dtype)
    left = prune(tensors, Pruning(score, sparsity))
    assert np.array_equal(left["fc.weight_mask"], tensors["fc.weight_mask"])
    mask = tensors["fc.weight_mask"] != 0
    effective = left["fc.weight_orig"].astype(np.float32) * mask
    lost = round(sparsity * mask.size)
    assert np.count_nonzero(effective == 0) == max(lost, np.count_nonzero(~mask))
    if score == "magnitude":
        before = np.abs(tensors["fc.weight_orig"].astype(np.float32) * mask)
        assert before[effective == 0].max() <= before[effective != 0].min()


def test_scores_of_rows_statistics_and_errors_count_the_mask():
    tensors = masked_layer()
    mask = tensors["fc.weight_mask"] != 0
    stats = Statistics({"snip": {"fc.weight": np.ones((40, 30), np.float32)}})
    left = prune(tensors, Pruning("snip", 0.75, stats=stats))
    assert np.count_nonzero(left["fc.weight_orig"] * mask == 0) == 900
    rows = prune(tensors, Pruning(sparsity=0.5, scope="row"))["fc.weight_orig"] * mask
    assert ((rows == 0).sum(axis=1) >= 15).all()
    assert np.count_nonzero(rows) == np.minimum(mask.sum(axis=1), 15).sum()
    found = prune_to_error(tensors, 0.5)
    assert not found.masks["fc.weight_orig"][~mask].all()
    left_out = tensors["fc.weight_orig"] * ~found.masks["fc.weight_orig"]
    assert np.linalg.norm(left_out) <= 0.5 * np.linalg.norm(tensors["fc.weight_orig"])


def test_a_mask_in_another_file_counts():
    tensors = masked_layer(0.4)
    parts = [
        {"fc.weight_orig": tensors["fc.weight_orig"]},
        {"fc.weight_mask": tensors["fc.weight_mask"]},
    ]
    sources = [MemoryCheckpoint(part) for part in parts]
    first, second = pruned_sources(sources, Pruning(sparsity=0.5), threads=1)
    assert not second.planned()
    left = first.read("fc.weight_orig").view(np.float32).reshape(40, 30)
    mask = tensors["fc.weight_mask"] != 0
    assert np.count_nonzero(left * mask == 0) == np.count_nonzero(~mask)
    assert np.count_nonzero(left == 0) == 600
