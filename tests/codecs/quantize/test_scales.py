"""`scales`: factors of rows and columns, decoded by a kernel to the bits of its definition."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantizer_cases import float_arrays, restored, transformed

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.feedback import Feedback, encoder_with
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.quantize.scales import Scales, exponents, factors
from tensorcomp.errors import NotRepresentable

DTYPES = [np.dtype(kind) for kind in ("f4", "f8", "f2", ml_dtypes.bfloat16)]
SHAPES = [(1, 1), (1, 70), (33, 1), (16, 64), (17, 65), (15, 63), (40, 130), (3, 4, 5), (9,)]


def by_definition(parts, dtype, axis):
    values = parts["values"].T if axis else parts["values"]
    rows, columns = (np.exp2(parts[name] / -4).astype(values.dtype) for name in ("rows", "columns"))
    limit = float(ml_dtypes.finfo(dtype).max)
    with np.errstate(all="ignore"):
        products = np.clip(values * rows[:, None] * columns, -limit, limit)
        return products.astype(dtype)


@given(
    st.integers(0, 10**6),
    st.sampled_from(SHAPES),
    st.sampled_from(DTYPES),
    st.sampled_from([0, 1]),
    st.sampled_from([0, 20, 120, 1000]),
)
def test_values_are_those_of_the_definition(seed, shape, dtype, axis, octaves):
    rng = np.random.default_rng(seed)
    codec, out = Scales(axis), np.empty(shape, dtype)
    specs = codec.parts(spec_of(out))
    parts = {
        name: rng.integers(-128, 128, specs[name].shape).astype(np.int8)
        for name in ("rows", "columns")
    }
    powers = rng.integers(-octaves, octaves + 1, out.size)
    with np.errstate(all="ignore"):
        values = np.ldexp(rng.normal(size=out.size), powers).astype(specs["values"].dtype)
    values[rng.random(out.size) < 0.1] = rng.choice([np.inf, -np.inf, 0.0, -0.0])
    parts["values"] = values.reshape(specs["values"].shape)
    codec.decode(parts, out)
    assert out.tobytes() == by_definition(parts, dtype, axis).tobytes()


@given(float_arrays(), st.sampled_from([0, 1]))
def test_exact_values_restore_arrays(array, axis):
    try:
        found = restored(Scales(axis), array)
    except NotRepresentable:
        assert np.abs(array.astype(np.float64)).max() > 1e30
        return
    wide, info = array.astype(np.float64), ml_dtypes.finfo(array.dtype)
    unit = max(float(info.eps), 2.0**-21 if array.dtype != np.float64 else 2.0**-50)
    # What underflows on the way is as small as the factors make it.
    least = max(float(info.smallest_subnormal), np.abs(wide).max(initial=0) * 2.0**-100)
    assert (np.abs(found.astype(np.float64) - wide) <= unit * np.abs(wide) + least).all()
    assert (found[array == 0] == 0).all()


def test_rows_and_columns_come_to_one_size():
    rng = np.random.default_rng(1)
    sizes = np.exp2(rng.integers(-8, 9, (60, 1)) + rng.integers(-5, 6, 40))
    values = transformed(Scales(), (sizes * rng.choice([-1, 1], (60, 40))).astype("f4"))["values"]
    assert values.shape == (40, 60)
    magnitudes = np.abs(values)
    assert magnitudes.max() < 1.5 * magnitudes.min()


def test_exponents_are_quarters_of_octaves_around_their_mean():
    assert exponents(np.array([-1.0, 0.0, 1.0])).tolist() == [-4, 0, 4]
    assert exponents(np.array([-1000.0, 0.0, 1000.0])).tolist() == [-127, 0, 127]
    every = np.arange(-128, 128)
    assert (factors(every) == np.exp2(every / 4)).all()
    assert (factors(every[:-4]) * 2 == factors(every[4:])).all()


@pytest.mark.parametrize("count", [100, 384, 1024, 4096])
@pytest.mark.parametrize("octaves", [0.3, 1.5])
def test_exponents_are_stored_in_few_bytes(count, octaves):
    found = exponents(np.random.default_rng(count).normal(0, octaves / 2, count)).astype(np.int8)
    sizes = {
        text: len(join(encode(parse_tree(text), found)))
        for text in (Scales.default_parts["rows"], "ans", "bitpack", "huffman", "raw")
    }
    assert min(sizes.values()) >= 0.94 * sizes[Scales.default_parts["rows"]]


def test_steps_follow_from_statistics():
    rng = np.random.default_rng(2)
    sizes = np.exp2(rng.integers(-3, 4, 64))
    inputs = rng.normal(size=(600, 64)) * sizes
    moment, weights = inputs.T @ inputs / 600, np.exp2(rng.integers(-4, 5, 80).astype(float))
    array = rng.normal(size=(80, 64)).astype(np.float32)
    feedback = Feedback.of(moment[None], weights)
    node = parse_tree("scales(values=uniform(0.25))")
    parts = encoder_with(node, lambda: feedback).codec.encode(array)
    assert np.corrcoef(parts["rows"], np.log2(weights))[0, 1] > 0.99
    assert np.corrcoef(parts["columns"], np.log2(sizes))[0, 1] > 0.95

    def loss(text, feedback):
        """Return the bits, and the loss at the step, of a tree."""
        tree = parse_tree(text)
        payload = join(encode(encoder_with(tree, lambda: feedback) if feedback else tree, array))
        errors = decode(tree, payload, spec_of(array)).astype(np.float64) - array
        return len(payload), (weights * np.einsum("ij,jk,ik->i", errors, moment, errors)).sum()

    size, found = loss("scales(values=uniform(0.25))", feedback)
    plain_size, plain = loss("uniform(0.13)", None)
    assert size < 1.03 * plain_size
    assert found < 0.5 * plain
