"""A few of the kills and failing disks that `benchmarks.hardening` tries by the hundred."""

import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save, save_file

from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.checkpoints.safetensors.file import SafetensorsFile
from tensorcomp.errors import CheckpointError
from tensorcomp.io.atomic_folder import atomic_folder

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def faults():
    """Return the harness; what its import adds to the path goes again."""
    if sys.platform != "linux":
        pytest.skip("forks and /proc of Linux")
    path = list(sys.path)
    sys.path.insert(0, ROOT)
    from benchmarks import hardening

    # Attributes from now on; the first two need the path, and others need them without it.
    from benchmarks.hardening import bounds, damage, disks, jobs, kills, tracing  # noqa: F401

    yield hardening
    sys.path[:] = path


@pytest.fixture
def traced(faults):
    """Return the harness where strace may trace."""
    try:
        ended = faults.tracing.run(lambda: None, "-o", "/dev/null", "-e", "trace=rename")
    except (OSError, RuntimeError):
        pytest.skip("strace is not there, or may not trace")
    assert ended[:2] == (0, "")
    return faults


@pytest.mark.parametrize("name", ["compress a folder", "distributed state"])
def test_what_is_replaced_is_old_or_new_whenever_it_is_killed(traced, name):
    writer = traced.jobs.WRITERS[name]
    calls = [call for call in traced.kills.sound(writer)[0] if "rename" in call.name]
    assert calls
    for call in calls[-3:]:
        assert traced.kills.faults(writer, call) == []


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_disk_that_fails_is_named(traced, error):
    failing = traced.disks.failing
    job = traced.jobs.WRITERS["compress a file"]
    tries = [*failing(error, traced.tracing.CHANGES, job, random.Random(0), 0.16)]
    assert any(tried.ended.status for tried in tries)
    assert [fault for tried in tries for fault in tried.faults] == []


def test_a_file_that_is_too_long_for_the_disk_does_not_appear(faults):
    def write(folder):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        faults.jobs.WRITERS["lottery ticket"].run(folder)

    with tempfile.TemporaryDirectory() as name:
        ended = faults.tracing.run(lambda: write(Path(name)))
        assert "rewind.pt: cannot be written" in ended.line
        assert not Path(name, "ticket", "rewind.pt").exists()


@pytest.mark.parametrize("change", ["_cut", "_write", "_replace"])
@pytest.mark.parametrize("name", ["compress a file", "verify"])
def test_a_file_that_changes_while_it_is_read_is_named(faults, change, name):
    tries = [*faults.disks.changing(getattr(faults.disks, change), faults.jobs.ALL[name])]
    assert [fault for tried in tries for fault in tried.faults] == []
    assert tries[0].ended.status or change == "_replace"
    if change == "_cut":
        assert tries[0].ended.line.endswith(
            "was cut short, or its disk failed, while it was read; run again"
        )


def test_what_fails_after_a_file_has_changed_is_explained_by_that(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"w": np.zeros(3, np.float32)}, path)

    def read():
        with open_checkpoint(path) as source:
            path.write_bytes(b"")
            source.read("another")

    with pytest.raises(CheckpointError, match="was changed while it was read") as caught:
        read()
    assert "has no tensor" in str(caught.value.__cause__)


def test_what_has_no_file_does_not_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SafetensorsFile(save({"w": np.zeros(3, np.float32)})) as source:
        (tmp_path / "new").touch()
        assert source.read("w").size == 12


def test_a_folder_that_cannot_be_exchanged_is_moved_away(tmp_path, monkeypatch):
    monkeypatch.setattr("tensorcomp.io.atomic_folder._exchanged", lambda *_: False)
    (tmp_path / "out").mkdir()
    with atomic_folder(tmp_path / "out", [], force=True) as folder:
        (folder / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "new"]
