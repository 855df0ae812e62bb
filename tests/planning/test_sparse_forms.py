"""Trees for many zeros: which forms are offered, what they save, and that zeros stay zeros."""

import math

import ml_dtypes
import numpy as np
import pytest

import tensorcomp
from tensorcomp._threads import Workers
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.codecs import decode, encode, fit, format_tree, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import byte_count, join
from tensorcomp.container.reader import CompressedFile
from tensorcomp.dtypes import dtype_name
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.lossless import (
    EFFORTS,
    any_floats,
    plan_lossless,
    probe,
    sample_rows,
    share_of_zeros,
)
from tensorcomp.planning.planner import Tensor
from tensorcomp.planning.sparse_forms import (
    MANY,
    VALUES,
    cheapest_mask,
    group_pattern,
    keeps_zeros,
    live_columns,
    sparse_forms,
    zero_keeping,
)

EVERY = 0xFFFFFFFF


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(np.float32)


def unstructured(density: float, *shape: int) -> np.ndarray:
    """Return the largest weights."""
    array = weights(*shape)
    least = np.quantile(np.abs(array), 1 - density)
    return np.where(np.abs(array) >= least, array, np.float32(0))


def grouped(keep: int, group: int, *shape: int) -> np.ndarray:
    groups = weights(*shape).reshape(-1, group)
    np.put_along_axis(groups, np.argsort(np.abs(groups), axis=1)[:, : group - keep], 0, axis=1)
    return groups.reshape(shape)


def structured(*shape: int) -> np.ndarray:
    array = weights(*shape)
    array[::3] = 0
    array[:, 1::4] = 0
    return array


def multiplied(array: np.ndarray) -> np.ndarray:
    """Return a pruned array as a product of weights and a mask: with zeros of both signs."""
    signs = weights(*array.shape, seed=9)
    return np.where(array == 0, np.copysign(np.float32(0), signs), array)


def entropy(density: float) -> float:
    return -density * math.log2(density) - (1 - density) * math.log2(1 - density)


def bits(text: str, array: np.ndarray) -> float:
    tree = parse_tree(text)
    return 8 * byte_count(encode(tree, array, fit(tree, readable(array)))) / array.size


def planned(array: np.ndarray, effort: str = "balanced") -> float:
    """Return the bits of the planner's tree, having checked that it restores every bit."""
    tree = plan_lossless(array, effort).tree
    payload = join(encode(tree, array))
    assert decode(tree, payload, spec_of(array)).tobytes() == array.tobytes()
    return 8 * len(payload) / array.size


@pytest.mark.parametrize("effort", EFFORTS)
def test_forms_follow_the_zeros(effort):
    plain = sparse_forms(unstructured(0.1, 200, 300), unstructured(0.1, 200, 300), effort)
    assert plain.whole == (VALUES,)
    assert (plain.dense, plain.packed, plain.signs) == ((), (), None)
    assert plain.flat[0].startswith("sparse(mask=gaps")
    array = structured(60, 40)
    forms = sparse_forms(array, array, effort)
    assert forms.whole[1:] == ("live(values=live(1, values=$values))",) == forms.dense
    array = grouped(2, 4, 60, 40)
    assert sparse_forms(array, array, effort).packed == ("packed(2, 4, values=$values)",)
    array[::2] = 0
    forms = sparse_forms(array, array, effort)
    assert forms.packed[1] == "live(values=packed(2, 4, values=$values))"


def test_masks_get_the_coder_of_their_kind():
    random = np.random.default_rng(0)
    half = random.random((300, 300)) < 0.5
    assert cheapest_mask(readable(half), "balanced") == "bitpack"
    assert cheapest_mask(readable(random.random((300, 300)) < 0.05), "balanced") == "gaps"
    blocks = np.repeat(random.random(400) < 0.5, 64).reshape(160, 160)
    assert cheapest_mask(readable(blocks), "fast") == "runlength"
    columns = np.sort(random.random(400)) ** 3
    uneven = random.random((600, 400)) < columns
    assert cheapest_mask(readable(uneven), "fast") in ("bitpack", "gaps")
    assert cheapest_mask(readable(uneven), "balanced") == "ans(contexts=16, states=12)"


def test_a_column_that_lives_elsewhere_is_not_dead():
    array = np.zeros((1000, 50), np.float32)
    array[::10, 0] = 1
    array[1::10] = weights(100, 50)  # rows that the sample does not have
    sample = array[::10]
    assert live_columns(sample.view("u4"), EVERY).sum() == 1
    assert live_columns(array.view("u4"), EVERY).all()
    assert sparse_forms(array, sample, "balanced").whole == (VALUES,)


