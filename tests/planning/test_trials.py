import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.codecs import parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import approximate, decode, encode, encode_seen, join
from tensorcomp.codecs.tree import Node, fit
from tensorcomp.metrics.distortion import measure
from tensorcomp.planning.budgets import Bound
from tensorcomp.planning.trials import errors_of, first_guess, meet_bound, rms, run_trial
from tensorcomp.testing import nasty_arrays

TEMPLATES = (
    "uniform($step)",
    "uniform($step, codes=huffman)",
    "svd(0.5, left=uniform($step), right=uniform($step))",
)


def weights(seed: int, shape: tuple[int, ...], scale: float, kind: str = "normal") -> np.ndarray:
    random = np.random.default_rng(seed)
    values = random.standard_t(5, shape) if kind == "tails" else random.standard_normal(shape)
    return (values * scale).astype(np.float32)


def used(tree: object, array: np.ndarray, bound: Bound) -> float:
    decoded = approximate(tree, array, fit(tree, array))
    errors = measure(array, decoded)
    return bound.used(errors.rel_l2, errors.max_abs)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 99),
    rows=st.integers(1, 90),
    columns=st.integers(1, 90),
    scale=st.floats(1e-15, 1e15),
    kind=st.sampled_from(["normal", "tails"]),
    rel_l2=st.floats(1e-3, 0.7),
)
def test_a_relative_bound_is_kept_and_used(seed, rows, columns, scale, kind, rel_l2):
    array = weights(seed, (rows, columns), scale, kind)
    bound = Bound(max_rel_l2=rel_l2)
    tree = meet_bound(first_guess("uniform($step)", array, bound), array, bound)
    if tree is None:
        assert array.size < 300  # so few that steps change the error in leaps
        return
    assert used(tree, array, bound) <= 1
    if array.size >= 1000:
        assert used(tree, array, bound) >= 0.99


@pytest.mark.parametrize("factor", [1e-4, 0.03, 1, 40, 1e4])
def test_a_bad_first_guess_does_not_matter(factor):
    array = weights(1, (80, 80), 0.02)
    bound = Bound(max_rel_l2=0.05)
    guess = 0.05 * 0.02 * 12**0.5
    tree = meet_bound(parse_tree(f"uniform({guess * max(factor, 1e-2)})"), array, bound)
    assert tree is not None
    assert 0.99 <= used(tree, array, bound) <= 1


@settings(max_examples=25)
@given(seed=st.integers(0, 99), error=st.floats(1e-4, 0.5))
def test_an_absolute_bound_is_kept(seed, error):
    array = weights(seed, (50, 40), 1.0)
    bound = Bound(max_abs_error=error)
    tree = meet_bound(first_guess("uniform($step)", array, bound), array, bound)
    assert tree is not None
    assert 0.8 <= used(tree, array, bound) <= 1


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    "bound",
    [
        Bound(max_rel_l2=0.05),
        Bound(max_rel_l2=3),
        Bound(max_rel_l2=1e-12),
        Bound(max_abs_error=1e-3),
        Bound(max_abs_error=1e-40),
        Bound(max_abs_error=1e30),
        Bound(max_rel_l2=0, max_abs_error=0),
        Bound(max_rel_l2=1e-2, max_abs_error=1e-3),
    ],
    ids=str,
)
def test_no_array_breaks_the_search(template, bound):
    for name, array in nasty_arrays().items():
        if array.dtype.kind not in "fV" or array.size > 100_000:
            continue
        if not np.isfinite(measure(array, array).x_max):
            continue
        tree = meet_bound(first_guess(template, array, bound), array, bound)
        if tree is not None:
            assert used(tree, array, bound) <= 1, name


@pytest.mark.parametrize("bound", [Bound(max_abs_error=1e80), Bound(max_rel_l2=1e300)], ids=str)
def test_bounds_that_allow_everything(bound):
    array = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    for template in ("uniform($step)", "trellis($step)", "rotate(8, rotated=uniform($step))"):
        tree = meet_bound(first_guess(template, array, bound), array, bound)
        assert tree is None or errors_of(tree, array) is not None


def test_what_no_step_can_do():
    array = weights(2, (64, 64), 1.0)
    half = array.astype(ml_dtypes.bfloat16)
    bound = Bound(max_abs_error=1e-9)  # beyond 32,767 steps
    assert meet_bound(first_guess("uniform($step)", array, bound), array, bound) is None
    bound = Bound(max_rel_l2=1e-5)  # finer than the type
    found = meet_bound(first_guess("uniform($step)", half, bound), half, bound)
    assert found is None or used(found, half, bound) <= 1
    fixed = parse_tree("uniform(0.5)")
    assert meet_bound(fixed, array, Bound(max_rel_l2=0.2)) == fixed or True
    assert meet_bound(parse_tree("affine(2)"), array, Bound(max_rel_l2=0.001)) is None
    assert meet_bound(parse_tree("affine(8)"), array, Bound(max_rel_l2=0.1)) is not None


