"""`ggml`: the fields of a block are its weights in order, and any bytes come back."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Types
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st

from tensorcomp.codecs import Ggml, encode, parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import byte_count
from tensorcomp.codecs.quantize.ggml_blocks import BLOCKS
from tensorcomp.dtypes import block_size
from tensorcomp.errors import CodecError
from tensorcomp.kernels import native

OF_BYTES = "TQ1_0"  # five weights a byte
OF_TABLES = ("IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4")  # a code is a place in a table of values


def test_fields_of_a_block_by_hand():
    low, high = np.arange(16), np.arange(16)[::-1]
    block = np.concatenate([np.float16([0.5]).view(np.uint8), low | high << 4]).astype(np.uint8)
    parts = Ggml("Q4_0").encode(np.append(block, np.uint8(7)))
    assert list(parts) == ["scale", "codes", "rest"]
    assert parts["scale"].tolist() == [0.5]
    assert parts["codes"].tolist() == [[*(low - 8), *(high - 8)]]
    assert parts["rest"].tolist() == [7]


def test_spans_are_sorted_by_the_code_of_zero():
    def block(scale, minimum, code):
        head = np.float16([scale, minimum]).view(np.uint8)
        return [*head, *[17 * code] * 16]

    blocks = [block(1, -9, 1), block(2, -2, 2), block(3, np.nan, 3), block(0, -1, 4)]
    parts = Ggml("Q4_1").encode(np.array([*blocks, block(-1, -9, 5)], np.uint8))
    # NaN counts as 0; a scale of 0 gives infinity, which does as well; 2 / 2 = 1; 9, twice.
    assert parts["codes"].reshape(-1, 32)[:, 0].tolist() == [3, 4, 2, 1, 5]
    assert parts["scale"].tolist() == [1, 2, 3, 0, -1]
    minima = parts["minimum"].tolist()[0]  # by the scale without its sign: 0, 1, -1, 2, 3
    assert minima[:4] == [-1, -9, -9, -2]
    assert np.isnan(minima[4])


@pytest.mark.parametrize("name", [name for name in BLOCKS if name != OF_BYTES])
def test_codes_are_the_weights_in_their_order(name):
    block, nbytes = BLOCKS[name], block_size(name)[1]
    random = np.random.default_rng(0)
    for _ in range(20):  # blocks alone: nothing is sorted but their spans
        data = random.integers(0, 256, nbytes, np.uint8)
        for field in (block.scale, block.minimum):
            if field is not None:
                data[field : field + 2] = random.uniform(0.1, 1, 1).astype(np.float16).view("u1")
        if block.scale is None:
            data[:4] = 100 + data[:4] % 20
        weights = quants.dequantize(data, Types[name]).reshape(-1, block.span)
        parts = Ggml(name).encode(data)
        scale = parts["scale"].astype(np.float32) if block.scale is not None else np.ones(1, "f4")
        steps, least = np.full(len(weights), scale[0]), np.zeros(len(weights), np.float32)
        factors = parts.get("scales", np.ones((1, 1), np.float32)).astype(np.float32)
        if block.minimum is not None:
            sign = -1 if block.pairs else 1
            least += sign * parts["minimum"].reshape(-1)[0]
        if block.pairs:
            factors = factors.reshape(-1, 2, block.pairs)
            least *= factors[:, 1].reshape(-1)
            factors = factors[:, 0]
        steps *= factors.reshape(-1)
        if block.minimum is None:
            keys = np.abs(steps).view(np.uint32) >> 15
        else:
            with np.errstate(all="ignore"):
                zeros = np.rint(16 * np.abs(least / steps))
            keys = np.where(np.isfinite(zeros), zeros, 0).clip(0, 255)
        order = np.argsort(keys, kind="stable")
        codes = parts["codes"].reshape(-1)[: weights.size].reshape(weights.shape).astype(np.float32)
        if name in OF_TABLES:
            signs = np.where(steps < 0, -1, 1)[:, None]
            for row, values in zip(codes, (signs * weights)[order], strict=True):
                assert (np.diff(values[np.argsort(row, kind="stable")]) >= 0).all()
        else:
            found = codes * steps[order, None] + least[order, None]
            np.testing.assert_allclose(found, weights[order], rtol=1e-6, atol=1e-6)


@given(st.sampled_from(list(BLOCKS)), st.integers(0, 9000), st.integers(0, 1 << 20))
def test_any_bytes_come_back(name, size, seed):
    data = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    data[: size // 3] |= 0x7C  # scales that are NaN or infinite
    codec, out = Ggml(name), np.empty_like(data)
    parts, specs = codec.encode(data), codec.parts(spec_of(data))
    assert {part: spec_of(array) for part, array in parts.items()} == specs
    codec.decode(parts, out)
    assert out.tobytes() == data.tobytes()


def test_what_no_block_holds_is_refused():
    data = np.zeros(110, np.uint8)
    for part in ("codes", "scales"):
        parts = dict(Ggml("Q3_K").encode(data))
        parts[part] = parts[part] + np.int8(100)
        with pytest.raises(CodecError, match="expected elements of"):
            Ggml("Q3_K").decode(parts, data)


@pytest.mark.parametrize(
    ("name", "most"), [("Q4_0", 0.93), ("Q4_1", 0.91), ("Q5_0", 0.94), ("Q5_1", 0.94)]
)
def test_it_takes_fewer_bytes_than_the_bytes_themselves(name, most):
    random = np.random.default_rng(2)
    weights = random.normal(0, 0.02, (512, 512)) * np.exp(random.normal(0, 0.3, (512, 1)))
    data = quants.quantize(weights.astype(np.float32), Types[name]).reshape(-1)
    found = byte_count(encode(parse_tree(f'ggml("{name}")'), data)) / data.size
    coded = byte_count(encode(parse_tree("ans(states=12)"), data)) / data.size
    assert found < min(most, coded - 0.02)


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("wrong", [-1, 9, 1 << 62, -(1 << 63)])
def test_kernels_stay_within_blocks(place, wrong):
    table = np.array([[1, 2, 0, 4, 0, 2, 4]], np.int64)
    blocks, elements = np.zeros((3, 4), np.uint8), np.zeros((3, 8), np.uint8)
    native.ggml_split(blocks, table, elements)
    table[0, place] = wrong
    with pytest.raises(ValueError, match="ggml"):
        native.ggml_split(blocks, table, elements)
    with pytest.raises(ValueError, match="ggml"):
        native.ggml_join(elements, table, blocks)
