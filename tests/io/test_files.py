import contextlib
import errno
import os
from pathlib import Path

import pytest

from tensorcomp.errors import CheckpointError
from tensorcomp.io.atomic_folder import atomic_folder
from tensorcomp.io.files import atomic_file, refuse_existing


@pytest.mark.parametrize(
    "create",
    [
        lambda path: refuse_existing(path, force=False),
        lambda path: atomic_file(path, force=True).__enter__(),
        lambda path: atomic_folder(path, [], force=True).__enter__(),
    ],
    ids=["check", "file", "folder"],
)
def test_outputs_have_no_nul_character(tmp_path, create):
    with pytest.raises(CheckpointError, match="NUL"):
        create(Path(tmp_path / "a\0b"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x" * 255, "日" * 85, "x" * 200])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_temporary_name_fits_beside_the_longest(tmp_path, name, kind):
    if kind == "file":
        with atomic_file(tmp_path / name, force=False) as file:
            file.write(b"1")
    else:
        with atomic_folder(tmp_path / name, [], force=False):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_need_neither_sync_nor_lock(tmp_path, monkeypatch, code):
    _refuse(monkeypatch, code, "os.fsync", "fcntl.flock")
    with atomic_file(tmp_path / "out", force=False) as file:
        file.write(b"1")
    assert (tmp_path / "out").read_bytes() == b"1"


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_may_not_be_on_the_disk_does_not_appear(tmp_path, monkeypatch, code):
    _refuse(monkeypatch, code, "os.fsync")
    with (
        pytest.raises(CheckpointError, match="cannot be written"),
        atomic_file(tmp_path / "out", force=False) as file,
    ):
        file.write(b"1")
    assert not list(tmp_path.iterdir())


def _refuse(monkeypatch: pytest.MonkeyPatch, code: int, *calls: str) -> None:
    """Let calls of the system fail."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    for call in calls:
        monkeypatch.setattr(call, refuse)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
@pytest.mark.parametrize(
    "create", [atomic_file, lambda path, force: atomic_folder(path, [], force=force)]
)
@pytest.mark.parametrize("force", [False, True])
def test_a_loop_of_links_is_refused_or_replaced(tmp_path, create, force):
    path = tmp_path / "out"
    path.symlink_to(path)
    with contextlib.suppress(CheckpointError), create(path, force=force):
        pass
    assert [found.name for found in tmp_path.iterdir()] == ["out"]
