import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tensorcomp.pipeline.strategies import strategies

KEYS = {
    "input",
    "input_bytes",
    "weights",
    "profile",
    "lossy_weights",
    "measured_weights",
    "lossless_bits_per_weight",
    "threads",
    "seconds",
    "limit",
    "tensor_limit",
    "strategies",
}
LABELS = [strategy.label for strategy in strategies() if strategy.available()]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Return a model of which one tensor may lose something."""
    random = np.random.default_rng(0)
    tensors = {
        "layer.0.attention.query.weight": random.normal(0, 0.02, (64, 96)).astype(np.float32),
        "layer.0.attention.query.bias": random.normal(0, 0.02, 64).astype(np.float32),
    }
    path = tmp_path / "model.safetensors"
    save_file(tensors, path)
    return path


def test_bench_prints_a_table(call, weights):
    done = call.ok("bench", weights)
    lines = done.stdout.splitlines()
    table = lines[: lines.index("")]
    assert len(table) == 1 + len(LABELS)
    assert all(line.startswith(label) for line, label in zip(table[1:], LABELS, strict=True))
    assert "measured on all 6,144 weights" in done.stdout
    assert "Gap: bits above R(D) = " in done.stdout
    assert lines[-1].startswith("Measured in ")


def test_bench_json_with_a_tree_of_ones_own(call, weights):
    tree = "affine(5, 32)"
    done = call.ok("bench", weights, "--json", "--all", "--codec", tree)
    value = done.json
    assert set(value) == KEYS
    assert value["input_bytes"] == weights.stat().st_size
    assert value["measured_weights"] == value["lossy_weights"] == 64 * 96
    found = value["strategies"]
    assert [row["strategy"] for row in found] == [*LABELS, tree]
    assert found[-1]["tree"] == tree
    assert 5 < found[-1]["bits_per_weight"] < 7
    assert found[0]["snr_db"] is None


def test_bench_csv_and_markdown(call, weights):
    rows = list(csv.DictReader(call("bench", weights, "--csv").stdout.splitlines()))
    assert [row["strategy"] for row in rows] == LABELS
    lines = call("bench", weights, "--markdown").stdout.splitlines()
    table = lines[: lines.index("")]
    assert len(table) == 2 + len(LABELS)
    assert len({line.count("|") for line in table}) == 1


def test_bench_draws_a_plot(call, weights, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "rates.png"
    done = call.ok("bench", weights, "--plot", plot)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert done.stdout.splitlines()[-1].endswith(f"drawn as {plot}")
    call.refused("exists already", "bench", weights, "--plot", plot)
    assert [file.name for file in tmp_path.iterdir()].count("rates.png") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--json", "--csv"), "--json, --csv and --markdown exclude each other"),
        (("--plot", "x.jpg"), "ends in one of .png, .svg, .pdf"),
        (("--codec", "nonesuch(1)"), "nonesuch"),
        (("--profile", "nonesuch"), "got 'nonesuch'"),
        (("--threads", "0"), "--threads"),
    ],
)
def test_bench_refuses_wrong_usage(call, weights, arguments, line):
    done = call("bench", weights, *arguments)
    assert done.status == 2
    assert line in done.line
    assert done.stdout == ""


def test_bench_says_how_to_install_what_draws(call, weights, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    call.refused(
        "pip install 'tensorcomp[plot]'", "bench", weights, "--plot", tmp_path / "rates.png"
    )


def test_bench_needs_an_original_with_something_to_lose(call, model, compressed, tmp_path):
    call.refused("compressed it already", "bench", compressed)
    call.refused("no tensor may lose anything", "bench", model)
    call.refused("none.safetensors", "bench", tmp_path / "none.safetensors")
