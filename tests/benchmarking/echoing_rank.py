"""A rank that answers as the benchmark's does, and does little: for the tests of who asks it."""

import json
import os
import socket
import sys
import time
from pathlib import Path

RANK = int(os.environ["RANK"])
COUNTER = Path("/sys/class/net") / os.environ["GLOO_SOCKET_IFNAME"] / "statistics" / "tx_bytes"


def answer(what):
    match what.pop("do"):
        case "join":
            return {"rank": RANK}
        case "send":
            return sent(**what)
        case "fail":
            return {"error": "ValueError: as it was asked to"} if what["rank"] == RANK else {}
        case "die":
            if what["rank"] == RANK:
                sys.exit("it was told to die")
            return {}
        case "sleep":
            time.sleep(60)
    raise ValueError(what)


def sent(size):
    """Send bytes from rank 0 to rank 1, which says so when all have come."""
    before = int(COUNTER.read_text())
    begin = time.perf_counter()
    if RANK == 1:
        with socket.create_server(("10.77.0.2", 29000)) as server:
            connection = server.accept()[0]
            with connection:
                while size:
                    size -= len(connection.recv(min(size, 1 << 16)))
                connection.sendall(b"!")
    else:
        for _ in range(100):
            try:
                connection = socket.create_connection(("10.77.0.2", 29000), timeout=10)
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        with connection:
            connection.sendall(bytes(size))
            connection.recv(1)
    return {"sent": int(COUNTER.read_text()) - before, "seconds": time.perf_counter() - begin}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
