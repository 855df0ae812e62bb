"""Train one model at three places over TCP: workers of unequal weight, one late, one lost.

    python examples/edge_aggregation.py [--compressor "topk(0.01, values=affine(8))"] [--steps 100]

Needs scikit-learn, whose images of handwritten digits are learned (1,797 of 8 × 8 pixels, a quarter
held out), by a network of 17,226 weights in plain NumPy. The server holds no data, and the workers
never see each other's: they send compressed gradients to a port of this machine's loopback
interface, and are sent the compressed mean, which the server applies too: all models stay equal bit
for bit. Worker 1 is slow at times: what comes too late for a step is folded into the next. Worker 2
dies half-way, and the others go on.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import xxhash

from tensorcomp import TensorcompError
from tensorcomp.gradients import Aggregator, WorkerCompression, decompress, parse_compressor

COMPRESSOR = "topk(0.01, values=affine(8))"
SHARES = {0: 0.5, 1: 0.3, 2: 0.2}  # of the images; a worker's weight is how many it has
LATE, LOST = 1, 2  # workers
BATCH = 64
RATE = 0.5  # no momentum: with gradients that come late in parts, it overshoots
TIMEOUT = 60.0  # seconds after which a socket that says nothing is given up
LARGEST = 1 << 24  # bytes of a message
_LENGTH = struct.Struct("<Q")

Arrays = dict[str, np.ndarray]


# --- the model ---------------------------------------------------------------------------------


def new_model(seed: int = 0) -> Arrays:
    """Return the weights of a network of 64, 128, 64 and 10 units."""
    rng = np.random.default_rng(seed)
    model: Arrays = {}
    for number, (inputs, outputs) in enumerate([(64, 128), (128, 64), (64, 10)]):
        weight = rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)
        model[f"{number}.weight"] = weight.astype(np.float32)
        model[f"{number}.bias"] = np.zeros(outputs, np.float32)
    return model


def outputs_of(model: Arrays, x: np.ndarray) -> list[np.ndarray]:
    """Return the input, then what each layer makes of it."""
    outputs = [x]
    for layer in range(3):
        x = x @ model[f"{layer}.weight"] + model[f"{layer}.bias"]
        if layer < 2:
            x = np.maximum(x, 0)
        outputs.append(x)
    return outputs


def gradients_of(model: Arrays, x: np.ndarray, y: np.ndarray) -> Arrays:
    """Return the gradients of the mean cross-entropy of some images (n, 64) and digits (n,)."""
    outputs = outputs_of(model, x)
    scores = np.exp(outputs[-1] - outputs[-1].max(axis=1, keepdims=True))
    back = scores / scores.sum(axis=1, keepdims=True)
    back[np.arange(len(y)), y] -= 1
    back /= len(y)
    gradients: Arrays = {}
    for layer in (2, 1, 0):
        gradients[f"{layer}.weight"] = outputs[layer].T @ back
        gradients[f"{layer}.bias"] = back.sum(axis=0)
        back = (back @ model[f"{layer}.weight"].T) * (outputs[layer] > 0)
    return gradients


@dataclass
class Training:
    """A model that learns: the same at all places, since all apply the same means."""

    model: Arrays = field(default_factory=new_model)

    def apply(self, mean: Arrays) -> None:
        """Take a step of gradient descent."""
        for name, gradient in mean.items():
            self.model[name] -= np.float32(RATE) * gradient

    def digest(self) -> bytes:
        """Return a digest of all weights, 16 bytes."""
        return xxhash.xxh3_128_digest(b"".join(self.model[name] for name in sorted(self.model)))


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images and digits to learn from, and those that are held out."""
    from sklearn.datasets import load_digits

    images, answers = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    x, y = images[order].astype(np.float32) / 16, answers[order]
    held_out = len(x) // 4
    return x[held_out:], y[held_out:], x[:held_out], y[:held_out]


# --- bytes over TCP ----------------------------------------------------------------------------


