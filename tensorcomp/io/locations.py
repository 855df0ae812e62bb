"""Name files by paths or by URLs of object stores, with pathlib's methods."""

from __future__ import annotations

import io
import os
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, TypeGuard, cast

from tensorcomp._formatting import shown
from tensorcomp.errors import CheckpointError, MissingFileError, OptionError, needing
from tensorcomp.io.store_errors import repeated

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")  # a drive's letter is none
_USER = re.compile(r"(?<=://)([^/@]*:[^/@]*)@")
_WEB = ("http", "https")


def location(path: str | os.PathLike[str]) -> Path:
    """Return a path, or what stands for it where it is a URL.

    Parameters
    ----------
    path : str or path-like
        Also a URL of a scheme that fsspec knows, such as ``s3://bucket/model.safetensors``, or a
        ``UPath``, whose options are kept. ``file://`` is a path.

    Raises
    ------
    CheckpointError
        If fsspec, or its package for the scheme, is missing, or the scheme is unknown.

    Examples
    --------
    >>> str(location("memory://folder/model.safetensors").with_name("other.safetensors"))
    'memory://folder/other.safetensors'
    """
    if is_remote(path):
        return path
    fs: Any = getattr(path, "fs", None)
    if fs is not None and not isinstance(path, PurePath):  # a UPath
        return cast("Path", _of(fs, cast("Any", path).path))
    text = os.fspath(path)
    match = _SCHEME.match(text)
    if match is None:
        return Path(text)
    scheme = match[1].lower()
    if scheme in ("file", "local"):
        from urllib.parse import urlsplit
        from urllib.request import url2pathname

        return Path(url2pathname(urlsplit(text).path))
    with needing("remote", CheckpointError, f"expected fsspec for {scheme}://…, got none"):
        import fsspec
    text, place = scheme + text[len(scheme) :], shown_url(text)
    try:
        kind: Any = fsspec.get_filesystem_class(scheme)
        given = kind._get_kwargs_from_urls(text)  # no chain of URLs: keys may hold "::"
        fs = repeated(place, lambda: kind(**{**given, "use_listings_cache": False}))
        if hasattr(fs, "_call_s3"):  # what repeats requests is here, and does not take minutes
            fs.retries, once = 1, {"retries": {"max_attempts": 0}}
            fs.config_kwargs = {**once, **fs.config_kwargs}
        return cast("Path", _of(fs, fs._strip_protocol(text)))
    except ImportError as error:  # its message says which package
        raise CheckpointError(f"expected a package for {scheme}://…, got none: {error}") from error
    except ValueError as error:
        known = scheme in fsspec.available_protocols()
        what = "a valid URL" if known else "a URL of a scheme that fsspec knows"
        raise CheckpointError(f"expected {what}, got {place}") from error


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return a path; refuse a URL of an object store with `OptionError`."""
    place = location(path)
    if is_remote(place):
        raise OptionError(f"{place}: expected a path on a disk, got the URL of an object store")
    return place


def is_remote(path: object) -> TypeGuard[Path]:
    """Return whether a path is one of an object store's."""
    return isinstance(path, RemotePath)


def shown_url(url: str) -> str:
    """Return a URL without a password, and one of the web without its query."""
    scheme, separator, rest = url.partition("://")
    if scheme.rpartition("=")[2].lower() in _WEB:  # also as an option's value
        host, slash, path = re.split(r"[?#]", rest)[0].partition("/")
        rest = host.rpartition("@")[2] + slash + path
    return _USER.sub("", scheme + separator + rest)


def _of(fs: Any, path: str) -> RemotePath:
    path, mark, query = path.partition("?") if path.startswith("http") else (path, "", "")
    return RemotePath(fs, path, mark + query)


