"""The example that is killed and resumes from a series."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "series" / "train_and_resume.py"


@pytest.mark.slow
def test_losses_after_a_restore_are_those_of_an_uncrashed_run():
    command = [sys.executable, SCRIPT, "--steps", "6", "--every", "2", "--crash-at", "5"]
    done = subprocess.run(
        [*command, "--batch-size", "1"], check=True, capture_output=True, text=True
    )
    assert "killed after step 5" in done.stdout
    assert "losses after the restore: 0 differ" in done.stdout
    assert "3 steps in" in done.stdout
