"""Feedback: each column makes up for the errors of those before it, and decoders know nothing."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.feedback import Feedback, encoder_with
from tensorcomp.codecs.payload import join
from tensorcomp.errors import CodecError, NotRepresentable

STEP = 0.125
GROUPED = [
    *("affine(4, 16)", "affine(2, -1)", "affine(8, 0)", "nf4(7)", "nf4(-1)"),
    *("ternary", "ternary(0.99, 5)", "sign", "sign(0)"),
]
OFFSET = ["affine(4, 16, symmetric=false)", "affine(2, -1, false)", "affine(3, 0, false)"]
DTYPES = [np.dtype(kind) for kind in ("f4", "f8", "f2", ml_dtypes.bfloat16)]


def moments(n, seed, groups=1):
    """Return second moments of inputs of unlike sizes that depend on each other."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(groups, n, n)) * np.exp(rng.normal(size=(groups, 1, n)))
    inputs = rng.normal(size=(groups, 3 * n, n)) @ mixed
    return inputs.transpose(0, 2, 1) @ inputs / (3 * n)


def exact(n, rows, seed, groups=1, along=1):
    """Return feedback whose sums are exact for multiples of 1/8, whatever their order."""
    rng = np.random.default_rng(seed)
    ratios = np.tril(rng.integers(-2, 3, (groups, n, n)), -1) / 4 + np.eye(n)
    return Feedback(ratios.astype("f4"), np.ones((groups, n)), np.ones(rows), along)


def eighths(shape, seed):
    return (np.random.default_rng(seed).integers(-80, 80, shape) / 8).astype(np.float32)


def uniform(step):
    return lambda _i, targets, _ahead: np.rint(targets / np.float32(step)) * np.float32(step)


def rounded(text, feedback, array):
    """Return what an array becomes, decoded by the tree that knows nothing of feedback."""
    node = parse_tree(text)
    return decode(node, join(encode(encoder_with(node, lambda: feedback), array)), spec_of(array))


def cost(errors, matrix):
    return np.einsum("ij,jk,ik->i", errors, matrix, errors)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([2, 40, 65, 130]))
def test_what_is_left_is_the_rounding_error_of_each_column(seed, n):
    matrix = moments(n, seed)
    feedback = Feedback.of(matrix, np.ones(700))
    columns = np.random.default_rng(seed).normal(size=(n, 700)).astype(np.float32)
    found = cost((columns - feedback.spread(columns, uniform(STEP))).T, matrix[0]).mean()
    assert found == pytest.approx(np.square(feedback.scales).sum() * STEP**2 / 12, rel=0.1)
    plain = columns - np.rint(columns / STEP) * STEP
    assert found < (1 if n == 2 else 0.8) * cost(plain.T, matrix[0]).mean()


