"""Wrong usage, unreadable inputs, refused outputs, damage: a status and exactly one line."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

VERBS = ("compress", "decompress", "inspect", "verify")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing command"),
        (["compres", "x"], "compres"),
        (["compress"], "Missing argument"),
        (["compress", ""], "empty"),
        (["compress", "a", "b"], "b"),
        (["compress", "a", "--threads", "0"], "--threads"),
        (["compress", "a", "--threads", "many"], "--threads"),
        (["compress", "a", "--effort", "extreme"], "extreme"),
        (["compress", "a", "--unknown"], "--unknown"),
        (["compress", "a", "-o"], "-o"),
        (["compress", "a", "-o", "-"], "not a stream"),
        (["verify", "-"], "not a stream"),
        (["verify", "a", "--force"], "--force"),
        (["--unknown"], "--unknown"),
    ],
)
def test_wrong_usage(call, arguments, words):
    line = call.refused(words, *arguments)
    assert line.endswith("--help")


def make_truncated(path: Path) -> None:
    save_file({"first": np.ones(10, np.float32), "second": np.ones(1000, np.float32)}, path)
    path.write_bytes(path.read_bytes()[:-100])


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
# What is said of an input, and how it is made.
UNREADABLE = {
    "no such file": lambda path: None,
    "empty": Path.touch,
    "git-lfs": lambda path: path.write_text(POINTER),
    "HTML": lambda path: path.write_text("<!DOCTYPE html>\n<html><body>Not found</body></html>"),
    "cut short": make_truncated,
    "holds no": Path.mkdir,
    "link": lambda path: path.symlink_to("nowhere"),
    "not a regular file": os.mkfifo,
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("words", UNREADABLE)
def test_an_input_that_cannot_be_read(call, tmp_path, verb, words):
    path = tmp_path / "model.tc.safetensors"
    UNREADABLE[words](path)
    before = sorted(tmp_path.iterdir())
    more = ["-o", tmp_path / "out"] if verb in ("compress", "decompress") else []
    line = call.refused(words, verb, path, *more)
    assert str(path) in line
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_of_the_wrong_kind_for_the_verb(call, model, compressed, tmp_path):
    out = tmp_path / "out.safetensors"
    for verb, more in (("decompress", ["-o", out]), ("verify", [])):
        call.refused("not one that tensorcomp compressed", verb, model, *more)
    again = call("compress", compressed)
    assert again.status == 2
    assert "already" in again.line
    archive = tmp_path / "arrays.npz"
    np.savez(archive, x=np.zeros(3))
    call.refused("npz", "verify", archive)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_an_existing_output_is_kept_without_force(call, model, compressed, as_json):
    for verb, source, target in (
        ("compress", model, compressed),
        ("decompress", compressed, model),
    ):
        before = target.read_bytes()
        target.write_bytes(b"precious")
        call.refused("--force", verb, source, *as_json, "-o", target)
        assert target.read_bytes() == b"precious"
        assert call(verb, source, "--force", *as_json, "-o", target).status == 0
        assert target.read_bytes() == before


def test_an_output_that_is_the_input_or_inside_it_is_refused(call, model, folder):
    before = model.read_bytes()
    assert call("compress", model, "-o", model, "--force").status == 2
    assert model.read_bytes() == before
    call.refused("folder", "compress", folder, "-o", folder / "inside")


def test_an_output_folder_that_is_not_there(call, model, tmp_path):
    call.refused("nowhere", "compress", model, "-o", tmp_path / "nowhere" / "out.tc.safetensors")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that takes no files")
def test_an_output_folder_that_takes_no_files(call, model):
    call.refused("/proc/out.tc.safetensors", "compress", model, "-o", "/proc/out.tc.safetensors")


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def blob_of(path: Path, name: str) -> int:
    """Return where a tensor's blob begins in a file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return 8 + length + json.loads(data[8 : 8 + length])[name]["data_offsets"][0]


def test_verify_names_the_damaged_tensor(call, compressed):
    flip(compressed, blob_of(compressed, "encoder.norm.weight") + 2)
    done = call("verify", compressed)
    assert (done.status, done.stdout) == (1, "")
    assert "encoder.norm.weight" in done.line


def test_verify_lists_every_damaged_tensor(call, compressed):
    flip(compressed, blob_of(compressed, "encoder.norm.weight") + 2)
    flip(compressed, blob_of(compressed, "position_ids") + 20)
    done = call("verify", compressed)
    assert done.status == 1
    assert "1 more" in done.line
    assert len(done.stdout.splitlines()) == 2
    done = call("verify", compressed, "--json")
    assert done.status == 1
    assert done.line
    value = done.json
    assert value["sound"] is False
    assert {error["name"] for error in value["errors"]} == {"encoder.norm.weight", "position_ids"}
    assert {error["chunk"] for error in value["errors"]} == {0}


def test_decompress_of_a_damaged_file_leaves_nothing(call, compressed, tmp_path):
    flip(compressed, blob_of(compressed, "position_ids") + 20)
    before = sorted(tmp_path.iterdir())
    done = call("decompress", compressed, "-o", tmp_path / "back.safetensors")
    assert done.status in (1, 2)
    assert "position_ids" in done.line
    assert sorted(tmp_path.iterdir()) == before


def test_verify_against_another_original(call, compressed, tensors, tmp_path):
    other = tmp_path / "other.safetensors"
    tensors["position_ids"] = tensors["position_ids"] + 1
    save_file(tensors, other, {"format": "np"})
    done = call("verify", compressed, "--against", other)
    assert done.status == 1
    assert "position_ids" in done.line
    del tensors["position_ids"]
    save_file(tensors, other, {"format": "np"})
    done = call("verify", compressed, "--against", other)
    assert done.status == 1
    assert "position_ids" in done.line
    missing = call("verify", compressed, "--against", tmp_path / "missing.safetensors")
    assert missing.status == 2
