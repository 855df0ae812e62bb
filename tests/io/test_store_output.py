"""Files of stores other than S3, which are written locally first: here, of the memory."""

import errno
import shutil
import tempfile
from collections import namedtuple

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorcomp
from tensorcomp.errors import CheckpointError, TensorcompError
from tensorcomp.io.files import atomic_file
from tensorcomp.io.locations import location
from tensorcomp.progress import Progress

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def store():
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"w": np.random.default_rng(0).standard_normal((500, 40), np.float32)}, path)
    return path


@pytest.mark.parametrize("budget", [None, tensorcomp.Budget(min_snr=30)])
def test_files_are_those_that_are_written_locally(store, checkpoint, tmp_path, budget):
    local = tensorcomp.compress(checkpoint, tmp_path / "x", budget=budget).path
    tensorcomp.compress(checkpoint, "memory://a/x", budget=budget)
    assert store.cat("/a/x") == local.read_bytes()
    tensorcomp.decompress(local, "memory://back.safetensors")
    tensorcomp.decompress(local, tmp_path / "back.safetensors")
    assert store.cat("/back.safetensors") == (tmp_path / "back.safetensors").read_bytes()


def test_folder_in_memory(store, checkpoint, tmp_path):
    local = tensorcomp.compress(checkpoint.parent, tmp_path.parent / f"{tmp_path.name}.tc").path
    tensorcomp.compress(checkpoint.parent, "memory://m.tc")
    found = {path.removeprefix("/m.tc/"): store.cat(path) for path in store.find("/m.tc")}
    assert found == {path.name: path.read_bytes() for path in local.iterdir()}
    with pytest.raises(CheckpointError, match="exists already"):
        tensorcomp.compress(checkpoint.parent, "memory://m.tc")
    tensorcomp.compress(checkpoint.parent, "memory://m.tc", force=True)


def test_existing_file_is_kept_unless_forced(store):
    store.pipe("/x", b"old")
    path = location("memory://x")
    with pytest.raises(CheckpointError, match="memory://x: exists already"):
        atomic_file(path, force=False).__enter__()
    with atomic_file(path, force=True) as file:
        file.write(b"new")
        assert store.cat("/x") == b"old"
    assert store.cat("/x") == b"new"
    with pytest.raises(CheckpointError, match="is a folder"):
        tensorcomp.save_file({}, "memory://")


def test_error_leaves_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ZeroDivisionError), atomic_file(location("memory://x"), force=True) as file:
        file.write(bytes(1 // 0))
    assert store.find("/") == []
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_told_of(store, checkpoint, tmp_path, monkeypatch):
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spool))
    usage = namedtuple("usage", "total used free")(10**9, 10**9 - 5000, 5000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    message = f"memory://x: the disk is full: {spool} has 5.00 kB free, and what is uploaded is "
    message += "written there first, 100 B so far; set TMPDIR to a folder with room for all of it"

    def fill():
        with atomic_file(location("memory://x"), force=True) as file:
            file.write(bytes(100))
            file.flush()
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(CheckpointError) as found:
        fill()
    assert str(found.value) == message
    assert store.find("/") == []
    assert list(spool.iterdir()) == []


def test_upload_shows_its_progress(store):
    class Watch(Progress):
        seen = ()

        def begin(self, tensors, nbytes):
            self.seen += ((tensors, nbytes),)

        def advance(self, name, nbytes):
            self.seen += ((name, nbytes),)

    watch = Watch()
    with atomic_file(location("memory://x"), force=True, progress=watch) as file:
        file.write(bytes(1000))
    assert watch.seen == ((1, 1000), ("x", 1000))


def test_web_is_not_written():
    with pytest.raises(CheckpointError, match="http://h/x: can be read only; give another place"):
        tensorcomp.save_file({}, "http://h/x")


def test_what_settings_are_read_from_may_be_a_url(store, checkpoint, tmp_path):
    """A plan, a profile, importance: the outputs are those of local files."""
    importance = {"w": np.ones(3, np.float32)}
    save_file(importance, tmp_path / "importance.safetensors")
    report = tensorcomp.plan(checkpoint, budget=tensorcomp.Budget(min_snr=30))
    (tmp_path / "p.json").write_text(report.to_json())
    profile = (
        '[budget]\nmin_snr = 30\n[[candidates]]\nroles = ["all"]\ntrees = ["uniform($step)"]\n'
    )
    (tmp_path / "p.toml").write_text(profile)
    budget = tensorcomp.Budget(bits_per_weight=5)
    for name, more in {
        "plan": {"plan": "p.json"},
        "importance": {"importance": "importance.safetensors", "budget": budget},
        "profile": {"profile": "p.toml"},
    }.items():
        local = {**more, name: tmp_path / more[name]}
        store.pipe(f"/{more[name]}", local[name].read_bytes())
        found = [
            tensorcomp.compress(checkpoint, tmp_path / "x", force=True, **options).path.read_bytes()
            for options in (
                {**local, name: str(local[name])},
                {**more, name: f"memory://{more[name]}"},
            )
        ]
        assert found[0] == found[1]
        with pytest.raises(TensorcompError, match=f"memory://gone{more[name]}: cannot be read"):
            tensorcomp.compress(
                checkpoint, tmp_path / "y", **{**more, name: f"memory://gone{more[name]}"}
            )
