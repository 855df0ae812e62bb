"""The options that say what is pruned: what they do, what is told of it, what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tensorcomp
from tensorcomp.pruning import Statistics

MLP = "layers.0.mlp.up_proj.weight"
QUERY = "layers.0.self_attn.q_proj.weight"


def weights(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_t(5, shape) * 0.02).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensors = {MLP: weights(0, 100, 60), QUERY: weights(1, 60, 60), "norm.weight": weights(2, 60)}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    return tmp_path / "model.safetensors"


def test_the_summary_says_how_much_is_pruned_and_what_that_costs(call, path):
    done = call.ok("compress", path, "--prune", "magnitude", "--sparsity", 0.75)
    line = done.stdout.splitlines()[2]
    assert line.startswith("pruned (magnitude, element): 7,200 of 9,600 weights, 75.00 %, which ")
    assert "leaves each tensor an SNR ≥ " in line
    out = path.with_name("model.tc.safetensors")
    inspected = call("inspect", out)
    assert inspected.stdout.splitlines()[-1] == line
    head, *rows = inspected.stdout.splitlines()[:4]
    assert " Pruned " in head
    assert sum(" %  " in row for row in rows) == 2
    checked = call("verify", out, "--against", path)
    assert checked.status == 0
    assert "within its errors of" in checked.stdout


def test_json_has_counts_of_all_and_of_each(call, path):
    done = call("compress", path, "--prune", "magnitude", "--sparsity", 0.75, "--json").json
    whole = done["pruned"]
    assert (whole["count"], whole["weights"], whole["sparsity"]) == (7200, 9600, 0.75)
    assert (whole["scores"], whole["granularities"]) == (["magnitude"], ["element"])
    by_name = {tensor["name"]: tensor for tensor in done["tensors"]}
    assert "pruned" not in by_name["norm.weight"]
    before = load_file(path)
    loaded = tensorcomp.load_file(path.with_name("model.tc.safetensors"))
    for name in (MLP, QUERY):
        found = by_name[name]["pruned"]
        assert found["count"] == np.count_nonzero(loaded[name] == 0)
        assert found["sparsity"] == found["count"] / before[name].size
        cost = np.linalg.norm(before[name] - loaded[name]) / np.linalg.norm(before[name])
        assert found["rel_l2"] == pytest.approx(cost, rel=1e-5)
        assert by_name[name]["rel_l2"] == pytest.approx(cost, rel=1e-5)
    assert whole["worst_rel_l2"] == max(by_name[name]["pruned"]["rel_l2"] for name in (MLP, QUERY))
    plain = call("compress", path, "--json", "--force").json
    assert "pruned" not in plain


@pytest.mark.parametrize(
    "budget", [[], ["--min-snr", 30], ["--min-snr", 70], ["--bits-per-weight", 9]]
)
def test_what_is_left_has_an_error_of_its_own(call, path, budget):
    out = path.with_name("model.tc.safetensors")
    done = call("compress", path, "--prune", "magnitude", "--sparsity", 0.5, *budget)
    assert done.status == 0
    line = done.stdout.splitlines()[2]
    assert call("inspect", out).stdout.splitlines()[-1] == line
    told = call("inspect", out, "--json").json["pruned"]["kept_snr_db"]
    if not budget:
        assert told is None
        assert line.endswith(" dB")
        assert "left have" not in line
        return
    before, after = load_file(path), tensorcomp.load_file(out)
    names = [MLP, QUERY]
    magnitudes = np.concatenate([np.abs(before[name]).reshape(-1) for name in names])
    kept = magnitudes > np.sort(magnitudes)[magnitudes.size // 2 - 1]
    parts = np.split(kept, [before[MLP].size])
    found = []
    for name, mask in zip(names, parts, strict=True):
        x, y = (each[name].reshape(-1)[mask].astype(np.float64) for each in (before, after))
        if (x != y).any():
            found.append(20 * np.log10(np.linalg.norm(x) / np.linalg.norm(x - y)))
    assert told <= min(found) + 1e-6
    if budget[0] == "--min-snr":
        assert told >= budget[1] - 1e-6
        assert line.endswith(f"; the weights that are left have one ≥ {budget[1]}.0 dB")
    else:
        assert told == pytest.approx(min(found), abs=0.1)


@pytest.mark.parametrize(
    ("options", "zeros"),
    [
        (["--prune", "magnitude", "--sparsity", "0.5", "--scope", "tensor"], (3000, 1800)),
        (["--prune", "random(7)", "--sparsity", "0.5", "--scope", "row"], (3000, 1800)),
        (["--prune", "magnitude", "--granularity", "nm(2, 4)"], (3000, 1800)),
        (["--prune", "magnitude", "--sparsity", "0.5", "--prune-where", "attention"], (0, 1800)),
        (["--prune", "magnitude", "--sparsity", "0.5", "--prune-where", "*mlp*"], (3000, 0)),
        (
            [
                "--prune",
                "lamp",
                "--sparsity",
                "0.5",
                "--prune-where",
                "mlp",
                "--prune-where",
                QUERY,
            ],
            None,
        ),
        (["--prune", "magnitude", "--sparsity", "1", "--density-floor", "0"], (6000, 3600)),
    ],
)
def test_options_reach_the_selection(call, path, options, zeros):
    call.ok("compress", path, *options)
    loaded = tensorcomp.load_file(path.with_name("model.tc.safetensors"))
    found = tuple(np.count_nonzero(loaded[name] == 0) for name in (MLP, QUERY))
    assert sum(found) == 4800 if zeros is None else found == zeros
    assert loaded["norm.weight"].all()


def test_a_statistics_file_of_scores(call, path):
    stats = path.with_name("stats.safetensors")
    ranks = {
        MLP: np.arange(6000, dtype=np.float32).reshape(100, 60),
        QUERY: np.arange(3600, dtype=np.float32).reshape(60, 60) + 6000,
    }
    Statistics({"snip": ranks}, 1, 1).save(stats)
    options = ("--prune", "snip", "--sparsity", 0.25, "--stats", stats)
    assert call("compress", path, *options).status == 0
    loaded = tensorcomp.load_file(path.with_name("model.tc.safetensors"))
    assert np.count_nonzero(loaded[MLP].reshape(-1)[:2400]) == 0
    assert np.count_nonzero(loaded[MLP].reshape(-1)[2400:]) == 3600
    assert loaded[QUERY].all()


def test_other_targets(call, path):
    done = call("compress", path, "--prune", "magnitude", "--prune-max-rel-l2", 0.1, "--json")
    shares = [t["pruned"]["rel_l2"] for t in done.json["tensors"] if "pruned" in t]
    assert all(0.09 < share <= 0.1 for share in shares)
    options = ("--prune", "magnitude", "--prune-target-size", "10kB", "--force", "--json")
    assert call("compress", path, *options).json["output_bytes"] <= 10_000


def test_plan_takes_the_same_options(call, path, tmp_path):
    options = ("--prune", "magnitude", "--sparsity", 0.9, "--min-snr", 30)
    planned = call("plan", path, *options, "-o", tmp_path / "plan.json")
    assert (planned.status, planned.stderr) == (0, "")
    head, *rows = planned.stdout.splitlines()
    assert " Pruned  Tree " in head
    assert rows[-1].startswith("pruned (magnitude, element): 8,640 of 9,600 weights, 90.00 %; ")
    value = json.loads((tmp_path / "plan.json").read_text())
    assert value["pruned"] == "magnitude, element"
    counts = {name: entry.get("pruned") for name, entry in value["tensors"].items()}
    assert counts["norm.weight"] is None
    assert counts[MLP] + counts[QUERY] == 8640
    forgotten = call("compress", path, "--plan", tmp_path / "plan.json")
    assert (forgotten.status, forgotten.stdout) == (2, "")
    assert "pruned first, by 'magnitude, element'" in forgotten.line
    assert not path.with_name("model.tc.safetensors").exists()
    call.ok("compress", path, "--plan", tmp_path / "plan.json", *options[:4])
    assert call("verify", path.with_name("model.tc.safetensors"), "--against", path).status == 0
    plain = call("plan", path)
    assert "runed" not in plain.stdout
    refused = call("plan", path, "--prune", "magnitude", "--prune-target-size", "10kB")
    assert refused.status == 2
    assert "plan for a sparsity" in refused.line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sparsity", "0.5"], "--sparsity says how to prune: give --prune SCORE"),
        (["--stats", "x"], "expected a budget or trees beside statistics, got none; give one"),
        (["--prune-where", "mlp"], "--prune-where says how to prune"),
        (
            ["--prune", "magnitude"],
            "give --sparsity, --prune-max-rel-l2 or --prune-target-size; see",
        ),
        (["--prune", "magnitude", "--max-rel-l2", "0.1"], "how much is to be pruned is not said"),
        (
            ["--prune", "magnitude", "--sparsity", "0.5", "--prune-max-rel-l2", "0.1"],
            "one target; got --sparsity and --prune-max-rel-l2",
        ),
        (["--prune", "magnitude", "--sparsity", "1.5"], "a number from 0 to 1, got 1.5"),
        (["--prune", "magnitude", "--sparsity", "nan"], "a number from 0 to 1, got nan"),
        (["--prune", "magnitude", "--sparsity", "1"], "cannot be pruned"),
        (["--prune", "wild", "--sparsity", "0.5"], "no score is called 'wild'"),
        (["--prune", "random(a)", "--sparsity", "0.5"], "got 'a' at character 7 of the score"),
        (["--prune", "snip", "--sparsity", "0.5"], "needs the statistic 'snip'"),
        (["--prune", "obd", "--sparsity", "0.5"], "Adam's state"),
        (["--prune", "snip", "--sparsity", "0.5", "--stats", "absent"], "no such file"),
        (["--prune", "magnitude", "--sparsity", "0.5", "--granularity", "x"], "no granularity"),
        (["--prune", "magnitude", "--granularity", "nm(2, 7)"], "7 does not divide"),
        (
            ["--prune", "magnitude", "--sparsity", "0.5", "--prune-where", "x"],
            "--prune-where 'x' selects no",
        ),
        (["--prune", "magnitude", "--sparsity", "0.5", "--scope", "wide"], "--scope"),
        (
            ["--prune", "magnitude", "--prune-target-size", "some"],
            "'some'; expected a size such as 700MB",
        ),
        (["--prune", "magnitude", "--prune-target-size", "1kB"], "1,000"),
        (
            ["--prune", "magnitude", "--prune-target-size", "9kB", "--bits-per-weight", "3"],
            "give one of them",
        ),
    ],
)
def test_what_cannot_be_is_one_line_and_writes_nothing(call, path, options, message):
    call.refused(message, "compress", path, *options)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_messages_name_the_option_that_chooses_tensors(call, tmp_path):
    path = tmp_path / "vectors.safetensors"
    save_file({"norm.bias": np.ones(8, np.float32)}, path)
    done = call("compress", path, "--prune", "magnitude", "--sparsity", "0.5")
    assert "no matrix or kernel of a layer; say what is by --prune-where" in done.line


def test_neither_compress_nor_inspect_imports_torch(python, path):
    code = """
