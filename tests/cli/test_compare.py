import csv
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

KEYS = {"input_bytes", "output_bytes", "ratio", "exact", "seconds", "total", "tensors"}
FIGURES = {"l1", "l2", "rel_l2", "worst_row_rel_l2", "max_abs_error", "snr_db", "cosine"}


@pytest.fixture
def other(tmp_path: Path, tensors: dict[str, np.ndarray]) -> Path:
    """Return a model whose floats differ a little from those of the first."""
    random = np.random.default_rng(5)
    changed = dict(tensors)
    name = "encoder.layer.0.attention.self.query.weight"
    noise = random.normal(0, 2e-4, tensors[name].shape).astype(np.float32)
    changed[name] = tensors[name] + noise
    path = tmp_path / "other.safetensors"
    save_file(changed, path)
    return path


def test_compare_with_the_compressed_file_is_exact(call, model, compressed):
    done = call.ok("compare", model, compressed)
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["Tensor", "Shape", "Type"]
    assert "exact" in lines[1]
    assert "6 tensors, 6 of them equal" in lines[-1]
    assert lines[-1].startswith(f"{model} and {compressed}: ")


def test_compare_shows_errors_and_ends_well(call, model, other):
    done = call.ok("compare", model, other)
    row = next(line for line in done.stdout.splitlines() if "query.weight" in line)
    assert "40." in row.split()[-2] or "39." in row.split()[-2]
    assert "all floats" in done.stdout
    assert "SNR" in done.stdout.splitlines()[-1]
    assert "6 tensors, 5 of them equal" in done.stdout.splitlines()[-1]


def test_compare_json(call, model, other, tensors):
    done = call.ok("compare", model, other, "--json", "--threads", 2)
    value = done.json
    assert set(value) == KEYS
    assert value["input_bytes"] == model.stat().st_size
    assert value["output_bytes"] == other.stat().st_size
    assert value["exact"] is False
    assert set(value["total"]) == FIGURES
    for tensor in value["tensors"]:
        assert set(tensor) == FIGURES | {"name", "a", "b", "ratio", "problem"}
        assert tensor["a"] == tensor["b"]
        assert tensor["a"]["shape"] == list(tensors[tensor["name"]].shape)
    by_name = {tensor["name"]: tensor for tensor in value["tensors"]}
    query = by_name["encoder.layer.0.attention.self.query.weight"]
    assert query["rel_l2"] == pytest.approx(0.01, rel=0.1)
    assert by_name["position_ids"]["snr_db"] is None


def test_compare_csv_and_markdown(call, model, other):
    rows = list(csv.DictReader(call("compare", model, other, "--csv").stdout.splitlines()))
    assert len(rows) == 7
    by_name = {row["tensor"]: row for row in rows}
    query = by_name["encoder.layer.0.attention.self.query.weight"]
    assert float(query["rel_l2"]) == pytest.approx(0.01, rel=0.1)
    assert (query["a_dtype"], query["a_shape"], query["a_bytes"]) == ("F32", "48×32", "6144")
    assert by_name["all floats"]["a_bytes"] == str(model.stat().st_size)
    lines = call("compare", model, other, "--markdown").stdout.splitlines()
    assert len(lines) == 2 + 7
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines)
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize("option", [[], ["--json"], ["--csv"], ["--markdown"]])
def test_missing_tensors_and_other_shapes_end_with_1(call, model, tmp_path, tensors, option):
    changed = dict(tensors)
    del changed["position_ids"]
    changed["scalar"] = np.zeros((1, 2), np.float32)
    changed["a\nb|c"] = np.zeros(3)
    path = tmp_path / "other.safetensors"
    save_file(changed, path)
    done = call("compare", model, path, *option)
    assert done.status == 1
    text = str(done.json) if option == ["--json"] else done.stdout
    assert "only in a" in text
    assert "shapes differ: [] and 1×2" in text
    assert "only in b" in text
    assert "(and 2 more)" in done.line
    if option == ["--markdown"]:
        assert "a\\nb\\|c: only in b" in done.stdout
    elif option != ["--json"]:
        assert "a\\nb|c" in done.stdout


def test_folders_name_their_files(call, folder):
    assert call("compress", folder).status == 0
    packed = folder.with_name("folder.tc")
    done = call("compare", folder, packed)
    assert done.status == 0
    assert done.stdout.splitlines()[0].startswith("File")
    value = json.loads(call("compare", folder, packed, "--json").stdout)
    assert value["exact"]
    assert {row["file"] for row in value["tensors"]} == {
        "model.safetensors",
        "text/model.safetensors",
    }


def test_wrong_usage_and_unreadable_inputs_end_with_2(call, model, tmp_path):
    both = call("compare", model, model, "--json", "--csv")
    assert both.status == 2
    assert "exclude each other" in both.line
    assert call("compare", model).status == 2
    missing = call("compare", model, tmp_path / "nothing")
    assert missing.status == 2
    assert "no such file" in missing.line


@pytest.mark.parametrize("width", [80, 120])
def test_a_narrow_terminal_keeps_the_figures(call, model, other, monkeypatch, width):
    from tensorcomp._tables import cells
    from tensorcomp_cli import command

    monkeypatch.setattr(command, "stdout_width", lambda: width)
    lines = call("compare", model, other).stdout.splitlines()
    table = lines[: lines.index("")]
    assert max(map(cells, table)) <= width
    assert all(word in table[0] for word in ("Ratio", "rel-L2", "Max error", "SNR dB", "Cosine"))