@pytest.mark.parametrize("groups", [1, 3])
def test_energy_is_that_of_the_moments(groups):
    matrix = moments(70, 1, groups)
    columns = np.random.default_rng(2).normal(size=(70, 6)).astype(np.float32)
    found = Feedback.of(matrix, np.ones(6)).energy(columns)
    wanted = [cost(row[None], matrix[r * groups // 6])[0] for r, row in enumerate(columns.T)]
    assert found == pytest.approx(wanted, rel=1e-4)


def test_groups_of_rows_have_moments_of_their_own():
    array, feedback = eighths((12, 70), 1), exact(70, 12, 2, groups=3)
    whole = rounded("uniform(1)", feedback, array)
    for group in range(3):
        rows = slice(4 * group, 4 * group + 4)
        own = Feedback(feedback.ratios[group : group + 1], np.ones((1, 70)), np.ones(4))
        assert (rounded("uniform(1)", own, array[rows]) == whole[rows]).all()
    assert not (rounded("uniform(1)", exact(70, 12, 2), array) == whole).all()


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("bounds", [(0, 4), (4, 12), (3, 9), (11, 12)])
def test_rows_of_a_chunk_are_those_of_the_whole(groups, bounds):
    array, feedback = eighths((12, 70), 3), exact(70, 12, 4, groups)
    own = rounded("uniform(1)", feedback.of_chunk(*bounds), array[slice(*bounds)])
    assert (own == rounded("uniform(1)", feedback, array)[slice(*bounds)]).all()
    assert len(feedback.of_chunk(*bounds).weights) == bounds[1] - bounds[0]


def test_columns_may_be_counted_along_the_first_axis():
    array, along_rows = eighths((9, 4, 5), 5), exact(20, 9, 6)
    along_columns = exact(20, 9, 6, along=0)
    turned = np.ascontiguousarray(array.reshape(9, 20).T)
    wanted = rounded("uniform(1)", along_rows, array).reshape(9, 20)
    assert (wanted == rounded("uniform(1)", along_columns, turned).T).all()


def test_chunks_along_the_inputs_make_up_for_their_own_errors():
    matrix = moments(60, 7)
    feedback = Feedback.of(matrix, np.ones(5), along=0)
    columns = np.random.default_rng(8).normal(size=(60, 5)).astype(np.float32)
    whole = feedback.spread(columns, uniform(STEP))
    first, last = feedback.of_chunk(0, 33), feedback.of_chunk(33, 60)
    assert np.isclose(first.spread(columns[:33], uniform(STEP)), whole[:33]).mean() > 0.99
    wanted = cost(columns[33:].T.astype(np.float64), matrix[0, 33:, 33:])
    assert last.energy(columns[33:]) == pytest.approx(wanted, rel=1e-4)
    assert len(last.weights) == 5


def test_moments_that_are_not_positive_definite_need_damping():
    singular = np.ones((1, 5, 5))
    with pytest.raises(CodecError, match="expected a positive definite matrix"):
        Feedback.of(singular - np.eye(5), np.ones(3))
    damped = Feedback.of(singular, np.ones(3), damping=0.5)
    columns = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    wanted = cost(columns.T.astype(np.float64), singular[0] + 0.5 * np.eye(5))
    assert damped.energy(columns) == pytest.approx(wanted, rel=1e-5)
    nothing = Feedback.of(np.zeros((1, 5, 5)), np.ones(3), damping=0.5)
    assert nothing.energy(columns) == pytest.approx(np.square(columns).sum(axis=0), rel=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        *("uniform(0.3)", "scales(values=uniform(0.3))", "sparse(values=uniform(0.3))"),
        *("sparse(values=kmeans(5))", "packed(2, 4, values=kmeans(4))", "affine(4, 8)"),
    ],
)
def test_zeros_stay_zeros(text):
    array = np.random.default_rng(9).normal(size=(30, 40)).astype(np.float32)
    array[:, ::4] = array[:, 3::4] = 0
    feedback = Feedback.of(moments(40, 10), np.ones(30))
    found = rounded(text, feedback, array)
    assert (found[array == 0] == 0).all()
    assert not np.signbit(found[found == 0]).any()
    assert (found != rounded(text, exact(40, 30, 1), array)).any()


def test_what_is_rounded_to_zero_is_not_in_the_mask():
    array = np.random.default_rng(9).normal(size=(30, 40)).astype(np.float32)
    feedback = Feedback.of(moments(40, 10), np.ones(30))
    encoder = encoder_with(parse_tree("sparse(values=uniform(1))"), lambda: feedback).codec
    assert (encoder.encode(array)["values"] != 0).all()


@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.parametrize("text", [*GROUPED, *OFFSET, "kmeans(12)", "nm(2, 4, values=uniform(0.4))"])
def test_it_beats_plain_rounding(text, along):
    arrays = np.random.default_rng(11).normal(size=(3, 48, 48)).astype(np.float32)
    matrix = moments(48, 12)
    node, feedback = parse_tree(text), Feedback.of(matrix, np.ones(48), along=along)
    plain = [decode(node, join(encode(node, a)), spec_of(a)) - a for a in arrays]
    found = [rounded(text, feedback, array) - array for array in arrays]
    costs = [[cost(e if along else e.T, matrix[0]).sum() for e in own] for own in (plain, found)]
    assert sum(costs[1]) < 0.95 * sum(costs[0])


@st.composite
def weights(draw):
    """Draw matrices with groups of zeros, of equal elements, away from zero."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    shape = draw(st.sampled_from([(1, 1), (1, 33), (6, 40), (7, 129), (40, 3), (4, 3, 2, 5)]))
    values = rng.normal(size=shape) + draw(st.sampled_from([0, 0, 3, -50]))
    if draw(st.booleans()):
        values.reshape(-1)[: values.size // 2] = draw(st.sampled_from([0, 1.0, -0.3]))
    return (values * 2.0 ** draw(st.integers(-12, 8))).astype(draw(st.sampled_from(DTYPES)))


@settings(max_examples=150)
@given(st.sampled_from([*GROUPED, *OFFSET]), weights(), st.integers(0, 1), st.integers(0, 99))
def test_groups_code_what_they_round_to_without_further_loss(text, array, along, seed):
    n = array.size // len(array) if along else len(array)
    feedback = Feedback.of(moments(n, seed), np.ones(array.size // n), damping=0.01, along=along)
    codec = parse_tree(text).codec
    parts = encoder_with(parse_tree(text), lambda: feedback).codec.encode(array)
    found = np.empty(array.shape, np.float64 if array.dtype == np.float64 else np.float32)
    codec.decode(parts, found)
    again = np.empty_like(found)
    codec.decode(codec.encode(found), again)
    if text in GROUPED:
        assert again.tobytes() == found.tobytes()
    reach = float(np.abs(array.astype(np.float64)).max())
    assert np.abs(again - found).max() <= reach * 2.0**-10
    scales = codec.encode(array)["scales"]
    if "ternary" not in text and "sign" not in text:
        assert parts["scales"] == pytest.approx(scales, rel=2.0**-10, abs=reach * 2.0**-20)


def test_what_cannot_be_rounded_in_turn_is_refused():
    array, feedback = eighths((8, 8), 13), exact(8, 8, 14)
    for text in (
        *("trellis(0.1)", "scales(axis=0, values=uniform(1))", "scales(values=floats)"),
        *("sparse(values=affine(4))", "sparse(values=trellis(1))", "ternary(1.5)", "pq(4, 2)"),
        'cast("F16")',
    ):
        node = parse_tree(text)
        with pytest.raises(NotRepresentable):
            encoder_with(node, lambda: feedback).codec.encode(array)
