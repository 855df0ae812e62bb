"""Write an object of an S3 store in parts, of which few are in memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, Self, cast

from tensorcomp.errors import CheckpointError, TensorcompError
from tensorcomp.io.locations import RemotePath
from tensorcomp.io.store_errors import (
    FIRST_WAIT,
    PATIENCE,
    TRIES,
    explained,
    is_transient,
    status_of,
)

PART_BYTES = 8 << 20  # S3 takes 5 MiB at least
_UNDER_WAY = 2  # parts; each may be in memory twice while it is sent
_MOST_PARTS = 9_000  # of the 10,000 that S3 takes, since sizes are estimates
_PATIENCE = 5.0  # seconds that a failed upload waits for an answer
_NOT_IMPLEMENTED = 501  # answers a server that knows no conditions
EXISTS = "exists already; force=True replaces it, out=… names another"


class PartIsSent(Exception):
    """Part that was sent, and would have to be read or changed."""


class S3Upload:
    """Output that becomes an object of an S3 store, whole or not at all.

    Parts go out as they fill up, and those in which the first byte was written in the end, since a
    file's header is written last. An object of one part takes one request. As a context manager,
    an upload is aborted by an error.

    Parameters
    ----------
    path : Path
        Of an S3 store.
    nbytes : int
        About how many bytes will be written: parts are larger where these are many.
    """

    def __init__(self, path: Path, nbytes: int) -> None:
        self._path, remote = path, cast("RemotePath", path)
        self._fs = remote.fs
        bucket, key, _ = self._fs.split_path(remote.path)
        self._place = {"Bucket": bucket, "Key": key}
        self._size = max(PART_BYTES, -(-nbytes // _MOST_PARTS))
        self._parts: dict[int, io.BytesIO] = {}
        self._sent: dict[int, Future[Any]] = {}
        self._busy: set[Future[Any]] = set()
        self._upload: Future[Any] | None = None
        self._position = self._end = 0
        self._kept = -1  # last of the parts that are sent in the end

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Abort the upload after an error."""
        if kind is not None:
            self.abort()

    @property
    def has_sent(self) -> bool:
        """Whether parts have gone, which can neither be read nor changed."""
        return bool(self._sent)

    def write(self, data: Any) -> int:
        """Write all bytes at the position; return how many."""
        view = memoryview(data)
        if self._kept < 0:
            self._kept = self._position // self._size
        left = view.cast("B") if view.nbytes else view
        while left.nbytes:
            index, offset = divmod(self._position, self._size)
            taken = left[: self._size - offset]
            self._part(index, offset).write(taken)
            left = left[taken.nbytes :]
            self._position += taken.nbytes
            self._end = max(self._end, self._position)
            if index > self._kept and self._position % self._size == 0:
                self._send(index)
        return view.nbytes

    def seek(self, position: int) -> int:
        """Move to a position, maybe behind the end."""
        self._position = position
        return position

    def read(self, size: int) -> bytes:
        """Return at most so many bytes."""
        index, offset = divmod(self._position, self._size)
        stop = min(offset + size, self._size, self._end - index * self._size)
        data = self._part(index, offset).read(max(stop - offset, 0))
        self._position += len(data)
        return data

    def truncate(self, size: int) -> int:
        """Cut the file after so many bytes, where it is written on."""
        if size == 0:
            self._parts.clear()
            self._kept = -1
        self._end = min(self._end, size)
        return size

    def _part(self, index: int, offset: int) -> io.BytesIO:
        """Return a part that is here, at a position in it."""
        if index in self._sent:
            raise PartIsSent
        part = self._parts.setdefault(index, io.BytesIO())
        part.seek(offset)
        return part

    def _begin(self, method: str, **arguments: Any) -> Future[Any]:
        """Begin a request in the event loop of the store's client."""
        request = self._request(method, **arguments, **self._place)
        return asyncio.run_coroutine_threadsafe(request, self._fs.loop)

    async def _request(self, method: str, **arguments: Any) -> Any:
        """Ask the store; again after errors that may pass."""
        await self._fs.set_session()
        ask = getattr(await self._fs.get_s3(self._place["Bucket"]), method)
        begun = time.monotonic()
        for tried in range(TRIES):
            if "Body" in arguments:
                arguments["Body"].seek(0)  # an attempt before has read some of it
            try:
                return await ask(**self._fs._get_s3_method_kwargs(ask, **arguments))
            except Exception as error:
                is_last = tried == TRIES - 1 or time.monotonic() - begun > PATIENCE
                if is_last or not is_transient(error):
                    raise
            await asyncio.sleep(FIRST_WAIT * 2**tried)
        raise AssertionError

    def _send(self, index: int) -> None:
        """Begin to send a part, when few others are on their way."""
        with self._explaining():
            if self._upload is None:
                self._upload = self._begin("create_multipart_upload")
            upload = self._upload.result()["UploadId"]
            while len(self._busy) >= _UNDER_WAY:
                done, self._busy = wait(self._busy, return_when=FIRST_COMPLETED)
                for part in done:
                    part.result()
            body = self._parts.pop(index)
            part = self._begin("upload_part", Body=body, PartNumber=index + 1, UploadId=upload)
            self._sent[index] = part
            self._busy.add(part)

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn a store's errors into those of one line."""
        try:
            yield
        except TensorcompError:
            raise
        except Exception as error:
            raise explained(error, str(self._path), "written") from error

    def complete(self, *, force: bool) -> None:
        """Send what is left, and let the object appear.

        Raises
        ------
        CheckpointError
            If there is one, and `force` is not given, or the store refuses.
        """
        count = max(-(-self._end // self._size), 1)
        for index in range(count):
            if index not in self._sent:
                self._part(index, 0).truncate(self._end - index * self._size)
        with self._explaining():
            if count == 1 and self._upload is None:
                body = self._parts[0]
                self._finish("put_object", _md5(body.getbuffer()), force=force, Body=body)
                return
            for index in sorted(self._parts.keys() & range(count)):
                self._send(index)
            etags = [self._sent[index].result()["ETag"].strip('"') for index in range(count)]
            digest = f"{_md5(*etags)}-{count}"
            parts = [{"PartNumber": n, "ETag": f'"{etag}"'} for n, etag in enumerate(etags, 1)]
            assert self._upload is not None
            whole = {
                "MultipartUpload": {"Parts": parts},
                "UploadId": self._upload.result()["UploadId"],
            }
            self._finish("complete_multipart_upload", digest, force=force, **whole)
        self._upload = None

    def _finish(self, method: str, digest: str, *, force: bool, **arguments: Any) -> None:
        """Make the object appear, on the condition that there is none unless forced."""
        condition = {} if force else {"IfNoneMatch": "*"}
        try:
            self._begin(method, **condition, **arguments).result()
        except Exception as error:
            found = self._found()
            if found == digest:
                return  # it was done, and only the answer was lost
            if found is not None and not force:
                raise CheckpointError(EXISTS, path=self._path) from error
            if force or status_of(error) != _NOT_IMPLEMENTED:
                raise
            self._finish(method, digest, force=True, **arguments)

    def _found(self) -> str | None:
        """Return the digest of the object that is there, if one is."""
        with contextlib.suppress(Exception):
            found = self._begin("head_object").result(_PATIENCE)
            return str(found["ETag"]).strip('"')
        return None

    def abort(self) -> None:
        """Stop sending; let the store forget what it has."""
        for part in self._busy:
            part.cancel()
        if self._upload is not None:
            with contextlib.suppress(Exception):
                upload = self._upload.result(_PATIENCE)["UploadId"]
                self._begin("abort_multipart_upload", UploadId=upload).result(_PATIENCE)
        self._upload = None


def _md5(*contents: str | memoryview) -> str:
    """Return the digest by which S3 names a content, of the digests of parts if there are some."""
    try:
        data = b"".join(bytes.fromhex(c) if isinstance(c, str) else c for c in contents)
    except ValueError:  # names by other rules
        return ""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
