"""An HTTP server that sends ranges, counts requests, and makes faults on command."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

# Faults, beside a status.
WHOLE, CUT, SLOW, SHIFTED, LONG = "whole", "cut", "slow", "shifted", "long"


@dataclass
class RangeServer:
    """Server that runs: what it serves, and what it was asked.

    `fault` is asked for the number of each request, counted from 0: a status to answer in its
    place, `WHOLE` to ignore the range, `CUT` to break off half-way, `SLOW` to stall, `SHIFTED` to
    send another range and say so, `LONG` to send more than that, or None.
    """

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    fault: Callable[[int], int | str | None] = lambda _number: None
    delay: float = 0.0
    body: bytes = b""

    def put(self, name: str, data: bytes) -> str:
        """Serve a file; return its URL."""
        self.files[name] = data
        self.tags[name] = f'"{hashlib.md5(data).hexdigest()}"'
        return f"{self.address}/{name}"

    def ranges(self) -> list[str | None]:
        """Return and forget the ranges that were asked for."""
        found = [asked for _, asked in self.requests]
        self.requests.clear()
        return found


@contextlib.contextmanager
def range_server() -> Iterator[RangeServer]:
    """Run a server on a free port."""

    class Handler(_Handler):
        pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Handler.store = RangeServer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield Handler.store
        finally:
            server.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    store: RangeServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        store, asked = self.store, self.headers.get("Range")
        number = len(store.requests)
        store.requests.append((self.command, asked))
        fault = store.fault(number)
        time.sleep(store.delay)
        name = self.path.partition("?")[0].lstrip("/")
        data, tag = store.files.get(name), store.tags.get(name, "")
        if fault == SLOW:
            time.sleep(1)
        if isinstance(fault, int) or data is None:
            self._answer(fault if isinstance(fault, int) else 404, store.body)
            return
        if self.headers.get("If-Match", tag) != tag:
            self._answer(412, b"")
            return
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
        if match is None or fault == WHOLE:
            self._answer(200, data, ETag=tag)
            return
        start, stop = int(match[1]), min(int(match[2]) + 1, len(data))
        if start >= stop:
            self._answer(416, b"", **{"Content-Range": f"bytes */{len(data)}"})
            return
        start += fault == SHIFTED
        place = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}", "ETag": tag}
        body = data[start:stop] * (1 + (fault == LONG))
        self._answer(206, body, cut=fault == CUT, **place)

    do_HEAD = do_GET

    def _answer(self, status: int, data: bytes, *, cut: bool = False, **headers: str) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            self.send_response_only(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection |= cut

    def log_message(self, *_: object) -> None:
        """Say nothing."""
