"""Tensors with outliers: what they take beside the same tensor without, under every budget."""

import numpy as np
import pytest
from lossy_cases import check, weights, write

from tensorcomp.codecs.text import parse_tree
from tensorcomp.container.reader import CompressedFile
from tensorcomp.container.tensor_blob import decode_tensor
from tensorcomp.planning.budgets import Budget
from tensorcomp.planning.profiles import load_profile

SIDE = 256
BUDGETS = {
    "error": Budget(max_abs_error=0.05),
    "bits": Budget(bits_per_weight=4),
    "ratio": Budget(target_ratio=8),
}


def normal(dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(dtype)


def with_outliers(count: int, dtype: str = "f4", size: float = 1e4) -> np.ndarray:
    array = normal(dtype)
    places = np.random.default_rng(1).choice(array.size, count, replace=False)
    array.reshape(-1)[places] = size * np.where(places % 2, 1, -1)
    return array


def broken_row() -> np.ndarray:
    array = normal()
    array[17] *= 1e4
    return array


def huge_double() -> np.ndarray:
    array = normal("f8")
    array[5, 6] = -1e300
    return array


HELD = {
    "one": with_outliers(1),
    "ten": with_outliers(10),
    "many": with_outliers(300),
    "a row": broken_row(),
    "clamped": with_outliers(3, "f2", 65504),
    "a huge double": huge_double(),
}


def lost_of_the_others(found: np.ndarray, array: np.ndarray) -> float:
    others = np.abs(array.astype(np.float64)) <= 100
    lost = (found.astype(np.float64) - array.astype(np.float64))[others]
    return float(np.sqrt(np.mean(lost**2)))


def compressed(array: np.ndarray, budget: Budget, **asked: object) -> tuple[bytes, np.ndarray, str]:
    data, _ = write({"mlp.weight": array}, budget=budget, **asked)
    check(data, {"mlp.weight": array}, budget)
    file = CompressedFile(data)
    tree = file.manifest.trees[file.record("mlp.weight").tree].tree
    return data, decode_tensor(file.open_tensor("mlp.weight")), tree


@pytest.mark.parametrize("effort", ["fast", "balanced", "max"])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", HELD)
def test_outliers_cost_by_their_number_and_the_others_nothing(name, budget, effort):
    array, asked = HELD[name], {"effort": effort, "profile": load_profile("transformer")}
    plain = normal(array.dtype.str[1:])
    data, found, tree = compressed(array, BUDGETS[budget], **asked)
    without, wanted, plain_tree = compressed(plain, BUDGETS[budget], **asked)
    assert tree.startswith("outliers(")
    assert "outliers" not in plain_tree
    few = np.abs(array.astype(np.float64)) > 1000
    assert found[few].tobytes() == array[few].tobytes()
    own = int(few.sum()) * (array.itemsize + 2)  # and two bytes for the place of each
    if BUDGETS[budget].is_size:  # the same bytes: the others have what outliers leave
        lost = lost_of_the_others(found, array) / lost_of_the_others(wanted, plain)
        assert lost < 2 ** (8 * 1.5 * own / array.size) * 1.1
    else:
        assert len(data) < len(without) * 1.005 + 300 + 1.5 * own


@pytest.mark.parametrize("effort", ["fast", "balanced", "max"])
def test_a_bound_on_the_whole_takes_what_the_others_need(effort):
    """At 40 dB one element of 6,000 deviations leaves the others 12.6 dB, 2.1 bits by R(D)."""
    array = with_outliers(1, size=6e3) * np.float32(0.02)
    data, _, tree = compressed(array, Budget(min_snr=40), effort=effort)
    signal = np.sum(array.astype(np.float64) ** 2)
    limit = 0.5 * np.log2(np.sum(normal().astype(np.float64) ** 2) * 0.02**2 / (signal * 1e-4))
    assert tree.startswith("outliers(")
    assert 8 * len(data) / array.size < limit + 0.4


def test_chunks_and_rows_are_as_without_chunks():
    array = with_outliers(5)
    array[200, 3] = 2e4
    budget = Budget(min_snr=60)
    whole = compressed(array, budget)[0]
    data, _ = write({"mlp.weight": array}, budget=budget, chunk_elements=1 << 13)
    check(data, {"mlp.weight": array}, budget)
    tensor = CompressedFile(data).open_tensor("mlp.weight")
    assert tensor.grid.count == 8
    assert tensor.decode_chunk(6)[200 - 192, 3] == 2e4
    assert len(data) < 1.2 * len(whole) + 8 * 64


def test_heavy_tails_are_no_outliers():
    for seed in range(3):
        array = weights(SIDE, SIDE, seed=seed)
        array[3, 5] = 50 * 0.02
        for budget in (*BUDGETS.values(), Budget(min_snr=60)):
            assert "outliers" not in compressed(array, budget)[2]


def test_a_step_too_fine_for_the_largest_element_is_taken_all_the_same():
    array = with_outliers(20, size=60.0)
    budget = Budget(max_abs_error=5e-4)
    data, found, tree = compressed(array, budget)
    assert tree.startswith("outliers(")
    assert np.abs(found - array).max() <= 5e-4
    assert 8 * len(data) / array.size < 12.5


def test_many_large_elements_are_not_kept_apart():
    array = with_outliers(SIDE * SIDE // 20)
    assert "outliers" not in compressed(array, Budget(min_snr=30))[2]


def test_trees_asked_for_are_taken_as_they_are():
    budget = Budget(bits_per_weight=6)
    data, _ = write({"mlp.weight": with_outliers(3)}, budget=budget, codecs="affine(4)")
    file = CompressedFile(data)
    planned = file.manifest.trees[file.record("mlp.weight").tree]
    assert parse_tree(planned.tree) == parse_tree("affine(4)")
