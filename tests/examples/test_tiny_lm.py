"""The committed model and the scripts beside it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import tensorcomp

FOLDER = Path(__file__).parents[2] / "examples" / "tiny_lm"
CHECKPOINT = FOLDER / "model.safetensors"


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def evaluate(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return load_script("evaluate")


@pytest.mark.slow
def test_a_restored_model_is_as_good_as_it_was(tmp_path, evaluate):
    compressed = tmp_path / "model.tc.safetensors"
    tensorcomp.compress(CHECKPOINT, compressed)
    perplexity = evaluate.perplexity(tensorcomp.load_file(compressed, framework="pt"))
    # The held-out text is of the running Python's own documentation; see the README there.
    assert perplexity == pytest.approx(3.31, abs=0.02)
    restored = tensorcomp.decompress(compressed, tmp_path / "restored.safetensors")
    assert restored.read_bytes() == CHECKPOINT.read_bytes()


def test_the_committed_checkpoint_is_small_and_compresses(tmp_path):
    assert CHECKPOINT.stat().st_size < 4e6
    report = tensorcomp.compress(CHECKPOINT, tmp_path / "out.tc.safetensors", effort="max")
    (file,) = report.files.values()
    assert file.input_bytes / file.output_bytes > 1.5


def test_training_runs_a_few_steps(tmp_path):
    out = tmp_path / "model.safetensors"
    command = [sys.executable, str(FOLDER / "train.py"), "--steps", "2", "--out", str(out)]
    subprocess.run([*command, "--threads", "1"], check=True, capture_output=True, cwd=tmp_path)
    assert out.stat().st_size == CHECKPOINT.stat().st_size