def test_a_tree_without_steps_is_kept_or_not():
    array = weights(3, (64, 64), 1.0)
    tree = parse_tree("affine(8)")
    errors = errors_of(tree, array)
    assert errors is not None
    assert meet_bound(tree, array, Bound(max_rel_l2=1.01 * errors.rel_l2)) == tree
    assert meet_bound(tree, array, Bound(max_rel_l2=0.99 * errors.rel_l2)) is None


def test_a_trial_tells_bits_and_errors():
    array = weights(4, (128, 128), 1.0)
    trial = run_trial(parse_tree("uniform(0.25)"), array)
    assert trial is not None
    assert abs(trial.bits - (2.047 + 2)) < 0.1  # h = ½ log₂ 2πe less log₂ step
    assert abs(trial.errors.rel_l2 - 0.25 / 12**0.5) < 0.001
    assert run_trial(parse_tree("uniform(1e-9)"), array) is None
    assert run_trial(parse_tree("uniform(0.25)"), np.arange(9)) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.zeros(9), 0.0),
        (np.zeros(0), 0.0),
        (np.full(100, -3.0), 3.0),
        (np.full(100, 3.0, np.float16), 3.0),
        (np.array([3.0, 4.0], np.float32), 12.5**0.5),
    ],
)
def test_root_mean_squares(values, expected):
    assert rms(values) == pytest.approx(expected)


def test_root_mean_squares_beyond_squares_are_numbers():
    for value in (1e-300, 1e300):
        assert 0 < rms(np.full(9, value)) < np.inf


def is_promising(tree: Node, sample: np.ndarray, rows: int | None = None) -> bool:
    return tree.codec.is_promising(sample, rows or len(sample))


def test_only_what_may_pay_is_tried():
    random = np.random.default_rng(5)
    dense = random.standard_normal((128, 96)).astype(np.float32)
    low = (random.standard_normal((128, 3)) @ random.standard_normal((3, 96))).astype(np.float32)
    sparse = np.where(random.random((128, 96)) < 0.9, 0, dense)
    dead = dense.copy()
    dead[::9] *= 1e-4
    svd, magnitude = parse_tree("svd(0.25)"), parse_tree("magnitude(0.9)")
    rows, columns = parse_tree("filter(0.1)"), parse_tree("channel(0.1)")
    for tree in (svd, magnitude, rows, columns):
        assert not is_promising(tree, dense)
        for shape in ((1, 1), (1, 50), (50, 1), (3, 3), (7,), (4, 3, 2, 2)):
            is_promising(tree, np.ones(shape, np.float32))
            is_promising(tree, np.zeros(shape, np.float32))
    assert is_promising(svd, low)
    assert is_promising(magnitude, sparse)
    assert is_promising(rows, dead)
    assert is_promising(columns, np.ascontiguousarray(dead.T))
    assert is_promising(parse_tree("uniform(0.5)"), dense)


def test_a_rotation_is_tried_only_where_rows_are_many_enough_for_its_vectors():
    tree = parse_tree("rotate(16, rotated=uniform(0.5))")
    sample = np.ones((400, 8), np.float32)
    assert not is_promising(tree, sample)
    assert is_promising(tree, sample, 30_000)
    assert is_promising(tree, np.ones((512, 8), np.float32))


@pytest.mark.parametrize(
    "text",
    [
        "uniform(0.25)",
        "uniform(2e-4)",
        "trellis(0.5)",
        "fields(2, exponent=huffman, mantissa=bitpack)",
        "svd(0.5, left=uniform(0.1), right=affine(8, -1))",
        "magnitude(0.5, values=uniform(0.2, codes=huffman))",
        "uniform(2e-4, codes=raw)",
    ],
)
@pytest.mark.parametrize("shape", [(64, 48), (6, 2)])
def test_what_is_seen_is_what_would_be_decoded(text, shape):
    tree, array = parse_tree(text), weights(5, shape, 1.0)
    shared = fit(tree, array)
    pieces, seen = encode_seen(tree, array, shared)
    assert join(pieces) == join(encode(tree, array, shared))
    decoded = decode(tree, join(pieces), spec_of(array), shared)
    assert decoded.tobytes() == seen.tobytes()
