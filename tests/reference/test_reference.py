"""The plain decoder gives what `tensorcomp` gives, for every codec and every version."""

import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorcomp
from reference.codec import CODECS
from reference.reader import read
from reference.tree import decode, parse
from tensorcomp.codecs import payload as coding
from tensorcomp.codecs.base import Filter, Serializer, Transform, spec_of
from tensorcomp.codecs.quantize.ggml_blocks import BLOCKS
from tensorcomp.codecs.registry import own_codecs
from tensorcomp.codecs.text import format_tree, parse_tree
from tensorcomp.codecs.tree import fit, pack_shared
from tensorcomp.container.manifest import LATEST_VERSION
from tensorcomp.container.reader import CompressedFile
from tensorcomp.errors import NotRepresentable
from tensorcomp.testing.arrays import reference_of

TESTS = Path(__file__).parents[1]
VERSIONS = [
    *(TESTS / "golden" / f"v{version}" for version in range(1, LATEST_VERSION + 1)),
    TESTS / "golden" / "v6_uniform",
]
FILES = [path for folder in VERSIONS for path in sorted(folder.glob("*.tc.safetensors"))]
KINDS = {"serializer": Serializer, "transform": Transform, "filter": Filter}

EXACT = [
    "ans(contexts=16, states=12)",
    "ans(states=9)",
    "ans(contexts=8, trellis=8)",
    "ans(contexts=4, bypass=true)",
    "bitpack(bytes=zstd)",
    "difference",
    "difference(2)",
    "difference(levels=false, decay=true)",
    "fields(2, exponent=ans(contexts=4), mantissa=raw(bytes=zstd))",
    "floats",
    "floats(4, contexts=32)",
    "groupfloats",
    'groupfloats(1, 2, "columns")',
    *(f'ggml("{name}")' for name in BLOCKS),
    "huffman(contexts=8)",
    "palette(codes=huffman(contexts=8))",
    "runlength",
    "sparse(mask=gaps)",
    "zeros(values=live(values=live(1)))",
]
LOSSY = [
    "affine(3, 16, false)",
    "grid(8)",
    "kmeans(5)",
    'nm(3, 10, values=cast("BF16"))',
    "nf4(-1)",
    "block(3, 5, 0.25)",
    "randomk(0.3, seed=5)",
    "rotate(3, rotated=uniform(0.01))",
    'svd(energy=0.9, unfold="separable", refine=true)',
    "scales(values=trellis(0.02))",
    "scales(0)",
    "trellis(0.02)",
    "trellis(0.004, 32, codes=ans(contexts=4, states=12, trellis=32))",
    "uniform(0.0005)",
    "update",
    "update(1.25, values=trellis(0.02))",
]
SHAPES = [(), (0, 3), (1,), (300,), (7, 5), (33, 20), (20, 33), (5, 3, 3, 4), (2, 700)]
DTYPES = [np.dtype(kind) for kind in ("f4", "f2", "f8", ml_dtypes.bfloat16)]
INTEGERS = [np.dtype(kind) for kind in ("i1", "u1", "i2", "i4")]


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Return floats of rows of unlike scale, or integers, some of them equal, some zero."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    shape = draw(st.sampled_from(SHAPES))
    rows = shape[:1] + (1,) * (len(shape) - 1)
    values = random.laplace(size=shape) * np.exp2(random.integers(-6, 3, rows))
    values = np.where(random.random(shape) < draw(st.sampled_from([0, 0.2, 0.9])), 0, values)
    grain = draw(st.sampled_from([0, 1, 64]))
    dtype = draw(st.sampled_from([*DTYPES, *INTEGERS]))
    if dtype in INTEGERS:
        return np.asarray(np.clip(30 * values, -128 * (dtype.kind == "i"), 127)).astype(dtype)
    return np.asarray(np.rint(values * grain) / grain if grain else values).astype(dtype)


