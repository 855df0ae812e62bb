"""Small tensors that are alike share a curve: few trials, the same quality, one write."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tensorcomp
from tensorcomp import Budget
from tensorcomp.container.reader import CompressedFile
from tensorcomp.pipeline import job
from tensorcomp.planning import rate_distortion, small_curves

SHAPE, LAYERS, EXPERTS = (64, 64), 3, 40
COUNT = LAYERS * EXPERTS


@pytest.fixture
def experts(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    tensors = {
        f"model.layers.{i}.mlp.experts.{j}.up_proj.weight": random.standard_normal(
            SHAPE, np.float32
        )
        * np.float32(0.02 * math.exp(0.3 * random.standard_normal()))
        for i in range(LAYERS)
        for j in range(EXPERTS)
    }
    path = tmp_path / "experts.safetensors"
    save_file(tensors, path)
    return path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count trials of trees, and files that are written."""
    counts = {"run_trial": 0, "write_file": 0}
    for module, name in ((rate_distortion, "run_trial"), (job, "write_file")):
        monkeypatch.setattr(module, name, counted(counts, name, getattr(module, name)))
    return counts


def counted(counts: dict[str, int], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args):
        counts[name] += 1
        return function(*args)

    return call


def compressed(path: Path, name: str, **options) -> tuple[Path, float, float]:
    """Return the file, its bits per weight and the sum of errors, each over its tensor's scale."""
    out = path.with_name(f"{name}.tc.safetensors")
    tensorcomp.compress(path, out, profile="transformer", **options)
    before, after = load_file(path), tensorcomp.load_file(out)
    error = sum(np.sum((x - after[k]) ** 2) / np.sqrt(np.mean(x**2)) for k, x in before.items())
    return out, 8 * out.stat().st_size / (COUNT * math.prod(SHAPE)), float(error)


@pytest.mark.parametrize("bits", [2.5, 4, 6])
def test_few_trials_and_one_write_of_the_same_quality(experts, calls, monkeypatch, bits):
    budget = Budget(bits_per_weight=bits)
    _, rate, error = compressed(experts, "shared", budget=budget)
    assert 0.995 * bits <= rate <= bits
    assert calls["write_file"] == 1
    assert calls["run_trial"] < 1.2 * COUNT  # of seven for each that is measured itself
    monkeypatch.setattr(small_curves, "_OWN", COUNT + 1)
    _, own_rate, own_error = compressed(experts, "own", budget=budget)
    assert calls["run_trial"] > 5 * COUNT
    assert error * 4**rate <= 1.01 * own_error * 4**own_rate


def test_bytes_do_not_depend_on_threads(experts):
    budget = Budget(bits_per_weight=4)
    files = [compressed(experts, f"{n}", budget=budget, threads=n)[0] for n in (1, 2, 5)]
    assert len({file.read_bytes() for file in files}) == 1


def test_a_bound_is_kept_by_each(experts):
    out, _, _ = compressed(experts, "bound", budget=Budget(min_snr=30))
    after = tensorcomp.load_file(out)
    for name, x in load_file(experts).items():
        assert np.linalg.norm(x - after[name]) <= 10**-1.5 * np.linalg.norm(x)


def test_what_is_not_alike_has_a_tree_of_its_own(experts):
    tensors = load_file(experts)
    *_, low_rank = tensors
    left = np.linalg.qr(tensors[low_rank])[0]
    tensors[low_rank] = 0.1 * left[:, :4] @ left[:4]
    save_file(tensors, experts)
    out, _, _ = compressed(experts, "odd", budget=Budget(bits_per_weight=4))
    with CompressedFile(out) as opened:
        records, trees = opened.manifest.tensors, opened.manifest.trees
    found = {name: trees[record.tree].tree.partition("(")[0] for name, record in records.items()}
    assert found.pop(low_rank) == "svd"
    assert set(found.values()) == {"trellis"}
