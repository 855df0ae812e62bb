"""The example that trains on several processes, on ranks that are started fast."""

import importlib
import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import RanksFailed, run

EXAMPLES = str(Path(__file__).parents[3] / "examples")


def trained(*options):
    """Be one of the example's processes; return what it prints."""
    sys.path.insert(0, EXAMPLES)
    example = importlib.import_module("train_ddp")
    rank, world = dist.get_rank(), dist.get_world_size()
    parsed = example.parse(["--threads", "1", *map(str, options)])
    with redirect_stdout(io.StringIO()) as printed:
        example.work(parsed, rank, world, rank)
    return printed.getvalue()


def accuracies(printed):
    return [float(found) for found in re.findall(r"accuracy ([\d.]+)%", printed)]


def digest(printed):
    (found,) = re.findall(r"^parameters (\w+)$", printed, re.MULTILINE)
    return found


def test_two_ranks_learn_and_go_on_where_they_stopped(tmp_path):
    options = ("--epochs", 3, "--compressor", "dgc(0.01)", "--seed", 3)
    file = tmp_path / "saved.pt"
    through, silent = run(trained, *options, timeout=240)
    assert silent == ""
    assert accuracies(through)[-1] > 80
    assert "85,002 parameters, 2 processes" in through
    assert "× smaller" in through
    run(trained, *options, "--stop", 2, "--save", file, timeout=240)
    saved = torch.load(file, weights_only=True)
    assert (saved["epoch"], len(saved["residuals"])) == (2, 2)
    resumed, _ = run(trained, *options, "--resume", file, timeout=240)
    assert len(accuracies(resumed)) == 1
    assert digest(resumed) == digest(through)


def test_the_mean_of_residuals_goes_on_on_other_ranks(tmp_path):
    file = tmp_path / "saved.pt"
    options = ("--epochs", 2, "--batch", 64, "--save", file)
    run(trained, *options, "--stop", 1, "--residuals", "mean", timeout=240)
    (resumed,) = run(trained, *options, "--resume", file, world=1, timeout=240)
    assert len(accuracies(resumed)) == 1
    with pytest.raises(RanksFailed, match='save with mode="mean"'):
        run(trained, *options, "--resume", file, timeout=240)


def test_residuals_that_were_not_saved_are_missed(tmp_path):
    file = tmp_path / "saved.pt"
    options = ("--epochs", 2, "--batch", 64)
    run(trained, *options, "--stop", 1, "--compressor", "none", "--save", file, world=1)
    with pytest.raises(RanksFailed, match="it holds no residuals"):
        run(trained, *options, "--resume", file, world=1)


def test_metrics_are_written_for_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    options = ("--epochs", 1, "--batch", 128, "--optimizer", "adam", "--compressor", "int8")
    run(trained, *options, "--tensorboard", tmp_path / "log", world=1, timeout=240)
    (file,) = (tmp_path / "log").iterdir()
    assert b"gradients/bytes/payload" in file.read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ("transformer", "--batch", 1024, "--compressor", "per_role(topk(0.05))", "--lr", 0.01),
        ("resnet18", "--data", "digits", "--batch", 512, "--optimizer", "adamw"),
    ],
    ids=["transformer", "resnet18"],
)
def test_large_models_take_a_step(options):
    (printed,) = run(trained, "--epochs", 1, "--model", *options, world=1, timeout=240)
    assert len(accuracies(printed)) == 1
    assert re.search(r"steps: gradients [\d.]+ [kM]B, payloads [\d.]+ kB", printed)
