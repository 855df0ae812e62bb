import io
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from typing import BinaryIO

import numpy as np
import pytest
import safetensors.numpy
import torch

from tensorcomp.checkpoints.open import describe_unknown, detect_format, open_checkpoint
from tensorcomp.errors import CheckpointError


def zip_of(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return file.getvalue()


def tar_of(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO(data))
    return file.getvalue()


FOREIGN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "xet": (b"# xet version 0\nfilesize = 5\n", "git-xet pointer"),
    "HTML": (b"\n<!DOCTYPE html><html>Sign in</html>", "an HTML page"),
    "HTML, byte order mark": (b"\xef\xbb\xbf<HTML>", "an HTML page"),
    "XML": (b"<?xml version='1.0'?><Error>AccessDenied</Error>", "an XML text"),
    "JSON": (b'{"error": "Repository not found"}', "a JSON text"),
    "cut zip": (zip_of(readme=b"hello" * 99)[:-30], "directory is missing or damaged"),
    "zip magic alone": (b"PK\x03\x04", "directory is missing or damaged"),
    "text": (b"hello, world", "is a text"),
    "Entry not found": (b"Entry not found", "is a text"),
    "header longer than the file": (b"\x90\x01\0\0\0\0\0\0{}", "claims a header of 400 bytes"),
    "huge header": (b"\xff" * 8 + b"{}", "claims a header of 18,446,744,073,709,551,615 bytes"),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_other_files_are_named_whatever_their_suffix(kind, suffix, tmp_path):
    data, message = FOREIGN[kind]
    path = tmp_path / f"model{suffix}"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


UNKNOWN: dict[str, tuple[bytes, str]] = {
    "gzip": (b"\x1f\x8b\x08\0" + bytes(20), "a gzip archive; unpack it"),
    "zstd": (b"(\xb5/\xfd" + bytes(20), "a zstd archive; unpack it"),
    "tar": (tar_of(b"data"), "a tar archive"),
    "zip of texts": (zip_of(readme=b"hello"), "of no known format"),
    "pickle": (pickle.dumps({"a": print}), "a plain Python pickle"),
    "noise": (bytes(range(200, 256)), "of no known format"),
    "a brace": (b"{" + bytes(range(256)), "of no known format"),
    "an HTML page in binary": (b"<html>" + bytes(40), "of no known format"),
    "a brace behind eight bytes": (bytes(range(200, 208)) + b"{" + bytes(99), "of no known format"),
    "a magic of letters": (b"MY WEIGHTS, VERSION 1.0\n\n" + bytes(20), "of no known format"),
}


@pytest.mark.parametrize("kind", UNKNOWN)
@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_files_of_no_known_format_are_bytes(kind, suffix, tmp_path, round_trip):
    data, words = UNKNOWN[kind]
    path = tmp_path / f"model{suffix}"
    path.write_bytes(data)
    assert detect_format(path) == "bytes"
    assert describe_unknown(path).startswith(words)
    with open_checkpoint(path) as checkpoint:
        assert not checkpoint.arrays
    assert round_trip(path).read_bytes() == data


KNOWN: dict[str, tuple[str, Callable[[BinaryIO], object]]] = {
    "safetensors": (
        "safetensors",
        lambda file: file.write(safetensors.numpy.save({"a": np.zeros(2)})),
    ),
    "torch": ("torch", lambda file: torch.save({"a": torch.zeros(2)}, file)),
    "torch, legacy": (
        "torch",
        lambda file: torch.save([torch.zeros(2)], file, _use_new_zipfile_serialization=False),
    ),
    "npy": ("npy", lambda file: np.save(file, np.zeros(2))),
    "npz": ("npz", lambda file: np.savez(file, a=np.zeros(2))),
    "npz without arrays": ("npz", np.savez),
}


@pytest.mark.parametrize("kind", KNOWN)
def test_checkpoints_are_known_whatever_their_suffix(kind, tmp_path):
    known, save = KNOWN[kind]
    with (tmp_path / "model.txt").open("wb") as file:
        save(file)
    assert detect_format(tmp_path / "model.txt") == known


@pytest.mark.parametrize("length", [0x0280, 0x8B1F, 0x685A42, 0x7B, 0x5B, 0x2020])
def test_a_header_length_that_looks_like_a_magic(length, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(length.to_bytes(8, "little") + b"{}" + b" " * (length - 2))
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.tensors == ()


NO_FILES = {
    ".": "is a folder",
    "absent": "there is no such file",
    "link": "a link to a file that is not there",
    "pipe": "not a regular file",
    "a\0b": "NUL",
    "file/below": "cannot be read: Not a directory",
}


@pytest.mark.parametrize("name", NO_FILES)
def test_what_is_no_file(name, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match=NO_FILES[name]):
        open_checkpoint(tmp_path / name)


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may read everything")
def test_forbidden_file(tmp_path):
    path = tmp_path / "secret"
    path.touch(mode=0)
    with pytest.raises(CheckpointError, match="permission denied"):
        open_checkpoint(path)


def test_importing_the_room_imports_no_torch():
    code = (
        "import sys, tensorcomp.checkpoints\nassert 'torch' not in sys.modules, sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