@dataclass(frozen=True, repr=False)
class RemotePath:
    """Path in an object store, with methods of `pathlib.Path`.

    Parameters
    ----------
    fs : fsspec.AbstractFileSystem
    path : str
        As `fs` names it: without the scheme, but for the web's.
    query : str
        Of a URL of the web, with its question mark.
    listed : dict, optional
        What a list of its folder has just said of it.
    """

    fs: Any
    path: str
    query: str = ""
    listed: dict[str, Any] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        protocol = self.fs.protocol if isinstance(self.fs.protocol, str) else self.fs.protocol[0]
        return shown_url(self.path if self.is_web else f"{protocol}://{self.path.lstrip('/')}")

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"  # what is secret is not shown

    def __lt__(self, other: RemotePath) -> bool:
        return self.path < other.path

    def __truediv__(self, other: str | PurePath) -> RemotePath:
        more = other.as_posix() if isinstance(other, PurePath) else other
        if more == "." or not self.path:
            return self._at(self.path or more)
        return self._at(f"{self.path.rstrip('/')}/{more}")

    def _at(self, path: str) -> RemotePath:
        return RemotePath(self.fs, path)

    @property
    def is_web(self) -> bool:
        """Whether it is behind ``http://``: without folders, and for reading only."""
        return self.path.startswith(("http://", "https://"))

    @property
    def is_general(self) -> bool:
        """Whether no more is known of its store than of any in fsspec."""
        return not self.is_web and not hasattr(self.fs, "_call_s3")

    @property
    def key(self) -> str:
        """Name to ask the file system for."""
        return self.path + self.query

    @property
    def name(self) -> str:
        """Last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def stem(self) -> str:
        """Name without suffix."""
        return PurePosixPath(self.path).stem

    @property
    def suffix(self) -> str:
        """Last suffix of the name."""
        return PurePosixPath(self.path).suffix

    @property
    def parent(self) -> RemotePath:
        """Folder that holds it."""
        return self._at(self.fs._parent(self.path))

    def with_name(self, name: str) -> RemotePath:
        """Return the path of another name in the same folder."""
        return self.parent / name

    def relative_to(self, other: RemotePath) -> Path:
        """Return the rest of the path behind that of a folder above."""
        return Path(PurePosixPath(self.path).relative_to(other.path))

    def is_relative_to(self, other: object) -> bool:
        """Return whether it is in a folder, at any depth, or is it."""
        here = isinstance(other, RemotePath) and self.fs == other.fs
        return here and PurePosixPath(self.path).is_relative_to(cast("RemotePath", other).path)

    def as_posix(self) -> str:
        """Return the URL, as `str` does."""
        return str(self)

    def resolve(self) -> RemotePath:
        """Return itself: stores have no links."""
        return self

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def samefile(self, other: object) -> bool:
        """Return whether another path is equal."""
        return self == other

    def info(self) -> dict[str, Any]:
        """Return what the store says of it; `MissingFileError` if there is nothing."""
        if self.listed is not None:
            return self.listed
        found: dict[str, Any] = repeated(str(self), lambda: self.fs.info(self.key))
        return found

    def stat(self) -> os.stat_result:
        """Return size, kind, time of change; as the inode, a checksum of the path."""
        info = self.info()
        kind = stat.S_IFDIR if info["type"] == "directory" else stat.S_IFREG
        changed = info.get("LastModified", info.get("mtime", info.get("last_modified", 0)))
        seconds = changed.timestamp() if hasattr(changed, "timestamp") else 0
        number = zlib.crc32(self.path.encode())
        fields = (kind | 0o644, number, 0, 1, 0, 0, info.get("size") or 0, seconds, seconds, 0)
        return os.stat_result(fields, {"st_mtime_ns": int(seconds * 10**9)})

    def exists(self) -> bool:
        """Return whether a file or folder is there."""
        try:
            self.info()
        except MissingFileError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether it is a folder, of which the web has none."""
        try:
            return not self.is_web and self.info()["type"] == "directory"
        except MissingFileError:
            return False

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return self.exists() and not self.is_dir()

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield what a folder holds; refuse names such as ``..``."""
        for info in repeated(str(self), lambda: self.fs.ls(self.path, detail=True)):
            path = info["name"].rstrip("/")
            name = path.rpartition("/")[2]
            if name == ".." or Path(name).name != name:  # its copy would be written elsewhere
                raise CheckpointError(
                    f"holds {shown(name)}, which is no name of a file on a disk; remove it",
                    path=str(self),
                )
            if path != self.path.rstrip("/"):  # a folder's own entry
                yield RemotePath(self.fs, path, listed=info)

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield all files below a folder whose names match a pattern."""
        found = repeated(str(self), lambda: self.fs.find(self.path))
        yield from (p for p in map(self._at, sorted(found)) if PurePosixPath(p.path).match(pattern))

    def open(self, mode: str = "r", *_: Any, **keywords: Any) -> Any:
        """Open a file by the store's client."""
        return repeated(str(self), lambda: self.fs.open(self.key, mode, **keywords))

    def read_bytes(self) -> bytes:
        """Return the whole content."""
        return bytes(repeated(str(self), lambda: self.fs.cat_file(self.key)))

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the whole content as a text."""
        return io.TextIOWrapper(io.BytesIO(self.read_bytes()), encoding).read()

    def write_bytes(self, data: bytes) -> int:
        """Write a whole file; return the number of bytes."""
        repeated(str(self), lambda: self.fs.pipe_file(self.path, data), doing="written")
        return len(data)

    def write_text(self, data: str, encoding: str = "utf-8") -> int:
        """Write a text as a whole file."""
        return self.write_bytes(data.encode(encoding))

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Do nothing: stores have files alone, whose names hold slashes."""

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove a file."""
        try:
            repeated(str(self), lambda: self.fs.rm_file(self.path), doing="removed")
        except MissingFileError:
            if not missing_ok:
                raise
