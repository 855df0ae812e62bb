"""Input that lossy trees cannot take: bounds hold, or the tensor is lossless and says why."""

import ml_dtypes
import numpy as np
import pytest
from lossy_cases import check, reason, weights, write

from tensorcomp.planning.budgets import Budget


def outlier() -> np.ndarray:
    array = weights(1000, 1000)
    array[321, 123] = 1e6 * 0.02
    return array


def with_value(value: float) -> np.ndarray:
    array = weights(100, 80)
    array[50, 50] = value
    return array


def blocks() -> np.ndarray:
    array = weights(128, 128)
    array[:64] = 0
    array[64:, ::3] = -0.0
    return array


BAD = {
    "nan": (with_value(np.nan), "holds NaN or infinity"),
    "infinite": (with_value(-np.inf), "holds NaN or infinity"),
    "outlier": (outlier(), None),
    "subnormal": (weights(64, 64, scale=1e-41), "no tree keeps"),
    "subnormal doubles": (weights(64, 64, dtype=np.float64) * 1e-315, "no tree keeps"),
    "huge doubles": (weights(64, 64, dtype=np.float64) * 1e302, None),
    "zero blocks": (blocks(), None),
    "zeros": (np.zeros((64, 64), np.float32), "equal"),
    "one row": (weights(1, 5000), None),
    "one column": (weights(5000, 1), None),
    "rank 1": (np.outer(weights(90), weights(70)).astype(np.float32), None),
    "one element": (weights(1), ""),
    "scalar": (np.array(3.5, np.float32), ""),
    "empty": (np.zeros((0, 4), np.float32), "empty"),
    "signs": (np.where(weights(64, 64) < 0, -0.0, 1.0).astype(np.float32), None),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_keeps_the_bound_or_says_why_it_is_lossless(name):
    array, words = BAD[name]
    budget = Budget(min_snr=30)
    data, report = write({"x": array}, budget=budget)
    lossy = check(data, {"x": array}, budget)
    if words is None:
        assert lossy or array.size < 4096 or "few bits" in reason(report, "x"), reason(report, "x")
    else:
        assert not lossy
        assert words in reason(report, "x")


@pytest.mark.parametrize("name", [name for name in BAD if name != "outlier"])
@pytest.mark.parametrize(
    "tree",
    [
        "affine(4, 128)",
        "affine(8)",
        "kmeans(256)",
        "kmeans(65536)",
        "svd(0.5)",
        "nf4(64)",
        "ternary",
        "sign",
        'cast("F8_E4M3")',
        "magnitude(0.9, values=kmeans(16, codes=huffman), mask=gaps)",
        "nm(2, 4)",
        "block(8, 8, 0.5)",
        "pq(8, 256)",
        "uniform(1e-30)",
        "uniform(1e30)",
        "trellis(0.01)",
    ],
)
def test_bad_input_breaks_no_tree(name, tree):
    array, _ = BAD[name]
    data, report = write({"x": array}, codecs=[f"x={tree}"], profile="lossless")
    check(data, {"x": array})
    assert reason(report, "x")
    for bound in (Budget(min_snr=30), Budget(max_abs_error=1e-4)):
        data, report = write({"x": array}, codecs=[f"x={tree}"], profile=None, budget=bound)
        check(data, {"x": array}, bound)
        assert reason(report, "x")


def test_a_tree_that_cannot_take_a_tensor_is_not_told_as_its_tree():
    array = weights(64, 64)
    for tree, chunk, words in (
        ("uniform(1e-12)", 1 << 20, "uniform cannot represent it: lossless"),
        ("uniform(1e-12)", 1000, "uniform cannot represent it: lossless"),
        ("kmeans(60000)", 1 << 20, "kmeans makes it no smaller: lossless"),
    ):
        asked = {"codecs": [f"x={tree}"], "profile": "lossless"}
        data, report = write({"x": array}, chunk_elements=chunk, **asked)
        assert check(data, {"x": array}) == {}
        assert reason(report, "x").startswith(words)
        assert not report.summary().tensors[0].tree.startswith(tree.split("(")[0])


def test_bfloat16_that_is_asked_for_too_much_goes_lossless():
    array = weights(200, 200, dtype=ml_dtypes.bfloat16)
    for snr, lossy in ((40, True), (70, False)):
        budget = Budget(min_snr=snr)
        data, report = write({"x": array}, budget=budget)
        assert bool(check(data, {"x": array}, budget)) == lossy
    assert "few bits" in reason(report, "x") or "no tree keeps" in reason(report, "x")
