"""What surprises but is no error is logged, and shown only if somebody asks for it."""

import logging
import mmap
import subprocess
import sys
from pathlib import PurePath

import numpy as np
import pytest
from safetensors.numpy import save_file

from tensorcomp.checkpoints.folder import scan_folder
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.io.atomic_folder import atomic_folder
from tensorcomp.io.files import atomic_file


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tensorcomp")


def test_what_a_killed_run_left(tmp_path, caplog):
    partial = tmp_path / ".file.tensorcomp-part"
    partial.write_bytes(b"half")
    with atomic_file(tmp_path / "file", force=False):
        pass
    (tmp_path / ".folder.tensorcomp-part").mkdir()
    leftover = tmp_path / ".folder.tensorcomp-part" / "shard"
    leftover.write_bytes(b"half")
    (tmp_path / ".folder.tensorcomp-old").mkdir()
    with atomic_folder(tmp_path / "folder", {PurePath("shard")}, force=True):
        pass
    removed, put_back, removed_too = caplog.messages
    assert removed == f"{partial}: removed, a killed run had left it"
    assert put_back.startswith(f"{tmp_path / 'folder'}: put back")
    assert removed_too == f"{leftover}: removed, a killed run had left it"
    with atomic_file(tmp_path / "another", force=False):
        pass
    assert len(caplog.messages) == 3


def test_a_file_that_is_not_compressed(tmp_path, caplog):
    save_file({"a": np.zeros(3)}, tmp_path / "model.safetensors")
    (tmp_path / "words.bin").write_bytes(bytes(range(256)))
    assert len(scan_folder(tmp_path)[0]) == 1
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path / 'words.bin'}: is of no known format")
    assert message.endswith("; left as it is")


def test_a_file_that_cannot_be_mapped(tmp_path, caplog, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no such device")

    monkeypatch.setattr(mmap, "mmap", refuse)
    save_file({"a": np.zeros(3)}, tmp_path / "m.safetensors")
    open_checkpoint(tmp_path / "m.safetensors").close()
    assert caplog.messages == [
        f"{tmp_path / 'm.safetensors'}: read, since it cannot be mapped: no such device"
    ]


def test_nobody_who_does_not_ask_sees_it():
    code = "from tensorcomp._log import LOGGER; LOGGER.warning('seen')"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
