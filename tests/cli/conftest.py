import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tensorcomp_cli.main import main


@dataclass(frozen=True)
class Outcome:
    """What a run of the command line left behind."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """Return the one JSON object on stdout, in strict JSON."""
        (line,) = self.stdout.splitlines()
        value: dict[str, Any] = json.loads(line, parse_constant=pytest.fail)
        return value

    @property
    def tensors(self) -> dict[str, dict[str, Any]]:
        """Return the tensors of the JSON object by name."""
        return {tensor["name"]: tensor for tensor in self.json["tensors"]}

    @property
    def line(self) -> str:
        """Return the one line on stderr, which is all there may be besides status and stdout."""
        (line,) = self.stderr.splitlines()
        assert line.startswith("tensorcomp: ")
        assert "Traceback" not in self.stderr
        return line


class CommandLine:
    """The command line, run in this process, as a pipe would see it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        self.capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = self.capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    def ok(self, *arguments: object) -> Outcome:
        """Run what must succeed and say nothing on stderr."""
        done = self(*arguments)
        assert (done.status, done.stderr) == (0, "")
        return done

    def refused(self, words: str, *arguments: object) -> str:
        """Run what must be refused with these words and print nothing; return the line."""
        done = self(*arguments)
        assert (done.status, done.stdout) == (2, "")
        assert words in done.line
        return done.line


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def on_terminal(call: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that runs what must succeed, and returns what a terminal shows of it."""
    if not hasattr(os, "openpty"):
        pytest.skip("needs a pseudo-terminal")

    def drain(descriptor: int, into: list[bytes]) -> None:
        # Linux reports as an error that the other side was closed.
        with contextlib.suppress(OSError):
            while data := os.read(descriptor, 1 << 16):
                into.append(data)

    def run(*arguments: object) -> str:
        ours, theirs = os.openpty()
        shown: list[bytes] = []
        reader = threading.Thread(target=drain, args=(ours, shown))
        reader.start()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            done = call(*arguments)
        reader.join()
        os.close(ours)
        assert done.status == 0
        return b"".join(shown).decode()

    return run


@pytest.fixture
def python() -> Callable[..., Outcome]:
    """Return a function that runs Python code in a new process."""

    def run(code: str, *arguments: object, **environment: str) -> Outcome:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **environment},
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    weight = random.normal(0, 0.02, (48, 32)).astype(np.float32)
    return {
        "encoder.layer.0.attention.self.query.weight": weight,
        "encoder.layer.0.attention.self.query.bias": np.zeros(32, np.float32),
        "encoder.norm.weight": np.ones(48, np.float32),
        "lm_head.weight": weight.copy(),
        "position_ids": np.arange(64),
        "scalar": np.array(3.5, np.float32),
    }


@pytest.fixture
def model(tmp_path: Path, tensors: dict[str, np.ndarray]) -> Path:
    """Return a safetensors file in which one tensor is there twice."""
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, {"format": "np"})
    return path


@pytest.fixture
def compressed(model: Path, call: CommandLine) -> Path:
    """Return the model, compressed beside it."""
    assert call("compress", model).status == 0
    return model.with_name("model.tc.safetensors")


@pytest.fixture
def folder(tmp_path: Path, tensors: dict[str, np.ndarray]) -> Path:
    """Return a folder of two checkpoint files, one in a sub-folder, and a config."""
    path = tmp_path / "folder"
    (path / "text").mkdir(parents=True)
    (path / "config.json").write_text('{"layers": 1}')
    save_file(tensors, path / "model.safetensors")
    save_file({"x": np.arange(100, dtype=np.float32)}, path / "text" / "model.safetensors")
    return path
