"""A real S3 server, behind a proxy that counts requests and makes faults."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

BUCKET = "bucket"
DROP = -1  # what `fault` returns to break the connection off in place of an answer
CUT = -2  # and to break it off half-way through the answer, when all is done
_CODES = {403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed", 503: "SlowDown"}
_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "expect")


class Request(NamedTuple):
    """What the server was asked, and how it answered: as a client sees it."""

    method: str
    key: str  # behind the bucket; "" for the bucket itself
    query: dict[str, list[str]]
    headers: dict[str, str]  # names in lower case
    nbytes: int  # of the body
    status: int
    answered: int  # bytes of the body of the answer

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


@dataclass
class ObjectStore:
    """A bucket of a server that runs.

    `fault` is asked for each request before the server is: a status to answer in its place (500,
    403 …), `DROP`, `CUT`, or None for no fault. `delay` is slept before each answer, in seconds.
    """

    endpoint: str
    client: Any = None
    requests: list[Request] = field(default_factory=list)
    fault: Callable[[Request], int | None] | None = None
    delay: float = 0.0

    def url(self, key: str = "") -> str:
        return f"s3://{BUCKET}/{key}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which any client finds the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "secret-of-tests",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }

    def keys(self, prefix: str = "") -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for entry in found.get("Contents", ())]

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def put(self, key: str, data: bytes) -> str:
        """Write an object; return its URL."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)
        return self.url(key)

    def uploads(self) -> list[str]:
        """Return the keys of uploads that are neither complete nor aborted."""
        found = self.client.list_multipart_uploads(Bucket=BUCKET)
        return [entry["Key"] for entry in found.get("Uploads", ())]

    def clear(self) -> None:
        """Remove all objects and uploads, faults, and counts."""
        self.fault, self.delay = None, 0.0
        for upload in self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()):
            self.client.abort_multipart_upload(
                Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"]
            )
        for key in self.keys():
            self.client.delete_object(Bucket=BUCKET, Key=key)
        self.requests.clear()


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Start a server with an empty bucket; `client` asks it directly, past the proxy."""
    import boto3

    with _server() as server, _proxy(server) as store, _in_environment(store.environment):
        store.client = boto3.client("s3", endpoint_url=server)
        store.client.create_bucket(Bucket=BUCKET)
        try:
            yield store
        finally:
            store.client.close()


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """Run moto's server; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None:
                raise RuntimeError("moto's server has ended at once")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _proxy(server: str) -> Iterator[ObjectStore]:
    """Run the proxy before a server."""

    class Handler(_Handler):
        pass

    class Proxy(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing: clients are killed by tests."""

    with Proxy(("127.0.0.1", 0), Handler) as proxy:
        Handler.store = ObjectStore(f"http://127.0.0.1:{proxy.server_port}")
        Handler.server_place = urlsplit(server).netloc
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield Handler.store
        finally:
            proxy.shutdown()
            thread.join()


@contextlib.contextmanager
def _in_environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Pass each request on to the server, and note it."""

    store: ObjectStore
    server_place: str
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        # "Expect: 100-continue" is answered by http.server already.
        body = self.rfile.read(int(headers.get("content-length", 0)))
        url = urlsplit(self.path)
        key = url.path.lstrip("/").partition("/")[2]
        query = parse_qs(url.query, keep_blank_values=True)
        request = Request(self.command, key, query, headers, len(body), 0, 0)
        store, fault = self.store, None
        if store.fault is not None:
            fault = store.fault(request)
        time.sleep(store.delay)
        if fault is not None and fault != CUT:
            store.requests.append(request._replace(status=fault))
            self._fail(fault)
            return
        place = http.client.HTTPConnection(self.server_place, timeout=60)
        try:
            passed = {name: value for name, value in headers.items() if name not in _HOP_BY_HOP}
            place.request(self.command, self.path, body, passed)
            answer = place.getresponse()
            data, answered = answer.read(), answer.getheaders()
        finally:
            place.close()
        store.requests.append(request._replace(status=answer.status, answered=len(data)))
        if fault == CUT and not data:
            self._fail(DROP)
            return
        with contextlib.suppress(OSError):  # the client has gone, perhaps killed
            self.send_response_only(answer.status)
            for name, value in answered:
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else len(data)
            self.send_header("Content-Length", str(length or 0))
            self.end_headers()
            if fault == CUT:
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            elif self.command != "HEAD":
                self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

    def _fail(self, status: int) -> None:
        if status == DROP:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        code = _CODES.get(status, "InternalError")
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>made by a test</Message>"
        data = b"" if self.command == "HEAD" else f"{text}</Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
