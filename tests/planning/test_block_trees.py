"""Tensors of ggml's blocks: their codec where it pays, never more bytes than as opaque bytes."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Types
from gguf import quants

import tensorcomp
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.codecs import encode
from tensorcomp.codecs.payload import byte_count
from tensorcomp.codecs.quantize.ggml_blocks import BLOCKS
from tensorcomp.container.reader import CompressedFile
from tensorcomp.dtypes import block_size
from tensorcomp.planning.lossless import EFFORTS, plan_lossless


def blocks_of(name, rows=768, columns=512, rounded=False):
    """Return blocks of normal weights, maybe of those that bfloat16 holds."""
    random = np.random.default_rng(rows)
    weights = random.normal(0, 0.02, (rows, columns)) * np.exp(random.normal(0, 0.3, (rows, 1)))
    weights = weights.astype(np.float32)
    if rounded:
        weights = (weights.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return quants.quantize(weights, Types[name]).reshape(-1)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_blocks_are_cut_into_their_fields(name, effort):
    data = blocks_of(name)
    plan = plan_lossless(data, effort, name)
    assert plan.tree.codec.id == "ggml"
    assert plan.fallback is None
    as_bytes = plan_lossless(data, effort).tree
    assert byte_count(encode(plan.tree, data)) < 0.99 * byte_count(encode(as_bytes, data))


def test_scales_of_a_rounded_model_are_coded_by_their_low_bits_too():
    found = [
        plan_lossless(blocks_of("Q4_1", rounded=rounded), "balanced", "Q4_1").tree.text
        for rounded in (False, True)
    ]
    assert "minimum=groupfloats" not in found[1]
    assert found[0] != found[1]


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("make", ["random", "equal", "text", "few", "none"])
def test_never_more_than_as_opaque_bytes(name, make):
    random, size = np.random.default_rng(3), 250 * block_size(name)[1] + 3
    data = {
        "random": random.integers(0, 256, size, np.uint8),
        "equal": np.full(size, 9, np.uint8),
        "text": np.resize(np.frombuffer(b"one and another one; ", np.uint8), size),
        "few": random.integers(0, 256, 99, np.uint8),
        "none": np.empty(0, np.uint8),
    }[make]
    found, opaque = plan_lossless(data, "balanced", name), plan_lossless(data, "balanced")
    most = byte_count(encode(opaque.tree, data))
    assert byte_count(encode(found.tree, data)) <= max(most, min(most + 64, size // 50))


@pytest.mark.parametrize("chunk", [1 << 20, 10_000])
def test_a_file_of_blocks_is_cut_between_them(tmp_path, chunk):
    held = {name: blocks_of(name, 96, 512) for name in ("Q4_1", "Q8_0", "Q5_0")}
    held["IQ3_S"] = np.random.default_rng(4).integers(0, 256, 110 * 300, np.uint8)
    infos = [TensorInfo(name, name, (len(data),), data.size) for name, data in held.items()]
    source = tmp_path / "model.safetensors"
    source.write_bytes(build_header(infos) + b"".join(data.tobytes() for data in held.values()))
    packed = tmp_path / "model.tc.safetensors"
    tensorcomp.compress(source, packed, chunk_elements=chunk)
    with CompressedFile(packed) as file:
        for name in held:
            assert file.record(name).chunk_elements % block_size(name)[1] == 0
            assert 0 < file.record(name).chunk_elements <= chunk
            tree = file.manifest.trees[file.record(name).tree].tree
            assert tree.startswith("ggml(") == (name != "IQ3_S")
    assert tensorcomp.decompress(packed, tmp_path / "again").read_bytes() == source.read_bytes()
