"""Records of pruned tensors that are not true, or damaged: all of them are found."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tampering import with_manifest

import tensorcomp
from tensorcomp.container.reader import CompressedFile
from tensorcomp.planning.budgets import Budget
from tensorcomp.pruning import Pruning

UP = "layers.0.mlp.up_proj.weight"


def written(folder: Path, budget: Budget | None = None) -> tuple[Path, Path]:
    """Return a checkpoint of one matrix, and its compressed file, half of it pruned."""
    random = np.random.default_rng(0)
    weights = (random.standard_t(5, (300, 100)) * 0.02).astype(np.float32)
    path = folder / "m.safetensors"
    save_file({UP: weights}, path)
    return path, tensorcomp.compress(path, prune=Pruning("magnitude", 0.5), budget=budget).path


def errors_of(path: Path, against: Path | None = None) -> list[str]:
    """Return what verification finds wrong."""
    return [check.error for check in tensorcomp.verify(path, against) if check.error]


Change = Callable[[dict[str, Any]], None]

FORGERIES: dict[str, tuple[Budget | None, Change, str]] = {
    "more pruned than there are zeros": (
        None,
        lambda record: record["pruned"].update(count=record["pruned"]["count"] + 1),
        "zeros",
    ),
    "fewer pruned than are gone": (
        None,
        lambda record: record["pruned"].update(count=record["pruned"]["count"] - 1),
        "lost",
    ),
    "another cost": (
        None,
        lambda record: record["pruned"].update(rel_l2=record["pruned"]["rel_l2"] * (1 - 1e-9)),
        "of its norm by pruning",
    ),
    "another error": (
        None,
        lambda record: record.update(error=[record["error"][0] * 1.001, record["error"][1]]),
        "and not by",
    ),
    "no error": (None, lambda record: record.pop("error"), "and not by 0"),
    "no pruning": (None, lambda record: record.pop("pruned"), "differs from the original"),
    "no pruning of a lossy one": (
        Budget(min_snr=30),
        lambda record: record.pop("pruned"),
        "is promised",
    ),
    "a bound that is not kept": (
        Budget(min_snr=30),
        lambda record: record.update(bound={"max_rel_l2": 0.0315}),
        "max_rel_l2 0.0315[0-9]+ at weights that were kept, 0.0315 is promised",
    ),
    "a largest error that is not kept": (
        Budget(max_abs_error=0.002),
        lambda record: record.update(bound={"max_abs_error": 0.0019}),
        "max_abs_error 0.0019.* at weights that were kept, 0.0019 is promised",
    ),
    "a largest error that hides kept weights among the pruned": (
        Budget(max_abs_error=0.002),
        lambda record: record["pruned"].update(count=10),
        "said to be pruned",
    ),
    "a higher cost": (
        Budget(min_snr=30),
        lambda record: record["pruned"].update(rel_l2=record["pruned"]["rel_l2"] * 1.001),
        "lost less by pruning",
    ),
    "a lower cost": (
        Budget(min_snr=30),
        lambda record: record["pruned"].update(rel_l2=record["pruned"]["rel_l2"] * 0.999),
        "at weights that were kept",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_record_that_is_not_true_is_found(tmp_path, forgery):
    budget, change, message = FORGERIES[forgery]
    path, done = written(tmp_path, budget)
    assert errors_of(done, path) == []

    def forge(value: dict[str, Any]) -> None:
        change(value["tensors"][UP])

    done.write_bytes(with_manifest(done.read_bytes(), forge))
    (error,) = errors_of(done, path)
    assert re.search(message, error), error


def test_too_few_zeros_are_found_without_the_original(tmp_path):
    _, done = written(tmp_path)

    def change(value: dict[str, Any]) -> None:
        value["tensors"][UP]["pruned"]["count"] += 1

    done.write_bytes(with_manifest(done.read_bytes(), change))
    (error,) = errors_of(done)
    assert "15,000 zeros; 15,001 of its elements are said to be pruned" in error


@pytest.mark.parametrize(
    "pruned",
    [
        {"score": "x", "granularity": "y", "count": 30_001, "rel_l2": 0.5},
        {"score": "x", "granularity": "y", "count": -1, "rel_l2": 0.5},
        {"score": "x", "granularity": "y", "count": 1, "rel_l2": 1.5},
        {"score": "x", "granularity": "y", "count": 1, "rel_l2": math.nan},
        {"score": 3, "granularity": "y", "count": 1, "rel_l2": 0.5},
        {"score": "x", "granularity": "y", "count": 1},
        [1],
    ],
)
def test_a_damaged_record_is_refused(tmp_path, pruned):
    _, done = written(tmp_path)

    def change(value: dict[str, Any]) -> None:
        value["tensors"][UP]["pruned"] = pruned

    done.write_bytes(with_manifest(done.read_bytes(), change))
    with pytest.raises(tensorcomp.errors.FormatError):
        CompressedFile(done)
