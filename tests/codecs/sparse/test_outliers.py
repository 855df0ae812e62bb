"""`outliers`: the few largest elements exactly, whatever codes the others."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.bit_views import as_words, readable
from tensorcomp.codecs.payload import byte_count, join
from tensorcomp.codecs.sparse.outliers import Outliers
from tensorcomp.errors import CodecError, NotRepresentable

DTYPES = [np.dtype(kind) for kind in ("f8", "f4", "f2", ml_dtypes.bfloat16)]
QUANTIZERS = [
    "uniform(0.5)",
    "trellis(0.5)",
    "affine(4)",
    "kmeans(16)",
    "nf4",
    "ternary",
    'cast("F8_E4M3")',
    "magnitude(0.5, values=uniform(0.5))",
]


def decoded(text: str, array: np.ndarray) -> np.ndarray:
    tree = parse_tree(text)
    return decode(tree, join(encode(tree, array)), spec_of(array))


def test_by_hand():
    array = np.array([[0.5, -100.0, np.nan], [-0.0, 3.0, 99.9]], np.float32)
    parts = Outliers(100).encode(readable(array))
    assert parts["positions"].tolist() == [1, 2]
    assert parts["exact"].tobytes() == array[0, 1:].tobytes()
    assert parts["values"].tolist() == [[0.5, 0, 0], [-0.0, 3, pytest.approx(99.9)]]
    assert np.signbit(parts["values"]).ravel().tolist() == [0, 0, 0, 1, 0, 0]
    out = np.full((2, 3), 7, np.float32)
    Outliers(100).decode(parts, out)
    assert out.tobytes() == array.tobytes()


@given(
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.sampled_from(DTYPES),
    st.floats(1e-30, 1e30),
    st.integers(0, 999),
)
def test_any_bits_come_back_and_values_lie_below_the_limit(shape, dtype, limit, seed):
    word = np.dtype(f"u{dtype.itemsize}")
    random = np.random.default_rng(seed)
    array = random.integers(0, np.iinfo(word).max, shape, word, endpoint=True).view(dtype)
    parts = Outliers(limit).encode(readable(array))
    with np.errstate(all="ignore"):
        least = np.array(limit).astype(dtype).astype(np.float64)
        assert (np.abs(parts["values"].astype(np.float64)) < least).all() or least == 0
    assert not as_words(parts["values"]).reshape(-1)[parts["positions"]].any()
    assert decoded(f"outliers({limit!r})", array).tobytes() == array.tobytes()


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
def test_any_quantizer_codes_the_others_as_if_there_were_none(quantizer, dtype):
    array = np.random.default_rng(1).standard_normal((64, 80)).astype(dtype)
    array[3, 5], array[40, 2], array[63, 79] = 6e4, -6e4, np.inf
    places = np.abs(array) > 100
    found = decoded(f"outliers(100, values={quantizer})", array)
    assert found[places].tobytes() == array[places].tobytes()
    others = decoded(quantizer, np.where(places, 0, array).astype(dtype))
    assert (found[~places] == others[~places]).all()


def test_bytes_grow_by_the_number_of_outliers():
    array = np.random.default_rng(2).standard_normal((256, 256)).astype(np.float32)
    places = np.random.default_rng(3).choice(array.size, 1000, replace=False)
    tree, plain = parse_tree("outliers(100, values=uniform(0.1))"), parse_tree("uniform(0.1)")
    base = byte_count(encode(plain, array))
    for count in (0, 1, 10, 100, 1000):
        array.reshape(-1)[places[:count]] = 1e4
        assert byte_count(encode(tree, array)) <= base + 64 + count * 6


@pytest.mark.parametrize(
    ("positions", "exact"),
    [
        ([0], []),
        ([0, 1], [1.0]),
        ([1, 0], [1.0, 2.0]),
        ([1, 1], [1.0, 2.0]),
        ([4], [1.0]),
        ([-1], [1.0]),
        ([2**62], [1.0]),
    ],
)
def test_damage(positions, exact):
    parts = {
        "positions": np.array(positions, np.int64),
        "exact": np.array(exact, np.float32),
        "values": np.zeros(4, np.float32),
    }
    with pytest.raises(CodecError, match="outliers: expected"):
        Outliers(1).decode(parts, np.empty(4, np.float32))


def test_integers_are_refused():
    with pytest.raises(NotRepresentable, match="expected floats, got int32"):
        Outliers(1).encode(np.zeros(4, np.int32))
