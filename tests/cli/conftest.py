import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    def line(self) -> str:
        """Return the one line on stderr, which is all there may be besides status and stdout."""
        (line,) = self.stderr.splitlines()
        assert line.startswith("tensorcomp: ")
        assert "Traceback" not in self.stderr
        return line


Call = Callable[..., Outcome]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs the command line in this process, as a pipe would see it."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def python() -> Call:
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
def compressed(model: Path, call: Call) -> Path:
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
