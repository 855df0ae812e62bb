import csv
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

STORAGES = ["dense", "bitmap", "gaps", "packed", "live", "entropy"]


@pytest.fixture
def pruned(tmp_path: Path) -> Path:
    """Return a file of two layers: one of 2 of 4, one with dead rows and columns."""
    random = np.random.default_rng(0)
    grouped = random.standard_normal((64, 80)).astype(np.float32)
    grouped.reshape(-1, 4)[:, 1::2] = 0
    dead = random.standard_normal((32, 64)).astype(np.float32)
    dead[::2] = 0
    dead[:, :8] = 0
    tensors = {
        "0.weight": grouped,
        "0.bias": np.zeros(64, np.float32),
        "1.weight": dead,
        "ids": np.zeros(9, np.int64),
    }
    path = tmp_path / "pruned.safetensors"
    save_file(tensors, path)
    return path


@pytest.fixture
def compressed_pruned(call, pruned):
    assert call("compress", pruned).status == 0
    return pruned.with_name("pruned.tc.safetensors")


def test_the_table(call, pruned):
    done = call.ok("sparsity", pruned)
    lines = done.stdout.splitlines()
    head = ["Tensor", "Shape", "Type", "Zeros", "Density", "Dead", "rows", "Dead", "columns"]
    storages = ["Dense", "Bitmap", "Gaps", "Packed", "Live", "Entropy"]
    assert lines[0].split() == [*head, *storages, "Pattern", "Best"]
    assert lines[1].split()[:7] == ["0.weight", "64×80", "F32", "2,560", "0.5000", "0", "40"]
    assert "2:4" in lines[1]
    assert lines[2].split()[:7] == ["1.weight", "32×64", "F32", "1,152", "0.4375", "16", "8"]
    assert [line.split()[-3] for line in lines[1:3]] == ["live", "entropy"]
    assert lines[3].split()[:4] == ["all", "listed", "3,712", "0.4821"]
    weights, zeros = 64 * 80 + 64 + 32 * 64, 2560 + 64 + 1152
    assert f"{pruned}: {weights:,} float weights, {zeros:,} of them zero" in lines[5]
    assert "do not make a matrix product faster" in lines[6]
    assert len(lines) == 7


def test_raw_and_compressed_say_the_same(call, pruned, compressed_pruned):
    tables = [call("sparsity", path).stdout.splitlines() for path in (pruned, compressed_pruned)]
    assert tables[0][:4] == tables[1][:4]


def test_json(call, compressed_pruned):
    done = call("sparsity", compressed_pruned, "--json", "--threads", 2)
    value = done.json
    assert set(value) == {
        *("elements", "zeros", "sparsity", "storages", "best_bytes"),
        *("seconds", "tensors"),
    }
    assert list(value["storages"]) == STORAGES
    assert value["storages"]["packed"] is None
    first, second = value["tensors"]
    assert first["pattern"] == [2, 4]
    assert second["pattern"] is None
    assert (second["dead_rows"], second["dead_columns"]) == (16, 8)
    for tensor in (first, second):
        assert set(tensor) == {
            *("name", "dtype", "shape", "zeros", "negative_zeros", "sparsity", "density"),
            *("dead_rows", "dead_columns", "bytes", "storages", "best"),
            "pattern",
        }
        assert tensor["storages"][tensor["best"]] == min(tensor["storages"].values())
        assert tensor["bytes"] == tensor["storages"]["entropy"]


def test_csv_and_markdown(call, pruned):
    rows = list(csv.DictReader(call("sparsity", pruned, "--csv").stdout.splitlines()))
    assert [row["name"] for row in rows] == ["0.weight", "1.weight", "all floats"]
    assert rows[0]["pattern"] == "2:4"
    assert rows[1]["density"] == "0.4375"
    assert rows[1]["packed"] == ""
    assert int(rows[2]["dense"]) == int(rows[0]["dense"]) + int(rows[1]["dense"])
    lines = call("sparsity", pruned, "--markdown").stdout.splitlines()
    assert lines[0].startswith("| Tensor | Shape | Type | Zeros |")
    assert lines[2].endswith("| live 8.56 kB |")
    assert call("sparsity", pruned, "--csv", "--json").status == 2


def test_all_tensors(call, pruned):
    lines = call("sparsity", pruned, "--all").stdout.splitlines()
    names = [line.split()[0] for line in lines[1:5]]
    assert sorted(names) == ["0.bias", "0.weight", "1.weight", "ids"]


def test_without_zeros(call, tmp_path):
    path = tmp_path / "dense.safetensors"
    save_file({"w": np.ones((4, 4), np.float32)}, path)
    lines = call("sparsity", path).stdout.splitlines()
    assert lines[0].startswith(f"{path}: 16 float weights, 0 of them zero: sparsity 0")
    assert call("sparsity", path, "--csv").stdout.count("\n") == 2


def test_keep_indices(call, pruned, tmp_path):
    out = tmp_path / "keep.json"
    assert call("sparsity", pruned, "--keep-indices", out).status == 0
    kept = json.loads(out.read_text())
    assert set(kept) == {"0.weight", "1.weight"}
    assert kept["1.weight"]["shape"] == [32, 64]
    assert kept["1.weight"]["kept_rows"] == list(range(1, 32, 2))
    assert kept["1.weight"]["kept_columns"] == list(range(8, 64))
    assert kept["0.weight"]["kept_rows"] == list(range(64))
    refused = call("sparsity", pruned, "--keep-indices", out)
    assert refused.status == 2
    assert "exists already" in refused.line
    assert call("sparsity", pruned, "--keep-indices", out, "--force").status == 0


def test_no_torch_is_imported(python, pruned):
    done = python(
        "import sys\n"
        "from tensorcomp_cli.main import main\n"
        "status = main(['sparsity', sys.argv[1]])\n"
        "assert status == 0 and 'torch' not in sys.modules\n",
        pruned,
    )
    assert done.status == 0, done.stderr
