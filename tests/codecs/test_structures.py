"""`constant`, `zstd`, `palette`, `sparse`, `runlength`: round trips, damage, sizes, refusals."""

import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorcomp.codecs import decode, encode, format_tree, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.entropy.constant import Constant
from tensorcomp.codecs.entropy.palette import Palette
from tensorcomp.codecs.entropy.runlength import Runlength
from tensorcomp.codecs.entropy.zstd import Zstd
from tensorcomp.codecs.payload import join
from tensorcomp.codecs.sparse.sparse import Sparse
from tensorcomp.errors import CodecError, NotRepresentable, PlanError

CODED = 1  # the mark of a payload that is no raw fallback
TREES = [
    "constant",
    "raw(bytes=zstd)",
    "bitpack(bytes=zstd(level=19))",
    "palette(codes=bitpack)",
    "palette(codes=ans)",
    "palette(table=runlength, codes=huffman)",
    "sparse",
    "sparse(mask=gaps, values=raw)",
    "sparse(mask=runlength, values=palette(codes=bitpack))",
    "runlength",
]
DTYPES = [
    *(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)),
    *map(np.dtype, ("?", "f2", "f4", "f8", "c8", "c16", ">f4", ">i8")),
    *map(np.dtype, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)),
]


def round_trip(array, text):
    """Return the payload of an array, having checked that it decodes to the same bits."""
    node = parse_tree(text)
    before = array.tobytes()
    try:
        payload = join(encode(node, array))
    except NotRepresentable:
        return b"\0" + before
    assert array.tobytes() == before
    assert payload == join(encode(node, array))
    assert len(payload) <= array.nbytes + 1
    native = array.astype(array.dtype.newbyteorder("<"))
    decoded = decode(node, payload, spec_of(native))
    assert decoded.dtype == native.dtype
    assert decoded.shape == native.shape
    assert decoded.tobytes() == native.tobytes()
    return payload


def few_patterns(rng, dtype, shape, patterns, zeros):
    """Return an array of few bit patterns, any at all, in runs, with so many zeros."""
    size = int(np.prod(shape))
    table = rng.integers(0, 256, (patterns, dtype.itemsize), np.uint8)
    if dtype == np.bool_:
        table &= 1
    picked = np.sort(rng.integers(0, patterns, size)) if rng.random() < 0.5 else None
    data = table[rng.integers(0, patterns, size) if picked is None else picked]
    data[rng.random(size) < zeros] = 0
    return np.frombuffer(data.tobytes(), dtype).reshape(shape)


