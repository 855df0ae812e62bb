"""`update`: what is added to a base, whatever lost something there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantizer_cases import FLOATS, float_arrays

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import approximate, join
from tensorcomp.codecs.quantize.update import Update
from tensorcomp.errors import CodecError, NotRepresentable

QUANTIZED = parse_tree("update(values=uniform(0.01))")


def restored(node, array, reference):
    payload = join(encode(node, array, reference=reference))
    found = decode(node, payload, spec_of(array), reference=reference)
    known = approximate(node, array, reference=reference)
    assert payload[0] == 0 or known.tobytes() == found.tobytes()
    return found


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_by_hand(dtype):
    array, base = np.array([1.5, -2, 0, 4], dtype), np.array([1, -2, -0.5, 1], dtype)
    values = Update().encode(array, reference=base)["values"]
    assert values.tolist() == [0.5, 0, 0.5, 3]
    assert restored(parse_tree("update"), array, base).tolist() == array.tolist()


@given(float_arrays())
def test_exact_values_restore_arrays(array):
    node = parse_tree("update")
    base = array.reshape(-1)[::-1].reshape(array.shape)
    try:
        found = restored(node, array, base)
    except NotRepresentable:
        assert np.abs(array.astype(np.float64)).max() > 1e30
        return
    wide, other = array.astype(np.float64), base.astype(np.float64)
    unit = 2.0**-52 if array.dtype == np.float64 else 2.0**-23
    assert (np.abs(found - wide) <= 2 * unit * (np.abs(wide) + np.abs(other))).all()


@given(st.integers(0, 1000), st.sampled_from([np.float32, np.float64]))
def test_errors_do_not_add_up_along_a_chain(seed, dtype):
    rng = np.random.default_rng(seed)
    true = known = rng.normal(size=(20, 30)).astype(dtype)
    for _ in range(5):
        true = (true + rng.normal(0, 0.1, true.shape)).astype(dtype)
        known = restored(QUANTIZED, true, known)
        assert np.abs(true - known).max() <= 0.0101


def test_a_reference_is_needed_and_must_fit():
    array = np.ones((64, 64), np.float32)
    payload = join(encode(QUANTIZED, array / 2, reference=array))
    for other in (None, array[:2], array.astype(np.float64)):
        with pytest.raises(NotRepresentable, match="expected a reference"):
            encode(QUANTIZED, array, reference=other)
        with pytest.raises(CodecError, match="expected the reference"):
            decode(QUANTIZED, payload, spec_of(array), reference=other)
    for wrong in (np.nan, np.inf):
        with pytest.raises(NotRepresentable, match="NaN or infinity"):
            encode(QUANTIZED, array, reference=np.full_like(array, wrong))
    least = np.full_like(array, np.finfo(np.float32).min)
    with pytest.raises(NotRepresentable):
        encode(QUANTIZED, -least, reference=least)