def send(connection: socket.socket, data: bytes) -> None:
    """Send a message, its length first."""
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> bytes:
    """Return the next message; raise ConnectionError if the other side is gone."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > LARGEST:
        raise ConnectionError(f"a message of {length} bytes is refused")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 16))
        if not piece:
            raise ConnectionError("the connection was closed")
        data += piece
    return bytes(data)


# --- a worker ----------------------------------------------------------------------------------


def work(
    port: int, worker: int, x: np.ndarray, y: np.ndarray, compressor: str, steps: int, pause: float
) -> None:
    """Learn from a share of the images, together with whoever else is connected."""
    rng = np.random.default_rng(worker)
    training = Training()
    compression = WorkerCompression(compressor, worker=worker, weight=len(x))
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as connection:
        connection.sendall(_LENGTH.pack(worker))
        for step in range(steps):
            if worker == LOST and step == steps // 2:
                os._exit(1)  # no farewell, as if the power had failed
            rows = rng.integers(len(x), size=BATCH)
            message = compression.compress(gradients_of(training.model, x[rows], y[rows]))
            if worker == LATE and step % 10 == 5:
                time.sleep(pause)
            send(connection, message)
            training.apply(decompress(receive(connection)))
        send(connection, training.digest())


# --- the server --------------------------------------------------------------------------------


@dataclass
class Report:
    """What the server saw; bytes are those of messages.

    ``received`` counts what all workers sent, ``dense`` what their gradients take as they are,
    ``sent`` one answer a step, ``folded`` late messages, ``alone`` workers that missed a step, and
    ``equal`` tells whether all models were equal in the end.
    """

    steps: int = 0
    messages: int = 0
    received: int = 0
    sent: int = 0
    dense: int = 0
    folded: int = 0
    alone: int = 0
    equal: bool = False
    accuracy: float = 0.0
    model: Arrays = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)


def serve(listener: socket.socket, compressor: str, steps: int, deadline: float) -> Report:
    """Answer steps until there were enough of them.

    A step is closed when all workers that are connected have sent, or when two have and the
    deadline, in seconds, has passed.
    """
    report, training = Report(), Training()
    aggregator = Aggregator(compressor, quorum=2)
    raw = sum(array.nbytes for array in training.model.values())
    with selectors.DefaultSelector() as ready:
        for connection in accepted(listener):
            worker = _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0]
            ready.register(connection, selectors.EVENT_READ, worker)
        for step in range(steps):
            closes = time.monotonic() + deadline
            while set(workers_of(ready)) - set(aggregator.present):
                left = closes - time.monotonic()
                if left <= 0 and aggregator.ready:
                    break
                if left < -TIMEOUT:
                    raise TimeoutError(f"step {step}: only {aggregator.present} have sent")
                for connection, worker in waiting(ready, max(left, 0.01)):
                    try:
                        data = receive(connection)
                        report.folded += aggregator.add(data) == "folded"
                    except (OSError, TensorcompError):
                        report.lost.append(worker)
                        ready.unregister(connection)
                        connection.close()
                    else:
                        report.messages += 1
                        report.received += len(data)
                        report.dense += raw
            done = aggregator.result(step)
            report.alone += len(set(workers_of(ready)) - set(done.workers))
            report.sent += len(done.message)
            training.apply(done.arrays())
            for connection in connections(ready):
                # If it is gone, that is seen when it is read from.
                with contextlib.suppress(OSError):
                    send(connection, done.message)
        digests = {training.digest(), *map(last_words, connections(ready))}
        for connection in connections(ready):
            connection.close()
    report.steps = steps
    report.equal = len(digests) == 1
    report.model = training.model
    return report


def accepted(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield a connection to each worker."""
    for _ in SHARES:
        connection, _ = listener.accept()
        connection.settimeout(TIMEOUT)
        yield connection


def waiting(ready: selectors.BaseSelector, seconds: float) -> Iterator[tuple[Any, int]]:
    """Yield the connections on which there is something to read, and the workers' numbers."""
    for key, _ in ready.select(seconds):
        yield key.fileobj, key.data


def connections(ready: selectors.BaseSelector) -> list[Any]:
    """Return the connections that are open."""
    return [key.fileobj for key in ready.get_map().values()]


def workers_of(ready: selectors.BaseSelector) -> list[int]:
    """Return the workers that are connected."""
    return [key.data for key in ready.get_map().values()]


def last_words(connection: socket.socket) -> bytes:
    """Return the digest of a worker's model, which comes after its last gradient."""
    while len(data := receive(connection)) != 16:
        pass
    return data


def run(compressor: str, steps: int, *, deadline: float = 0.1) -> Report:
    """Start three workers, serve them, and return what came of it."""
    spawn = multiprocessing.get_context("spawn")
    x, y, test_x, test_y = digits()
    stops = np.cumsum([round(share * len(x)) for share in SHARES.values()])[:-1]
    shares = zip(np.split(x, stops), np.split(y, stops), strict=True)
    processes: list[BaseProcess] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
        port = listener.getsockname()[1]
        try:
            for worker, share in zip(SHARES, shares, strict=True):
                arguments = (port, worker, *share, compressor, steps, 3 * deadline)
                processes.append(spawn.Process(target=work, args=arguments, daemon=True))
                processes[-1].start()
            report = serve(listener, compressor, steps, deadline)
        finally:
            for process in processes:
                process.join(timeout=5)
                if process.is_alive():
                    process.kill()
                    process.join()
    found = outputs_of(report.model, test_x)[-1].argmax(axis=1)
    report.accuracy = float((found == test_y).mean())
    return report


def main() -> None:
    """Read the command line, and print bytes and accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compressor", default=COMPRESSOR, help="of gradients and of their mean")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--deadline", type=float, default=0.1, help="seconds that a step waits")
    arguments = parser.parse_args()
    try:
        parse_compressor(arguments.compressor)
    except TensorcompError as error:
        parser.error(f"--compressor: {error}")
    report = run(arguments.compressor, arguments.steps, deadline=arguments.deadline)
    print(f"{report.steps} steps, {arguments.compressor}, up and down")
    up, down = report.received / report.messages, report.sent / report.steps
    raw = report.dense / report.messages
    print(f"a gradient as it is    {raw:>10,.0f} bytes")
    print(f"a message to the server{up:>10,.0f} bytes {raw / up:6.1f}×")
    print(f"an answer              {down:>10,.0f} bytes {raw / down:6.1f}×")
    print(f"too late {report.alone} times; folded into a later step: {report.folded} messages")
    print(f"workers that were lost: {report.lost}; models equal bit for bit: {report.equal}")
    print(f"accuracy on held-out digits {report.accuracy:.1%}")


if __name__ == "__main__":
    main()