def check(text: str, array: np.ndarray, *, share: bool = False) -> None:
    """Compare what both decoders make of a payload."""
    node = parse_tree(text)
    reference = reference_of(node, array)
    try:
        shared = fit(node, array, reference) if share else node.shares_nothing
        payload = coding.join(coding.encode(node, array, shared, reference=reference))
    except NotRepresentable:
        assume(False)
    wanted = coding.decode(node, payload, spec_of(array), shared, reference=reference)
    packed = pack_shared(shared)
    for written in (text, format_tree(node)):
        found = decode(parse(written), payload, array.shape, array.dtype, packed, reference)
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_files_decode_to_the_same_bytes(path):
    found, wanted = read(path), tensorcomp.load_file(path)
    with CompressedFile(path) as file:
        hidden = file.hidden
    assert [name for name in found if name not in hidden] == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes(), name


def test_there_are_golden_files_of_every_version():
    assert {path.parent for path in FILES} == set(VERSIONS)


def test_every_codec_is_here_with_its_fields_and_default_subtrees():
    assert set(CODECS) == set(own_codecs())
    for name, own in own_codecs().items():
        found = CODECS[name]
        assert issubclass(own, KINDS[found.kind])
        assert list(found.fields) == [field.name for field in fields(own)]
        for field in fields(own):
            if field.default is not MISSING:
                assert found.fields[field.name] == field.default
        assert found.parts == getattr(own, "default_parts", {})
        assert found.aliases == getattr(own, "part_aliases", {})


@settings(max_examples=150)
@given(st.sampled_from([*EXACT, *LOSSY]), arrays())
def test_payloads_decode_to_the_same_bytes(text, array):
    check(text, array)


@settings(max_examples=40)
@given(arrays())
def test_squares_decode_to_the_same_bytes(array):
    with np.errstate(all="ignore"):
        check("rank1", array * array)


@pytest.mark.parametrize(("rows", "moved"), [(40, 1e-2), (120, 1e-5), (120, 1e-3), (120, 0.1)])
@pytest.mark.parametrize("text", ["difference", "difference(1, levels=false)"])
@pytest.mark.parametrize("dtype", ["f4", ml_dtypes.bfloat16])
def test_relatives(rows, moved, text, dtype):
    random = np.random.default_rng(7)
    base = random.normal(size=(rows, 81))
    near = base + moved * random.normal(size=base.shape) * np.exp2(
        random.integers(-3, 3, (rows, 1))
    )
    array, reference = (part.astype("f4").astype(dtype) for part in (near, base))
    node = parse_tree(text)
    shared = fit(node, array, reference)
    payload = coding.join(coding.encode(node, array, shared, reference=reference))
    packed = pack_shared(shared)
    found = decode(parse(text), payload, array.shape, array.dtype, packed, reference)
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("text", ["ans(contexts=8, trellis=8)", "huffman(contexts=4)", "floats"])
def test_columns_that_chunks_share(text):
    random = np.random.default_rng(3)
    values = random.normal(size=(3, 4100)) * np.exp2(random.integers(-3, 4, (3, 1)))
    values *= np.exp2(random.integers(-2, 3, 4100))
    dtype = np.dtype(ml_dtypes.float8_e5m2) if text == "floats" else np.dtype(np.int8)
    check(text, np.clip(9 * values, -128, 127).astype(dtype), share=True)


@pytest.mark.parametrize("text", ["kmeans(codes=huffman)", "rotate(2, rotated=trellis(0.01))"])
def test_tables_that_chunks_share(text):
    array = np.random.default_rng(4).normal(size=(40, 30)).astype(np.float32)
    check(text, array, share=True)


def test_it_runs_alone(tmp_path):
    source = VERSIONS[8] / "model.safetensors.max.tc.safetensors"
    target = tmp_path / "model.safetensors"
    command = [sys.executable, "-X", "importtime", "-m", "reference", str(source), str(target)]
    done = subprocess.run(command, cwd=TESTS, check=True, capture_output=True, text=True)
    imported = set(re.findall(r"^import time:.*\|\s*(\w+)", done.stderr, re.MULTILINE))
    assert {"numpy", "reference"} <= imported
    assert not {"tensorcomp", "torch"} & imported
    found = safetensors.numpy.load_file(target)
    for name, array in tensorcomp.load_file(source).items():
        assert found[name].tobytes() == array.tobytes()
