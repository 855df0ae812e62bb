"""Count the files of the package that one tensor passes on its way to disk and back."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from checkpoint_files import write_safetensors

import tensorcomp

ROOT = str(Path(tensorcomp.__file__).parent)


def files_passed(job: Callable[[], object]) -> set[str]:
    """Return the files whose functions a job calls.

    It runs once before: what modules do when they are imported is not on a tensor's path.
    """
    passed: set[str] = set()

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            passed.add(frame.f_code.co_filename)

    job()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        job()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return passed


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    return write_safetensors(
        tmp_path / "model.safetensors", {"layers.0.mlp.up_proj.weight": weight}
    )


@pytest.mark.parametrize(
    ("budget", "most"), [(None, 35), (tensorcomp.Budget(min_snr=30), 64)], ids=["lossless", "lossy"]
)
def test_compressing_a_tensor_passes_few_files(checkpoint, budget, most):
    passed = files_passed(lambda: tensorcomp.compress(checkpoint, budget=budget, force=True))
    assert len(passed) <= most, "\n".join(sorted(passed))


def test_restoring_a_tensor_passes_few_files(checkpoint):
    compressed = tensorcomp.compress(checkpoint).path
    passed = files_passed(lambda: tensorcomp.decompress(compressed, force=True))
    assert len(passed) <= 32, "\n".join(sorted(passed))
