"""`difference`: any bits come back, relatives take few bytes, damage is refused."""

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.tree import fit, pack_shared, unpack_shared
from tensorcomp.errors import CodecError, NotRepresentable

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(kind) for kind in ("f4", "f2", BF16, ml_dtypes.float8_e4m3fn, "u1", "i2", "i4")]
TREES = [
    parse_tree(f"difference{fields}")
    for fields in ("(levels=false)", "", "(rank=2)", "(decay=true)", "(1, false, true)")
]
SHAPES = [(), (1,), (15,), (5000,), (3, 7), (40, 33), (130, 80), (2, 6000)]
EXTREMES = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 1e-38, 3e38, -3e38], np.float32
)


def relative(rows: int, columns: int, moved: float, dtype: np.dtype = BF16, seed: int = 0):
    """Return weights, and what they were before an update of so large a part of them."""
    random = np.random.default_rng(seed)
    base = random.normal(0, 0.05, (rows, columns))
    scales = np.exp2(random.uniform(-2, 2, (rows, 1)))
    new = base + moved * 0.05 * scales * random.normal(size=base.shape)
    return new.astype(np.float32).astype(dtype), base.astype(np.float32).astype(dtype)


def size_of(array: np.ndarray, base: np.ndarray, tree=TREES[1]) -> int:
    """Return the payload's bytes, once it has been decoded and compared."""
    payload = join(encode(tree, array, reference=base))
    found = decode(tree, payload, spec_of(array), reference=base)
    assert found.tobytes() == array.tobytes()
    return len(payload)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Return arrays of any bits, some of them equal, some near, some extremes."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
    words = [random.integers(0, 256, (*shape, dtype.itemsize), np.uint8) for _ in range(2)]
    base, new = (np.ascontiguousarray(part).view(dtype).reshape(shape) for part in words)
    kind = draw(st.sampled_from(["any", "some", "near", "extremes"]))
    if kind == "some":
        new = np.where(random.random(shape) < draw(st.sampled_from([0.001, 0.1, 0.5])), new, base)
    elif kind == "near" and dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            base = random.normal(size=shape).astype(np.float32).astype(dtype)
            step = np.float32(draw(st.sampled_from([1e-7, 1e-3, 0.1, 3])))
            new = (base.astype(np.float32) * (1 + step * random.normal(size=shape))).astype(dtype)
    elif kind == "extremes" and dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            base, new = (random.choice(EXTREMES, shape).astype(dtype) for _ in range(2))
    return np.asarray(new, dtype), np.asarray(base, dtype)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TREES), pairs())
def test_every_bit_comes_back(tree, pair):
    size_of(*pair, tree)


@pytest.mark.parametrize("dtype", ["f8", "i8", "f4", BF16, "u1"])
def test_what_is_equal_takes_a_byte(dtype):
    array = np.random.default_rng(0).integers(0, 99, (300, 70)).astype(dtype)
    assert size_of(array, array) == 2  # one is the mark of a payload


@pytest.mark.parametrize(
    ("moved", "most"), [(1e-5, 0.081), (1e-4, 0.4), (1e-3, 1.55), (1e-2, 4.2), (0.1, 7.8)]
)
def test_bits_of_a_weight_follow_the_update(moved, most):
    array, base = relative(512, 768, moved)
    assert 8 * size_of(array, base) / array.size < most


def test_levels_pay_where_rows_moved_unlike():
    array, base = relative(800, 400, 3e-3)
    assert size_of(array, base) < 0.97 * size_of(array, base, TREES[0])


def test_rows_that_did_not_move_take_next_to_nothing():
    array, base = relative(3000, 256, 1e-2)
    array[20:] = base[20:]
    assert size_of(array, base) < 20 * 256 + 60


@pytest.mark.parametrize("moved", [1e-5, 1e-2])
def test_threads_give_the_same_bytes(moved):
    array, base = relative(700, 300, moved)
    one = join(encode(TREES[1], array, reference=base))
    with ThreadPoolExecutor(3) as pool:
        more = pool.map(lambda _: join(encode(TREES[1], array, reference=base)), range(6))
    assert set(more) == {one}


def test_without_a_reference_there_is_no_code():
    array, base = relative(64, 64, 1e-3)
    codec, out = TREES[0].codec, np.empty_like(array)
    with pytest.raises(NotRepresentable, match="no reference"):
        codec.encode(array)
    payload = join(encode(TREES[0], array, reference=base))
    with pytest.raises(CodecError, match="name the base"):
        decode(TREES[0], payload, spec_of(array))
    with pytest.raises(CodecError, match="expected a reference of"):
        codec.decode(np.frombuffer(payload[1:], np.uint8), out, reference=base[:3])
    with pytest.raises(CodecError, match="expected a reference of"):
        codec.encode(array, reference=base[:3])


@pytest.mark.parametrize("moved", [1e-5, 1e-4, 1e-2])
@pytest.mark.parametrize("dtype", [BF16, "f4"])
def test_damage_is_refused_or_gives_an_array(moved, dtype):
    array, base = relative(128, 128, moved, np.dtype(dtype))
    payload = join(encode(TREES[1], array, reference=base))
    random = np.random.default_rng(1)
    for place in [*range(1, 80), *random.integers(80, len(payload), 80)]:
        for damaged in (payload[:place], _flipped(payload, place, random), payload + b"\1"):
            try:
                found = decode(TREES[1], damaged, spec_of(array), reference=base)
            except CodecError:
                continue
            assert found.shape == array.shape


def _flipped(payload: bytes, place: int, random: np.random.Generator) -> bytes:
    if place >= len(payload):
        return payload[:-1]
    other = payload[place] ^ int(random.integers(1, 256))
    return payload[:place] + bytes([other]) + payload[place + 1 :]


def merged(size: int, rank: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return weights into which an adapter of a rank was merged, and those without it."""
    random = np.random.default_rng(3)
    base = random.normal(0, 0.02, (size, size)).astype(np.float32).astype(dtype)
    left, right = (random.normal(0, 0.02, (size, rank)) for _ in range(2))
    return (base.astype(np.float64) + left @ right.T).astype(np.float32).astype(dtype), base


@pytest.mark.parametrize(("dtype", "least"), [(BF16, 9), (np.dtype("f4"), 8)])
def test_factors_predict_a_merged_adapter(dtype, least):
    array, base = merged(256, 4, dtype)
    tree = parse_tree("difference(4, false)")
    assert array.nbytes > least * size_of(array, base, tree)
    assert array.nbytes < 3 * size_of(array, base, TREES[0])


def test_chunks_share_right_factors():
    array, base = merged(192, 3, BF16)
    tree = parse_tree("difference(3, false)")
    shared = fit(tree, array, base)
    assert unpack_shared(tree, pack_shared(shared)) == shared
    payload = join(encode(tree, array[:50], shared, reference=base[:50]))
    spec = spec_of(array[:50])
    found = decode(tree, payload, spec, shared, reference=base[:50])
    assert found.tobytes() == array[:50].tobytes()
    assert len(payload) < 0.8 * size_of(array[:50], base[:50], tree)
    with pytest.raises(CodecError):
        decode(tree, payload, spec, reference=base[:50])


def test_a_factor_predicts_weights_that_decay():
    array, base = relative(300, 256, 1e-3, np.dtype("f4"))
    decayed = base * np.float32(1 - 3e-5)
    array[20:] = decayed[20:]
    tree = parse_tree("difference(decay=true)")
    assert size_of(array, base, tree) < 20 * 256 * 3 + 100
    assert size_of(array, base) > 2 * size_of(array, base, tree)