def test_groups_are_told_by_all_of_the_tensor():
    array = grouped(1, 4, 200, 400)
    assert group_pattern(array, EVERY) == (1, 4)
    array[199, 396:400] = 1, 1, 0, 0
    assert group_pattern(array, EVERY) == (2, 4)
    array[199, 396:400] = 1, 1, 1, 0
    assert group_pattern(array, EVERY) == (4, 8)
    array[199] = 1
    assert group_pattern(array, EVERY) is None
    assert group_pattern(np.zeros((0, 4), np.float32), EVERY) == (1, 4)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("floats", True),
        ("uniform(0.1)", True),
        ("uniform(0.1, codes=kmeans(2))", False),
        ("trellis(0.1)", False),
        ("kmeans(16)", False),
        ("affine(4, 128)", False),
        ('cast("F16")', True),
        ('cast("F16", values=trellis(0.1))', False),
        ("svd(0.5)", False),
        ("sparse(values=trellis(0.1))", True),
        ("sparse(values=kmeans(16, codes=huffman))", True),
        ("live(values=uniform(0.1))", True),
        ("live(values=trellis(0.1))", False),
        ("live(values=live(1, values=sparse(values=trellis(0.1))))", True),
        ("packed(values=uniform(0.1))", True),
        ("packed(values=trellis(0.1))", False),
        ("magnitude(0.5)", True),
        ("magnitude(0.5, values=uniform(0.1))", True),
        ("magnitude(0.5, values=trellis(0.1))", False),
        ("threshold(0.1, values=trellis(0.1))", True),
        ("threshold(0, values=trellis(0.1))", False),
        ("nm(2, 4, values=uniform(0.1))", True),
        ("zeros(values=sparse(values=trellis(0.1)))", False),
    ],
)
def test_what_keeps_zeros(text, wanted):
    tree = parse_tree(text)
    assert keeps_zeros(tree) == wanted
    if wanted:  # as said, on arrays of which the codecs may think otherwise
        arrays = [grouped(2, 4, 40, 64)]
        if "packed" not in text:
            arrays += [unstructured(0.3, 40, 64), structured(40, 64)]
        for array in arrays:
            decoded = decode(tree, join(encode(tree, array)), spec_of(array))
            assert not decoded[array == 0].any()


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("prune", [lambda array: array, multiplied])
def test_templates_for_pruned_tensors_keep_zeros(effort, prune):
    templates = ("trellis($step)", "svd(0.5, left=uniform($step), right=uniform($step))")
    for array in (unstructured(0.1, 90, 80), structured(90, 80), grouped(2, 4, 90, 80)):
        pruned = prune(array)
        found = zero_keeping(templates, pruned, pruned, effort)
        assert found
        for template in found:
            tree = parse_tree(template.replace("$step", "0.02"))
            decoded = decode(tree, join(encode(tree, pruned)), spec_of(pruned))
            assert not decoded[pruned == 0].view("u4").any(), template


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("size", [False, True])
@pytest.mark.parametrize("profile", ["transformer", "mlp", "memory"])
def test_lossy_plans_keep_zeros(effort, size, profile):
    array = unstructured(0.1, 150, 200)
    budget = Budget(bits_per_weight=0.9) if size else Budget(min_snr=20)
    planner = CompressOptions(profile=profile, budget=budget, effort=effort).planner()
    info = TensorInfo("w", dtype_name(array.dtype), array.shape, array.nbytes)
    with Workers(1) as workers:
        problem = planner.plan([Tensor(info, "mlp", array)], workers)
    plan = problem.allocate(problem.max_bytes(array.nbytes), ["w"]).tensors["w"]
    assert plan.tree is not None
    assert keeps_zeros(plan.tree), format_tree(plan.tree)


@pytest.mark.parametrize("effort", EFFORTS)
def test_the_best_tree_reaches_the_entropy_of_mask_and_values(effort):
    size = bound = 0.0
    layers = {"0.weight": unstructured(0.1, 300, 784), "1.weight": unstructured(0.1, 100, 300)}
    data = tensorcomp.save(layers, budget=Budget(min_snr=30), effort=effort)
    for name, found in tensorcomp.load(data).items():
        array = layers[name]
        assert not found[array == 0].any()
        _, counts = np.unique(found[array != 0], return_counts=True)
        values = -(counts * np.log2(counts / counts.sum())).sum()
        bound += (array.size * entropy(0.1) + values) / 8
        with CompressedFile(data) as file:
            size += file.blob_bytes(name)
    assert size <= 1.03 * bound


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("share", [0.15, 0.3, 0.6])
def test_dead_rows_and_columns_are_not_missed(share, axis):
    random = np.random.default_rng(0)
    for seed in range(100):
        living = np.ones((448, 160), np.uint16)
        slices = living if axis == 0 else living.T
        slices[random.random(len(slices)) < share] = 0
        zeros, _ = probe(living)
        assert zeros > MANY, seed


def test_dead_rows_and_columns_cost_nearly_nothing():
    array = structured(300, 400)
    left = readable(array[np.arange(300) % 3 != 0][:, np.arange(400) % 4 != 1])
    for effort in EFFORTS:
        part = left.size / array.size
        assert planned(array, effort) < part * planned(left, effort) + 0.02


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(("keep", "group"), [(1, 4), (2, 4), (4, 8)])
def test_patterns_cost_their_entropy(keep, group, effort):
    array = grouped(keep, group, 256, 512)
    usual = any_floats(array.dtype, effort)
    values = bits(usual, readable(array[array != 0])) * keep / group
    patterns = math.log2(math.comb(group, keep)) / group
    assert planned(array, effort) < (values + patterns) * 1.005


