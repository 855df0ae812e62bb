"""The example that trains over TCP sockets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "edge_aggregation.py"


def printed(*options):
    command = [sys.executable, "-W", "error", str(SCRIPT), *options]
    one_core = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=one_core
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_three_workers_learn_although_one_is_late_and_one_dies():
    text = printed("--steps", "80")
    assert "80 steps, topk(0.01, values=affine(8)), up and down" in text
    assert re.search(r"a gradient as it is +68,904 bytes", text)
    up, down = re.findall(r"([\d.]+)×", text)
    assert float(up) > 65
    assert float(down) > 65
    late, folded = re.search(r"too late (\d+) times; .*: (\d+) messages", text).groups()
    assert int(late) >= 1  # it sleeps through three deadlines of each tenth step
    assert int(folded) >= 1
    assert "workers that were lost: [2]; models equal bit for bit: True" in text
    accuracy = re.search(r"accuracy on held-out digits ([\d.]+)%", text)
    assert float(accuracy[1]) > 80


def test_gradients_are_those_of_the_loss(example):
    rng = np.random.default_rng(0)
    model = {name: array.astype(np.float64) for name, array in example.new_model().items()}
    x, y = rng.random((5, 64)), rng.integers(10, size=5)

    def loss():
        scores = example.outputs_of(model, x)[-1]
        return np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(5), y])

    found = example.gradients_of(model, x, y)
    assert found.keys() == model.keys()
    for name, array in model.items():
        place = np.unravel_index(np.abs(found[name]).argmax(), array.shape)
        step = 1e-6
        array[place] += step
        above = loss()
        array[place] -= 2 * step
        slope = (above - loss()) / (2 * step)
        array[place] += step
        assert found[name][place] == pytest.approx(slope, rel=1e-4)


def test_a_message_that_is_too_long_is_refused(example):
    import socket

    here, there = socket.socketpair()
    with here, there:
        here.sendall((1 << 40).to_bytes(8, "little"))
        with pytest.raises(ConnectionError, match="of 1099511627776 bytes is refused"):
            example.receive(there)
        here.sendall((5).to_bytes(8, "little") + b"ab")
        here.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="was closed"):
            example.receive(there)
