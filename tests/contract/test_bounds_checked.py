"""The contract once more with every index in every kernel checked: an `IndexError` is a fault."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tensorcomp.kernels import native

_WHERE_KERNELS_RUN = "restores or shares or damaged or other or hostile"


@pytest.mark.slow
def test_kernels_stay_in_bounds(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    kept = request.config.cache
    cache = tmp_path if kept is None else kept.mkdir("kernels-with-bounds")
    folder = Path(__file__).parent
    tests = [folder / "test_codec_contract.py", folder / "test_hostile_sections.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", _WHERE_KERNELS_RUN]
        + [str(test) for test in tests],
        env={
            **os.environ,
            "NUMBA_BOUNDSCHECK": "1",
            "NUMBA_CACHE_DIR": str(cache),
        },
        cwd=request.config.rootpath,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_lengths_are_checked_before_kernels_run() -> None:
    with pytest.raises(ValueError, match="length that does not fit"):
        native.fields_merge(np.zeros(2, "u1"), np.zeros(9, "u1"), 7, np.zeros(9, "u2"))