import sys
from tensorcomp_cli.main import main
assert main(["compress", sys.argv[1], "--prune", "magnitude", "--sparsity", "0.5"]) == 0
assert main(["inspect", sys.argv[1].replace(".safe", ".tc.safe")]) == 0
assert "torch" not in sys.modules
"""
    done = python(code, path)
    assert done.status == 0, done.stderr


def test_what_is_left_unpruned_is_listed_with_its_cause(call, path):
    odd = weights(3, 100, 27)
    save_file({**load_file(path), "layers.0.mlp.odd.weight": odd}, path, {"format": "pt"})
    out = path.with_name("model.tc.safetensors")
    stats = path.with_name("stats.safetensors")
    norms = {MLP: np.ones(60, np.float32), "layers.0.mlp.odd.weight": np.ones(27, np.float32)}
    Statistics({"input_norm": norms}, 1, 1, (QUERY,)).save(stats)
    options = ("--prune", "wanda", "--stats", stats, "--granularity", "nm(2, 4)")
    why = {
        QUERY: "no sample of the calibration reaches it",
        "layers.0.mlp.odd.weight": "nm(keep=2, group=4): 'layers.0.mlp.odd.weight' of shape "
        "[100, 27] has 27 elements along the axis, which 4 does not divide",
    }
    lines = [f"not pruned: '{name}': {reason}" for name, reason in why.items()]
    done = call.ok("compress", path, *options)
    assert sorted(done.stdout.splitlines()[3:5]) == sorted(lines)
    loaded, before = tensorcomp.load_file(out), load_file(path)
    assert (loaded[MLP] == 0).mean() == 0.5
    assert all(np.array_equal(loaded[name], before[name]) for name in why)
    assert call("verify", out, "--against", path).status == 0
    rows = call("compress", path, *options, "--force", "--json").json["tensors"]
    assert {row["name"]: row["unpruned"] for row in rows if "unpruned" in row} == why
    planned = call("plan", path, *options)
    assert sorted(planned.stdout.splitlines()[-2:]) == sorted(lines)
    tensors = json.loads(call("plan", path, *options, "--json").stdout)["tensors"]
    assert {name: row["unpruned"] for name, row in tensors.items() if "unpruned" in row} == why
    prune = tensorcomp.Pruning("wanda", stats=stats, granularity="nm(2, 4)")
    result = tensorcomp.compress(path, out, prune=prune, force=True)
    assert {row.name: row.unpruned for row in result.summary.tensors if row.unpruned} == why
