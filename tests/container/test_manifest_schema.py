"""The JSON Schema of the manifest: what is written fits, what has another structure fails."""

import copy
import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hostile_manifests import MANIFESTS, SOUND, Change
from jsonschema import Draft202012Validator
from tampering import manifest_of, sample_bytes

from tensorcomp.container.manifest import FORMAT_VERSION, LATEST_VERSION

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/reference/manifest.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
GOLDEN = ROOT / "tests" / "golden"
WRITTEN = sorted(
    path
    for folder in (f"v{FORMAT_VERSION}", "chunks", "v6_uniform")
    for path in (GOLDEN / folder).glob("*.tc.safetensors")
)

# Manifests of sound structure that contradict themselves, the header or the blobs: only a reader
# can refuse them (see `test_attacks`).
_CONTRADICTIONS = """
    chunks of 1; other chunks; no trees; no tensors; a tensor less; a tensor more; huge shape;
    large shape; somewhat larger shape; smaller shape; unknown dtype; unknown dtype, huge;
    narrower dtype; wider dtype; complex dtype; dtype of half a byte; other integer type;
    fallback out of range; wrong digest; tied to nothing; tied to itself; tied in a ring; tied
    over a tensor; kind of a torch file; kind of an archive; kind of a layout; nothing is said
    to be hidden; fewer gaps than tensors; metadata of surrogates; attachment
    is no frame; bundles is empty; a bundle more; a bundle of nothing; in an unknown bundle; in
    a tensor; another type in a bundle; a wider type in a bundle; a larger tensor in a bundle; a
    huge tensor in a bundle; tensors that fill less; tensors that fill more; a tensor more in a
    bundle; a tensor less in a bundle; a bundle without a name; a bundle of another type; a
    bundle of another tree; a bundle of another digest; a bundle of a wrong size; tree is a
    filter; tree of an unknown codec; tree is broken; tree is deep; tree of other codecs; tree
    of contexts; tree of parts; tree of bits; tree of runs; constant tree; raw tree
"""
CONTRADICTIONS = {" ".join(name.split()) for name in _CONTRADICTIONS.split(";")}


@functools.cache
def sample() -> dict[str, Any]:
    return manifest_of(sample_bytes())


def changed(name: str, changes: dict[str, Change]) -> object:
    manifest = copy.deepcopy(sample())
    found = changes[name](manifest)
    return manifest if found is None else found


def test_the_schema_is_one_and_of_this_version():
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["title"].endswith(f"format version {LATEST_VERSION}")


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_golden_manifests_fit(path):
    VALIDATOR.validate(manifest_of(path.read_bytes()))


def test_the_specification_s_example_fits():
    page = (ROOT / "docs/reference/file-format.md").read_text("utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    VALIDATOR.validate(json.loads(example))


@pytest.mark.parametrize("name", SOUND)
def test_sound_manifests_fit(name):
    VALIDATOR.validate(changed(name, SOUND))


@pytest.mark.parametrize("name", MANIFESTS)
def test_hostile_manifests_fail(name):
    value = changed(name, MANIFESTS)
    if not isinstance(value, bytes):
        assert VALIDATOR.is_valid(value) == (name in CONTRADICTIONS)


def test_contradictions_are_known():
    assert set(MANIFESTS) >= CONTRADICTIONS