@settings(max_examples=200, deadline=None)
@given(
    text=st.sampled_from(TREES),
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 60), min_size=0, max_size=3).map(tuple),
    patterns=st.sampled_from([1, 2, 5, 300]),
    zeros=st.sampled_from([0.0, 0.5, 0.97, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_restores_every_bit(text, dtype, shape, patterns, zeros, seed):
    rng = np.random.default_rng(seed)
    round_trip(few_patterns(rng, dtype, shape, patterns, zeros), text)


@pytest.mark.parametrize("text", TREES)
@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0, np.float32),
        np.zeros((3, 0, 2), np.int64),
        np.float64(-0.0).reshape(()),
        np.full(9, np.nan, np.float16),
        np.array([0.0, -0.0, 0.0, -0.0] * 9, np.float32),
        np.array([0x7FC00001, 0x7F800001, 0xFFC00000, 0x7F800000] * 8, np.uint32).view(np.float32),
        np.arange(40, dtype=np.uint64).view(np.float64).reshape(4, 10),  # denormals
        np.arange(60).reshape(6, 10)[::2, ::-3],
        np.asfortranarray(np.arange(24, dtype=np.float32).reshape(4, 6) // 7),
        np.broadcast_to(np.int16(7), (30, 30)),
        np.array([0, 2, 1, 255] * 20, np.uint8).view(np.bool_),  # what a file may call a mask
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_restores_what_is_unusual(text, array):
    round_trip(array, text)


@settings(max_examples=150, deadline=None)
@given(
    text=st.sampled_from(TREES),
    dtype=st.sampled_from([np.dtype(d) for d in ("?", "u1", "i2", "f4", "i8")]),
    cut=st.integers(0, 300),
    flips=st.lists(st.integers(0, 10**6), max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_damage_is_an_error_or_other_values(text, dtype, cut, flips, seed):
    rng = np.random.default_rng(seed)
    array = few_patterns(rng, dtype, (40, 30), 1 if text == "constant" else 4, 0.5)
    if text == "constant":
        array = np.full_like(array, array[0, 0])
    damaged = np.frombuffer(join(encode(parse_tree(text), array)), np.uint8).copy()
    for flip in flips:
        damaged[flip // 8 % damaged.size] ^= 1 << flip % 8
    damaged = damaged[: max(damaged.size - cut, 0)]
    try:
        decoded = decode(parse_tree(text), damaged, spec_of(array))
    except CodecError:
        return
    assert decoded.shape == array.shape


@pytest.mark.parametrize("text", TREES)
def test_cut_short_is_an_error(text):
    array = np.full((50, 40), 3, np.int32) if text == "constant" else np.arange(2000) // 9 % 4
    payload = join(encode(parse_tree(text), array))
    assert payload[0] == CODED
    for stop in {0, 1, 2, len(payload) // 2, len(payload) - 1}:
        with pytest.raises(CodecError):
            decode(parse_tree(text), payload[:stop], spec_of(array))


def test_constant_takes_equal_bits_only():
    assert len(join(Constant().encode(np.full(100, 2.5)))) == 8
    assert len(join(Constant().encode(np.full(100, 1j, np.complex128)))) == 16
    assert join(encode(parse_tree("constant"), np.zeros(0))) == bytes([CODED])
    for array in (np.array([0.0, -0.0]), np.arange(1000) // 999, np.array([1, 1j])):
        with pytest.raises(NotRepresentable):
            Constant().encode(array)
    with pytest.raises(CodecError):
        Constant().decode(np.zeros(4, np.uint8), np.empty(3))


def test_zstd_states_and_checks_its_size():
    frame = np.frombuffer(Zstd().encode(bytes(1 << 20)), np.uint8)
    assert Zstd().decode(frame, 1 << 20) == bytes(1 << 20)
    with pytest.raises(CodecError, match="at most"):
        Zstd().decode(frame, (1 << 20) - 1)
    for damaged in (frame[:-1], frame[1:], np.append(frame, frame), frame[:0]):
        with pytest.raises(CodecError):
            Zstd().decode(damaged, 1 << 30)


@pytest.mark.parametrize("level", [0, 23, 2.0, True, "3", None])
def test_zstd_refuses_levels(level):
    with pytest.raises(ValueError, match="level"):
        Zstd(level)


def test_zstd_stands_behind_serializers_only():
    assert format_tree(parse_tree("raw(bytes=zstd(19))")) == "raw(bytes=zstd(level=19))"
    with pytest.raises(PlanError):
        parse_tree("palette(codes=zstd)")


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c8"])
def test_palette_ascends_by_bits(dtype):
    rng = np.random.default_rng(5)
    array = rng.standard_normal(50).astype(dtype)[rng.integers(0, 50, (200, 30))]
    parts = Palette().encode(array)
    words = parts["table"].view(f"u{array.itemsize}")
    assert (words[1:] > words[:-1]).all()
    assert parts["table"].dtype == array.dtype
    assert parts["codes"].shape == array.shape
    assert (parts["table"][parts["codes"]] == array).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_palette_holds_65536_patterns_and_no_more(dtype):
    patterns = np.arange(1, 65538, dtype=f"u{np.dtype(dtype).itemsize}") << 5
    fits = np.tile(patterns[:-1], 2)
    assert Palette().encode(fits.view(dtype))["table"].size == 65536
    round_trip(fits.view(dtype), "palette(codes=bitpack)")
    with pytest.raises(NotRepresentable, match="65536"):
        Palette().encode(patterns.view(dtype))


def test_palette_gives_up_early():
    weights = np.random.default_rng(6).standard_normal(1 << 22).astype(np.float32)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        with pytest.raises(NotRepresentable):
            Palette().encode(weights)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.02  # 4 Mi elements take 40 ms at 10 ns each


def test_palette_checks_its_codes():
    parts = {"table": np.zeros(3, np.float32), "codes": np.array([0, 3], np.uint16)}
    with pytest.raises(CodecError, match="expected codes below 3, got"):
        Palette().decode(parts, np.empty(2, np.float32))


def test_palette_of_16_levels_takes_4_bits():
    rng = np.random.default_rng(7)
    array = rng.standard_normal(16).astype(np.float32)[rng.integers(0, 16, (256, 512))]
    assert array.nbytes / len(round_trip(array, "palette(codes=bitpack)")) > 7.98
    assert array.nbytes / len(round_trip(array, "palette")) > 7.9


def test_sparse_keeps_negative_zero_as_a_value():
    array = np.array([[0.0, -0.0, 1.5], [0.0, np.nan, 0.0]], np.float32)
    parts = Sparse().encode(array)
    assert parts["mask"].tolist() == [[False, True, True], [False, True, False]]
    assert np.signbit(parts["values"][0])
    assert parts["values"][1] == 1.5


def test_sparse_checks_mask_and_count():
    out = np.empty(3, np.float32)
    values = np.ones(2, np.float32)
    for mask in ([0, 1, 0], [1, 1, 1], [2, 1, 0]):
        with pytest.raises(CodecError, match="sparse"):
            Sparse().decode({"mask": np.array(mask, np.uint8).view(bool), "values": values}, out)


def test_sparse_halves_halves():
    rng = np.random.default_rng(8)
    weights = rng.standard_normal((512, 512)).astype(ml_dtypes.bfloat16)
    weights[rng.random(weights.shape) < 0.5] = 0
    # 1 bit of mask, and half of 8 bits of sign and mantissa and 2.6 of exponent
    assert weights.nbytes / len(round_trip(weights, "sparse")) > 2.45


def test_runlength_of_sorted_and_blocky():
    rng = np.random.default_rng(9)
    ids = np.sort(rng.integers(0, 500, 1 << 18))
    assert ids.nbytes / len(round_trip(ids, "runlength")) > 1000
    blocks = np.repeat(rng.random(1 << 12) < 0.3, 64)
    assert blocks.size / 8 / len(round_trip(blocks, "runlength")) > 20
    with pytest.raises(NotRepresentable, match="runs"):
        Runlength().encode(np.arange(100))


def test_runlength_checks_its_runs():
    data = np.frombuffer(join(Runlength().encode(np.zeros(1000, np.int16))), np.uint8)
    for size in (999, 1001, 1):
        with pytest.raises(CodecError, match="runs"):
            Runlength().decode(data, np.empty(size, np.int16))


def test_importing_the_codecs_imports_no_kernels():
    code = "import sys, tensorcomp.codecs; sys.exit('tensorcomp.kernels' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
