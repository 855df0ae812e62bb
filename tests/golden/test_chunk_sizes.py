"""Tensors as large as chunks are coded to the same bytes for ever, and decoded to the same.

The files of `test_golden` are small: they meet neither the tables that pay for long runs only, nor
many blocks, nor several chunks of real size. Here tensors and checkpoints are generated, and
``chunk_digests.json`` holds the XXH3-128 of what becomes of them. ``chunks/`` holds whole files,
for trees whose bytes other machines might not write again as well.

``pytest --regen-golden`` writes all digests anew, and those files that are missing; a file that is
there must decode for ever, and is replaced only where it is deleted first.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import xxhash
from chunk_cases import CHUNK_CASES
from chunk_checkpoints import CHECKPOINT_CASES, CHECKPOINTS
from chunk_coding import code
from chunk_files import CHUNK_FILES
from golden_cases import file_of, safetensors_bytes

import tensorcomp
from tensorcomp._zstd_frames import VERSION
from tensorcomp.codecs.registry import own_codecs
from tensorcomp.codecs.text import parse_tree
from tensorcomp.container.reader import CompressedFile

HERE = Path(__file__).parent
DIGESTS = HERE / "chunk_digests.json"
FILES = HERE / "chunks"
ELSEWHERE_OTHERWISE = {"rotate", "svd", "pq"}  # see `golden_cases`

Digests = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the checkpoints are."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, make in CHECKPOINTS.items():
        (folder / f"{name}.safetensors").write_bytes(safetensors_bytes(make()))
    return folder


@pytest.fixture(scope="module")
def digests(request: pytest.FixtureRequest, folder: Path) -> Digests:
    if request.config.getoption("--regen-golden"):
        FILES.mkdir(exist_ok=True)
        for name, case in CHUNK_FILES.items():
            if not file_path(name).exists():
                file_path(name).write_bytes(file_of(case))
        write_digests(
            {
                "written by": {"zstd": list(VERSION)},
                "trees": {name: code(case) for name, case in CHUNK_CASES.items()},
                "checkpoints": {name: compressed(name, folder) for name in CHECKPOINT_CASES},
                "files": {name: decoded(name) for name in CHUNK_FILES},
            }
        )
    found: Digests = json.loads(DIGESTS.read_text())
    return found


def write_digests(digests: Digests) -> None:
    """Write a line for each digest, so that a difference shows what has changed."""
    parts = []
    for part, entries in digests.items():
        lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
        parts.append(json.dumps(part) + ": {\n" + ",\n".join(lines) + "\n}")
    DIGESTS.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def file_path(name: str) -> Path:
    return FILES / f"{name}.tc.safetensors"


def compressed(name: str, folder: Path) -> dict[str, Any]:
    """Return what becomes of a checkpoint: its file, and what that is restored to."""
    source, arguments = CHECKPOINT_CASES[name]
    packed = folder / "packed.tc.safetensors"
    tensorcomp.compress(folder / f"{source}.safetensors", packed, force=True, **arguments)
    with CompressedFile(packed) as file:
        trees = [parse_tree(planned.tree) for planned in file.manifest.trees]
    assert not ELSEWHERE_OTHERWISE & {codec.id for tree in trees for codec in tree.walk()}
    restored = tensorcomp.decompress(packed, folder / "restored.safetensors", force=True)
    return {
        "bytes": packed.stat().st_size,
        "stored": xxhash.xxh3_128_hexdigest(packed.read_bytes()),
        "decoded": xxhash.xxh3_128_hexdigest(restored.read_bytes()),
    }


def decoded(name: str) -> dict[str, Any]:
    """Return the digest of the tensor that a file decodes to."""
    array = tensorcomp.load_file(file_path(name))["tensor"]
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "decoded": xxhash.xxh3_128_hexdigest(array.tobytes()),
    }


def compare(found: dict[str, Any], wanted: dict[str, Any], digests: Digests) -> None:
    """Require equal digests; only of what is decoded if zstd has another version."""
    if digests["written by"]["zstd"] == list(VERSION):
        assert found == wanted
        return
    for key in ("source", "decoded"):
        assert found.get(key) == wanted.get(key)
    pytest.skip("another version of zstd: only what is decoded was compared")


@pytest.mark.parametrize("name", CHUNK_CASES)
def test_trees_code_large_tensors_as_ever(name, digests):
    compare(code(CHUNK_CASES[name]), digests["trees"][name], digests)


@pytest.mark.parametrize("name", CHECKPOINT_CASES)
def test_large_checkpoints_compress_to_the_same_bytes_as_ever(name, digests, folder):
    compare(compressed(name, folder), digests["checkpoints"][name], digests)


@pytest.mark.parametrize("name", CHUNK_FILES)
def test_large_files_decode_as_ever(name, digests):
    assert file_path(name).is_file(), f"{name} is missing; golden files are part of the repository"
    assert decoded(name) == digests["files"][name]
    if parse_tree(CHUNK_FILES[name].tree).lossless:
        wanted = CHUNK_FILES[name].tensors()["tensor"].tobytes()
        assert digests["files"][name]["decoded"] == xxhash.xxh3_128_hexdigest(wanted)


def test_lossless_checkpoints_are_restored(digests, folder):
    for name, (source, arguments) in CHECKPOINT_CASES.items():
        if arguments.get("budget") is None and "prune" not in arguments:
            wanted = (folder / f"{source}.safetensors").read_bytes()
            found = digests["checkpoints"][name]["decoded"]
            assert found == xxhash.xxh3_128_hexdigest(wanted)


def test_every_codec_is_used_and_most_chunks_are_coded(digests):
    trees = {case.tree for case in CHUNK_CASES.values()}
    used = {codec.id for tree in trees for codec in parse_tree(tree).walk()}
    assert used | ELSEWHERE_OTHERWISE == set(own_codecs())
    files = {codec.id for case in CHUNK_FILES.values() for codec in parse_tree(case.tree).walk()}
    assert files > ELSEWHERE_OTHERWISE
    raw = [name for name, entry in digests["trees"].items() if entry["raw"]]
    assert len(raw) < len(CHUNK_CASES) / 40


def test_no_digest_is_left_over(digests):
    assert digests["trees"].keys() == CHUNK_CASES.keys()
    assert digests["checkpoints"].keys() == CHECKPOINT_CASES.keys()
    assert digests["files"].keys() == CHUNK_FILES.keys()
    assert {path.name for path in FILES.iterdir()} == {file_path(name).name for name in CHUNK_FILES}


def test_large_files_are_few():
    sizes = [path.stat().st_size for path in FILES.iterdir()]
    assert max(sizes) < 1_000_000
    assert sum(sizes) < 7_000_000
