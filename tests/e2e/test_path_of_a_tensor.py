"""Count the files of the package that a tensor passes from the command line to disk and back."""

import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import write_safetensors

import tensorcomp
from tensorcomp_cli.main import main

PARENT = Path(tensorcomp.__file__).parents[1]
OURS = tuple(f"{PARENT / folder}/" for folder in ("tensorcomp", "cli", "tensorcomp_cli"))


def calls_of(*arguments):
    """Return how often functions of each file are called while a command runs.

    It runs once before: what modules do when they are imported is not on a tensor's path.
    """
    calls = Counter()

    def count(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            calls[frame.f_code.co_filename] += 1

    run(*arguments)
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        run(*arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def run(*arguments):
    assert main(list(map(str, arguments))) == 0


@pytest.fixture
def checkpoints(tmp_path):
    """Write two checkpoints of one tensor and of four."""
    random = np.random.default_rng(0)
    weights = {
        f"layers.{number}.mlp.up_proj.weight": random.standard_normal((256, 256)).astype(np.float32)
        for number in range(4)
    }
    first = dict(list(weights.items())[:1])
    return [
        write_safetensors(tmp_path / "one.safetensors", first),
        write_safetensors(tmp_path / "four.safetensors", weights),
    ]


def check(one, four, *, per_tensor, in_all):
    more = sorted(file for file in four if four[file] > one[file])
    assert len(more) <= per_tensor, "\n".join(more)
    assert len(one | four) <= in_all, "\n".join(sorted(one | four))


@pytest.mark.parametrize(
    ("options", "per_tensor", "in_all"),
    [([], 28, 45), (["--min-snr", 30], 50, 67)],
    ids=["lossless", "lossy"],
)
def test_compressing_a_tensor_passes_few_files(checkpoints, options, per_tensor, in_all):
    one, four = (calls_of("compress", path, *options, "--force") for path in checkpoints)
    check(one, four, per_tensor=per_tensor, in_all=in_all)


def test_restoring_a_tensor_passes_few_files(checkpoints):
    compressed = [tensorcomp.compress(path).path for path in checkpoints]
    one, four = (calls_of("decompress", path, "--force") for path in compressed)
    check(one, four, per_tensor=15, in_all=28)
