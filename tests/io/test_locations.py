"""Paths, and URLs that stand for them."""

import pickle
import sys
from pathlib import Path, PurePosixPath

import pytest

from tensorcomp.errors import CheckpointError, MissingFileError
from tensorcomp.io import store_errors
from tensorcomp.io.locations import is_remote, location, shown_url


def test_local_paths_stay_what_they_are(tmp_path: Path) -> None:
    for text in ("model.safetensors", str(tmp_path), "C:\\model.safetensors", "odd:name"):
        assert location(text) == Path(text)
        assert not is_remote(location(text))
    assert location(tmp_path.as_uri() + "/a%20b") == tmp_path / "a b"


def test_a_url_has_the_methods_of_a_path() -> None:
    path = location("memory://bucket/model/a.tar.gz")
    assert is_remote(path)
    assert location(path) is path
    assert (path.name, path.stem, path.suffix) == ("a.tar.gz", "a.tar", ".gz")
    assert str(path.parent) == "memory://bucket/model"
    assert path.parent / "x" / PurePosixPath("y/z") == location("memory://bucket/model/x/y/z")
    assert path.with_name("b").relative_to(path.parent.parent) == Path("model/b")
    assert path.parent / Path() == path.parent
    assert path.is_relative_to(path.parent)
    assert not path.parent.is_relative_to(path)
    assert pickle.loads(pickle.dumps(path)) == path
    assert hash(location(str(path))) == hash(path)


def test_files_are_read_and_written() -> None:
    folder = location("memory://test_locations/folder")
    for name in ("b", "a"):
        (folder / name).write_text(f"text {name}")
    assert sorted(file.name for file in folder.iterdir()) == ["a", "b"]
    assert folder.is_dir()
    assert not folder.is_file()
    assert (folder / "a").is_file()
    assert (folder / "a").read_text() == "text a"
    assert (folder / "a").stat().st_size == 6
    (folder / "a").unlink()
    (folder / "a").unlink(missing_ok=True)
    assert not (folder / "a").exists()
    assert list(folder.parent.rglob("*")) == [folder / "b"]
    with pytest.raises(MissingFileError, match=r"memory://.*/a: cannot be read: there is no such"):
        (folder / "a").read_bytes()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "http://user:word@host:80/a/b.safetensors?X-Sig=word#word",
            "http://host:80/a/b.safetensors",
        ),
        ("https://word@host/a@b", "https://host/a@b"),
        ("HTTPS://host/a?word", "https://host/a"),
    ],
)
def test_no_secret_is_shown(url: str, shown: str) -> None:
    path = location(url)
    assert str(path) == shown
    assert "word" not in repr(path)
    assert path.name == PurePosixPath(shown).name
    assert "word" not in shown_url(f"--output={url}")


def test_a_key_may_hold_what_joins_chains_of_urls() -> None:
    path = location("HTTPS://host/a::b")
    assert (str(path), path.name) == ("https://host/a::b", "a::b")


def test_a_store_that_refuses_at_once_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_errors, "FIRST_WAIT", 0.01)
    with pytest.raises(CheckpointError, match=r"^ftp://127.0.0.1:1/a: cannot be read: the server"):
        location("ftp://user:word@127.0.0.1:1/a")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match="a URL of a scheme that fsspec knows, got zz://a"):
        location("zz://a")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(CheckpointError, match=r"fsspec for s3://….*'tensorcomp\[remote\]'"):
        location("s3://bucket/a")


def test_options_of_a_upath_are_kept() -> None:
    upath = pytest.importorskip("upath")
    path = location(upath.UPath("memory://bucket/a", some_option=1))
    assert is_remote(path)
    assert path.fs.storage_options["some_option"] == 1
    assert location(upath.UPath("/tmp/a")) == Path("/tmp/a")