def entropy_of(values: np.ndarray) -> float:
    _, counts = np.unique(values, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log2(shares)).sum())


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize(("keep", "group"), [(1, 4), (2, 4), (4, 8)])
def test_patterns_of_few_numbers_cost_their_entropy(keep, group, effort):
    array = grouped(keep, group, 256, 512)
    patterns = math.log2(math.comb(group, keep)) / group
    left = np.flatnonzero(array)
    table = np.array(array.reshape(-1)[left])
    table = np.quantile(table, np.linspace(0.05, 0.95, 16)).astype(np.float32)
    coded = np.zeros_like(array)
    coded.reshape(-1)[left] = np.random.default_rng(2).choice(table, left.size)
    assert planned(coded, effort) < (patterns + 4 * keep / group) * 1.03
    scales = np.abs(array).max(axis=1, keepdims=True) / np.float32(64)
    steps = np.rint(array / scales)
    steps[(steps == 0) & (array != 0)] = 1
    wanted = patterns + entropy_of(steps[steps != 0]) * keep / group
    assert planned((steps * scales).astype(np.float32), effort) < wanted * 1.06


def test_a_pattern_of_few_numbers_that_ends_is_restored():
    array = grouped(2, 4, 4096, 512)  # of two chunks; the sample sees few of the odd rows
    few = np.where(array == 0, np.float32(0), np.copysign(np.float32(0.5), array))
    few[4001:4031] = array[4001:4031]
    data = tensorcomp.save({"mlp.weight": few})
    assert tensorcomp.load(data)["mlp.weight"].tobytes() == few.tobytes()
    assert len(data) < 0.1 * few.nbytes


def test_codebooks_with_zeros_cost_their_entropy():
    table = weights(16)
    codes = np.random.default_rng(1).integers(0, 16, (300, 400))
    array = np.where(unstructured(0.1, 300, 400) != 0, table[codes], np.float32(0))
    wanted = entropy(0.1) + 0.1 * 4
    assert planned(array, "fast") < 1.04 * wanted
    assert planned(array, "balanced") < 1.02 * wanted
    assert planned(array, "max") < 1.02 * wanted


def test_signs_of_zeros_cost_a_bit_each():
    for array in (unstructured(0.1, 300, 400), structured(300, 400), grouped(2, 4, 300, 400)):
        signs = (array == 0).mean()
        assert planned(multiplied(array)) < planned(array) + 1.02 * signs
        negative = np.where(array == 0, np.float32(-0.0), array)  # all of one sign tell nothing
        assert planned(negative) < planned(array) + 0.01


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_other_floats(dtype):
    array = unstructured(0.1, 200, 300).astype(dtype)
    values = bits("floats", readable(array[array != 0])) * 0.1
    assert planned(array) < (values + entropy(0.1)) * 1.02


def test_quantized_integers_with_zeros():
    array = np.rint(unstructured(0.1, 300, 400) * 200).astype(np.int8)
    _, counts = np.unique(array, return_counts=True)
    share = counts / counts.sum()
    assert planned(array) < -(share * np.log2(share)).sum() * 1.02
    patterns = np.rint(grouped(2, 4, 300, 400) * 100).astype(np.int8)
    assert planned(patterns) < bits("ans(states=12)", patterns)


def test_few_weights():
    array = unstructured(0.3, 10, 100)
    assert share_of_zeros(array) == pytest.approx(0.7)
    dense = bits("floats(contexts=1)", array)
    for effort in EFFORTS:
        assert planned(array, effort) < dense / 2
    assert format_tree(plan_lossless(weights(10, 100), "max").tree) == "groupfloats(groups=1)"
    assert planned(np.where(unstructured(0.3, 40) == 0, 0, 1).astype(np.float32)) <= 33


def test_zeros_of_both_signs_are_counted():
    array = unstructured(0.1, 100, 100)
    for pruned in (array, multiplied(array), -array):
        assert share_of_zeros(pruned) == pytest.approx(0.9, abs=0.05)
    assert share_of_zeros(np.full((100, 100), -128, np.int8)) == 0


def test_chunks_of_a_large_tensor_are_restored():
    array = weights(3000, 1000)
    array[::2] = 0
    array[:, :300] = 0
    array[1000:, 300:400] = 0  # dead in some chunks only
    grid = np.where(unstructured(0.02, 3000, 1000) != 0, array, np.float32(0))
    tensors = {"live": array, "packed": grouped(2, 4, 3000, 1000), "rare": grid}
    data = tensorcomp.save(tensors)
    for name, found in tensorcomp.load(data).items():
        assert found.tobytes() == tensors[name].tobytes(), name


def test_no_time_is_spent_on_tensors_without_zeros(monkeypatch):
    def never(*_: object) -> None:
        raise AssertionError("called")

    monkeypatch.setattr("tensorcomp.planning.lossless.sparse_forms", never)
    few = weights(300, 300)
    few.reshape(-1)[::25] = 0
    for array in (few, weights(50, 20), np.arange(9000)):
        plan_lossless(sample_rows(array), "balanced")
