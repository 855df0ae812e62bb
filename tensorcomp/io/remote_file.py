"""Read a file of an object store by ranges, all of one version."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from tensorcomp.errors import CheckpointError
from tensorcomp.io.locations import RemotePath
from tensorcomp.io.store_errors import CHANGED, PATIENCE, IncompleteAnswer, repeated, status_of

HEAD_BYTES = 1 << 17  # that the first request fetches
BLOCK_BYTES = 1 << 23
_AHEAD, _CONNECTIONS = 4, 8  # blocks, requests at once
_WAITING, _USED, _MOST = 12, 4, 64  # blocks: read ahead, kept once used, in all
_NEAR = 1 << 18  # bytes between two ranges that cost less than a further request
TIMEOUT, LEAST_SPEED = 20.0, 1e5  # seconds that an answer may take, and bytes in each further one
_STALL = 15.0  # seconds without a byte
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class _Answer(NamedTuple):
    data: bytes
    size: int  # of the whole file
    version: str | None  # what tells this content from others


class RemoteFile:
    """File of an object store, open for reading by ranges.

    The first request fetches the first bytes and, of S3 and the web, tells size and version. All
    others are for that version.

    Parameters
    ----------
    path : Path
        From `location`.

    Attributes
    ----------
    size : int
    head : bytes
        The first 128 KiB, or all.

    Raises
    ------
    MissingFileError
        If there is none.
    CheckpointError
        If it cannot be read, or changes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._remote = cast("RemotePath", path)
        self._process = os.getpid()
        self._version: str | None = None
        self.size = 0
        self._kept: list[tuple[int, np.ndarray]] = []
        self._blocks: dict[int, Future[np.ndarray]] | None = None
        self._used: dict[int, Future[np.ndarray]] = {}  # that were read to their end
        self._begun: set[int] = set()
        self._lock = threading.Lock()
        self._failed: tuple[float, CheckpointError] | None = None
        self.head, self.size, self._version = self._ask(0, HEAD_BYTES)

    @functools.cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_CONNECTIONS, "tensorcomp-store")

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return bytes `start` to `stop`, flat uint8; many by several requests."""
        if stop <= start:  # which some stores answer by the whole file
            return np.empty(0, np.uint8)
        if os.getpid() != self._process:  # which has neither the threads nor the connections
            message = "was opened before this process was forked; open it again in this one"
            raise CheckpointError(message, path=self.path)
        if stop <= len(self.head):
            return np.frombuffer(self.head, np.uint8, stop - start, start)
        at = bisect_right(self._kept, start, key=lambda item: item[0]) - 1
        if at >= 0 and stop <= self._kept[at][0] + self._kept[at][1].size:
            begin, data = self._kept[at]
            return data[start - begin : stop - begin]
        if self._blocks is None and stop - start <= BLOCK_BYTES:
            return self._fetch(start, stop)
        out = np.empty(stop - start, np.uint8)
        pieces = [
            (max(start, n * BLOCK_BYTES), min(stop, (n + 1) * BLOCK_BYTES))
            for n in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES))
        ]
        taken = map(self._take, pieces) if self._blocks is not None else self._together(pieces)
        for (begin, end), data in zip(pieces, taken, strict=True):
            out[begin - start : end - start] = data
        return out

    def read_ahead(self, small: Iterable[tuple[int, int]] = ()) -> None:
        """Fetch what follows before it is asked for: the file is read in order.

        Parameters
        ----------
        small : iterable of (int, int)
            Ranges that are read out of order; they are fetched now, and kept.
        """
        runs: list[list[int]] = []
        for start, stop in sorted(small):
            if stop <= max(start, len(self.head)):
                continue
            if runs and start - runs[-1][1] <= _NEAR and stop - runs[-1][0] <= BLOCK_BYTES:
                runs[-1][1] = max(stop, runs[-1][1])
            else:
                runs.append([start, stop])
        found = self._together([(start, stop) for start, stop in runs])
        self._kept = [(start, data) for (start, _), data in zip(runs, found, strict=True)]
        self._blocks = {}

    def blocks(self) -> Iterator[memoryview]:
        """Yield all of it in order."""
        self.read_ahead()
        for start in range(0, self.size, BLOCK_BYTES):
            yield self.read(start, min(start + BLOCK_BYTES, self.size)).data

    def close(self) -> None:
        """Stop reading; require the version that was read, where no answer told it."""
        pool, self._blocks = self.__dict__.pop("_pool", None), None
        self._used.clear()
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        if self._remote.is_general and version_of(self._remote.info()) != self._version:
            raise CheckpointError(CHANGED, path=self.path)

    def _together(self, pieces: Iterable[tuple[int, int]]) -> Iterable[np.ndarray]:
        return self._pool.map(lambda piece: self._fetch(*piece), pieces)

    def _take(self, piece: tuple[int, int]) -> np.ndarray:
        """Return a range within a block, and let the blocks that follow be fetched."""
        start, stop = piece
        number = start // BLOCK_BYTES
        with self._lock:
            assert self._blocks is not None
            block = self._blocks.get(number) or self._used.get(number)
            if block is None:
                block = self._blocks[number] = self._begin(number)
            if stop in ((number + 1) * BLOCK_BYTES, self.size) and number in self._blocks:
                self._used[number] = self._blocks.pop(number)
            last = min(number + _AHEAD, (self.size - 1) // BLOCK_BYTES)
            for further in range(number + 1, last + 1):
                if further not in self._begun and len(self._blocks) < _WAITING:
                    self._blocks[further] = self._begin(further)
            for some, most in ((self._used, _USED), (self._blocks, _MOST)):
                while len(some) > most:
                    del some[next(iter(some))]
        return block.result()[start - number * BLOCK_BYTES : stop - number * BLOCK_BYTES]

    def _begin(self, number: int) -> Future[np.ndarray]:
        self._begun.add(number)
        start = number * BLOCK_BYTES
        return self._pool.submit(self._fetch, start, min(start + BLOCK_BYTES, self.size))

    def _fetch(self, start: int, stop: int) -> np.ndarray:
        return np.frombuffer(self._ask(start, stop).data, np.uint8)

    def _ask(self, start: int, stop: int) -> _Answer:
        """Request a range, which is not empty; again where the answer is cut short."""

        def once() -> _Answer:
            answer = _request(self._remote, start, stop, self._version)
            is_same = self._remote.is_general or answer.size == (self.size or answer.size)
            if self._version not in (None, answer.version) or not is_same:
                raise CheckpointError(CHANGED, path=self.path)
            if len(answer.data) != min(stop, answer.size) - start:
                raise IncompleteAnswer(f"{len(answer.data)} bytes of {stop - start}")
            return answer

        if self._failed is not None and time.monotonic() - self._failed[0] < PATIENCE:
            error = self._failed[1]  # lest each of many tensors wait for a server that is gone
            raise type(error)(error.message, path=error.path)
        try:
            return repeated(str(self.path), once)
        except CheckpointError as error:
            self._failed = time.monotonic(), error
            raise


def _request(path: RemotePath, start: int, stop: int, version: str | None) -> _Answer:
    """Request a range once."""
    if path.is_general:
        if version is not None:
            return _Answer(path.fs.cat_file(path.path, start=start, end=stop), stop, version)
        info = path.fs.info(path.path)
        if info["type"] == "directory":
            raise CheckpointError("is a folder where a file was expected")
        size = info["size"]
        data = path.fs.cat_file(path.path, start=0, end=min(stop, size)) if size else b""
        return _Answer(data, size, version_of(info))
    from fsspec.asyn import sync

    ask = _from_web if path.is_web else _from_s3
    timeout = TIMEOUT + (stop - start) / LEAST_SPEED
    try:
        found: _Answer = sync(path.fs.loop, ask, path, start, stop, version, timeout=timeout)
    except Exception as error:
        if start == 0 and status_of(error) == 416:  # there is not even a first byte
            return _Answer(b"", 0, version)
        raise
    return found


async def _from_s3(path: RemotePath, start: int, stop: int, version: str | None) -> _Answer:
    bucket, key, number = path.fs.split_path(path.path)
    more = {"IfMatch": version, "VersionId": number}
    answer = await path.fs._call_s3(
        "get_object",
        Bucket=bucket,
        Key=key,
        Range=f"bytes={start}-{stop - 1}",
        **{name: value for name, value in more.items() if value},
    )
    size = _size(answer.get("ContentRange"), start, stop, answer["ContentLength"])
    async with answer["Body"] as body:
        return _Answer(await body.read(), size, answer.get("ETag"))


async def _from_web(path: RemotePath, start: int, stop: int, version: str | None) -> _Answer:
    from aiohttp import ClientTimeout

    fs, settings = path.fs, dict(path.fs.kwargs)
    headers = {**settings.pop("headers", {}), "Range": f"bytes={start}-{stop - 1}"}
    headers["Accept-Encoding"] = "identity"
    if version is not None and version.startswith('"'):  # no weak tag, nor a time
        headers["If-Match"] = version
    settings.setdefault("timeout", ClientTimeout(sock_connect=_STALL, sock_read=_STALL))
    session = await fs.set_session()
    async with session.get(fs.encode_url(path.key), headers=headers, **settings) as answer:
        if answer.status in (400, 401, 403) and "expired" in (await answer.text()).lower():
            raise PermissionError("the token has expired")
        answer.raise_for_status()
        whole = None if answer.status == 206 else answer.content_length
        size = _size(answer.headers.get("Content-Range"), start, stop, whole)
        try:  # to read one byte more than were asked for, and never all that a server may send
            data = await answer.content.readexactly(stop - start + 1)
        except asyncio.IncompleteReadError as error:
            data = error.partial
        return _Answer(data, size, answer.headers.get("ETag", answer.headers.get("Last-Modified")))


def _size(content_range: Any, start: int, stop: int, length: int | None) -> int:
    """Return the size of the whole file that an answer is a range of, or all of."""
    match = _RANGE.match(content_range or "")
    if match and int(match[1]) == start and (length or 0) <= stop - start:
        return int(match[2])
    if match or start or length is None or length > stop:
        raise CheckpointError("the server sends no ranges, or wrong ones; download it first")
    return length


def version_of(info: dict[str, Any]) -> str:
    """Return what a store says of a file, but for when it was read last."""
    return str(sorted((name, str(value)) for name, value in info.items() if name != "atime"))
