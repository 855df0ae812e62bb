"""The example that prunes, holds, fine-tunes and packs a network."""

import sys
from pathlib import Path

import pytest

from tensorcomp import load_file

pytestmark = pytest.mark.usefixtures("one_thread")
SCRIPT = Path(__file__).parents[2] / "examples" / "prune_and_pack.py"
WEIGHTS = 64 * 300 + 300 * 100 + 100 * 10


def zeros(path):
    state = load_file(path, framework="pt")
    return sum(int((state[f"{layer}.weight"] == 0).sum()) for layer in (0, 2, 4))


def test_a_network_is_pruned_and_packed(example, tmp_path, monkeypatch, capsys):
    command = ["prune_and_pack.py", "--sparsity", "0.9", "--out", str(tmp_path)]
    figures = []
    run = example.run
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(
        example, "run", lambda *args, **kwargs: figures.append(run(*args, **kwargs)) or figures[0]
    )
    example.main()
    (found,) = figures
    pruned = round(0.9 * WEIGHTS)
    assert found.sparsity == pruned / WEIGHTS
    assert zeros(tmp_path / "pruned.tc.safetensors") == pruned
    assert zeros(tmp_path / "codebook.tc.safetensors") == pruned
    assert zeros(tmp_path / "dense.tc.safetensors") == 0
    assert found.dense_accuracy > 0.94
    assert found.pruned_accuracy > found.dense_accuracy - 0.015
    assert found.codebook_accuracy > found.dense_accuracy - 0.015
    assert found.pruned_bytes == (tmp_path / "pruned.tc.safetensors").stat().st_size
    assert found.raw_bytes > 4 * WEIGHTS
    assert found.raw_bytes > 8.5 * found.pruned_bytes
    assert found.raw_bytes > 22 * found.codebook_bytes
    printed = capsys.readouterr().out
    assert "90.0000% of the weights are zero, chosen by magnitude" in printed
    assert f"{found.codebook_bytes:,} bytes" in printed


def test_weights_are_chosen_by_a_score_that_needs_data(example, tmp_path):
    found = example.run("snip", 0.8, tmp_path, seed=1)
    pruned = round(0.8 * WEIGHTS)
    assert found.sparsity == pruned / WEIGHTS
    assert zeros(tmp_path / "pruned.tc.safetensors") == pruned
    assert found.pruned_accuracy > 0.9
    assert found.raw_bytes > 4 * found.pruned_bytes
