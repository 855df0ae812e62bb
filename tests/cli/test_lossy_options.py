"""The options that say what may be lost, and the verb plan."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

QUERY = "encoder.layer.0.attention.self.query.weight"
MLP = "encoder.layer.0.intermediate.dense.weight"
PROFILE = """
summary = "mine"
[budget]
min_snr = 25
[[candidates]]
roles = ["all"]
trees = ["uniform($step)"]
"""


def weights(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_t(5, shape) * 0.02).astype(np.float32)


@pytest.fixture
def lossy_tensors() -> dict[str, np.ndarray]:
    return {
        QUERY: weights(0, 100, 80),
        MLP: weights(1, 300, 100),
        "encoder.layer.0.attention.self.query.bias": weights(2, 100),
        "encoder.norm.weight": np.ones(5000, np.float32),
        "position_ids": np.arange(64),
    }


@pytest.fixture
def path(tmp_path: Path, lossy_tensors: dict[str, np.ndarray]) -> Path:
    found = tmp_path / "model.safetensors"
    save_file(lossy_tensors, found)
    return found


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.tc.safetensors"


@pytest.mark.parametrize(
    ("options", "most"),
    [
        (["--max-rel-l2", "0.02"], 0.02),
        (["--min-snr", "30"], 10**-1.5),
        (["--min-snr", "30", "--effort", "fast"], 10**-1.5),
        (["--min-snr", "30", "--effort", "max"], 10**-1.5),
        (["--profile", "cnn", "--min-snr", "30"], 10**-1.5),
        (["--profile", "mlp", "--max-rel-l2", "0.2"], 0.2),
    ],
)
def test_relative_bounds(call, path, out, options, most):
    done = call.ok("compress", path, "-o", out, *options, "--json")
    tensors = done.tensors
    for name in (QUERY, MLP):
        tensor = tensors[name]
        assert 0.9 * most < tensor["rel_l2"] <= most
        assert tensor["snr_db"] == -20 * math.log10(tensor["rel_l2"])
        assert tensor["max_abs_error"] > 0
    for name in set(tensors) - {QUERY, MLP}:
        assert (tensors[name]["rel_l2"], tensors[name]["snr_db"]) == (0, None)
    assert call("verify", out, "--against", path).status == 0
    assert call("inspect", out, "--json").tensors == tensors


def test_absolute_bounds(call, path, out, lossy_tensors):
    done = call("compress", path, "-o", out, "--max-abs-error", "0.004", "--json")
    tensors = done.tensors
    assert 0.002 < tensors[MLP]["max_abs_error"] <= 0.004
    back = out.with_name("back.safetensors")
    assert call("decompress", out, "-o", back).status == 0
    from safetensors.numpy import load_file

    for name, array in load_file(back).items():
        assert np.abs(array - lossy_tensors[name]).max() <= 0.004


@pytest.mark.parametrize(
    ("options", "most"),
    [
        (["--bits-per-weight", "6"], 6 * 43_164 // 8),
        (["--target-size", "30kB"], 30_000),
        (["--target-size", "32.5 KiB"], 33_280),
        (["--target-size", "30000"], 30_000),
        (["--bits-per-weight", "6", "--profile", "transformer", "--effort", "max"], 32_373),
    ],
)
def test_sizes(call, path, out, options, most):
    call.ok("compress", path, "-o", out, *options)
    assert 0.98 * most <= out.stat().st_size <= most
    assert call("verify", out, "--against", path).status == 0


def test_ratios(call, path, out):
    done = call("compress", path, "-o", out, "--target-ratio", "5", "--json")
    value = done.json
    assert 5 <= value["ratio"] <= 5.1


def test_what_is_printed_tells_the_error(call, path, out):
    done = call("compress", path, "-o", out, "--min-snr", "30")
    assert "SNR of each tensor ≥ 30.0 dB" in done.stdout.splitlines()[1]
    lines = call("inspect", out).stdout.splitlines()
    head = lines[0].split()
    assert head[:10] == [*head[:7], "SNR", "dB", "Gap"]
    row = next(line for line in lines if line.startswith(MLP)).split()
    assert 30 <= float(row[8]) < 30.1
    assert -1 < float(row[9]) < 1


def test_a_profile_of_ones_own(call, path, out, tmp_path):
    profile = tmp_path / "mine.toml"
    profile.write_text(PROFILE)
    done = call("compress", path, "-o", out, "--profile", profile, "--json")
    tensors = done.tensors
    assert 25 <= tensors[MLP]["snr_db"] < 25.5
    assert tensors[MLP]["codec"].startswith("uniform")
    profile.write_text(PROFILE.replace("uniform($step)", "unifrom($step)"))
    line = call.refused("mine.toml", "compress", path, "-o", out, "--force", "--profile", profile)
    assert "unifrom" in line


@pytest.mark.parametrize(
    ("rules", "codecs"),
    [
        (["linear=affine(4, 50)"], {QUERY: "affine", MLP: "affine"}),
        (["attention=kmeans(16, codes=huffman)"], {QUERY: "kmeans"}),
        (["affine(8)"], {QUERY: "affine", MLP: "affine"}),
        (["mlp=magnitude(0.9, values=kmeans(16, codes=huffman), mask=gaps)"], {MLP: "magnitude"}),
        (["*.dense.weight=nf4", "all=uniform(0.01)"], {QUERY: "uniform", MLP: "nf4"}),
        ([f"{QUERY}=svd(0.25, left=affine(8), right=affine(8))"], {QUERY: "svd"}),
        (["encoder.norm.weight=uniform(0.3)"], {"encoder.norm.weight": "uniform"}),
        (["mlp=affine(4, 100, codes=bitpack(bytes=zstd))"], {MLP: "affine"}),
    ],
)
def test_trees_of_ones_own(call, path, out, rules, codecs):
    options = [option for rule in rules for option in ("--codec", rule)]
    done = call.ok("compress", path, "-o", out, *options, "--json")
    lossless = {
        *("raw", "floats", "groupfloats", "constant", "bitpack", "huffman", "grid", "palette"),
        "runlength",
    }
    found = {name: tensor["codec"].split("(")[0] for name, tensor in done.tensors.items()}
    assert {name: codec for name, codec in found.items() if codec not in lossless} == codecs
    assert call("verify", out, "--against", path).status == 0


def test_a_tree_and_a_budget(call, path, out):
    asked = ["--codec", "linear=uniform($step)", "--min-snr", "40"]
    tensors = call("compress", path, "-o", out, *asked, "--json").tensors
    assert 40 <= tensors[MLP]["snr_db"] < 40.2
    asked = ["--codec", "linear=affine(2)", "--min-snr", "40", "--force"]
    tensors = call("compress", path, "-o", out, *asked, "--json").tensors
    assert tensors[MLP]["snr_db"] is None  # lossless, since two bits cannot
    assert "affine keeps" in call("inspect", out).stdout


def test_importance(call, path, out, tmp_path):
    importance = tmp_path / "importance.safetensors"
    save_file({QUERY: np.full(3, 16, np.float32), MLP: np.ones(1, np.float32)}, importance)
    asked = ["--bits-per-weight", "6", "--importance", importance]
    tensors = call("compress", path, "-o", out, *asked, "--json").tensors
    assert tensors[QUERY]["snr_db"] > tensors[MLP]["snr_db"] + 10
    save_file({MLP: np.ones(1, np.float32)}, importance)
    call.refused(QUERY, "compress", path, "-o", out, "--force", *asked)


def plan_of(call, path, *options) -> dict[str, Any]:
    return json.loads(call.ok("plan", path, *options, "--json").stdout, parse_constant=pytest.fail)


def test_plan_shows_what_would_be_done(call, path, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = call.ok("plan", path, "--bits-per-weight", "6")
    lines = done.stdout.splitlines()
    assert lines[0].split()[:6] == ["Tensor", "Shape", "Type", "Role", "Bytes", "Bits"]
    assert len(lines) == 5 + 3
    assert "trellis" in next(line for line in lines if line.startswith(MLP))
    assert "norm is protected" in next(line for line in lines if "norm" in line)
    assert lines[-1].startswith(f"{path}: 5 tensors")
    assert "6 bits per weight" in lines[-1]
    assert sorted(tmp_path.iterdir()) == before


def test_plan_without_a_budget_is_lossless(call, path):
    value = plan_of(call, path)
    assert value["budget"] == {}
    assert {tensor["tree"] for tensor in value["tensors"].values()} == {"lossless"}
    assert "bits per weight" in call("plan", path).stdout.splitlines()[-1]


def test_plan_json_is_the_plan_file(call, path, tmp_path):
    saved = tmp_path / "plan.json"
    done = call("plan", path, "--min-snr", "30", "-o", saved)
    assert done.status == 0
    assert f"saved as {saved}" in done.stdout
    value = json.loads(saved.read_text())
    assert value == plan_of(call, path, "--min-snr", "30")
    assert set(value) == {"tensorcomp_plan", "effort", "budget", "tensors"}
    assert value["budget"] == {"min_snr": 30}
    tensor = value["tensors"][MLP]
    assert set(tensor) == {
        *("role", "shape", "dtype", "predicted_bytes", "tree", "bound"),
        *("predicted_rel_l2", "why", "tree_crc"),
    }
    assert tensor["bound"] == {"max_rel_l2": 10**-1.5}
    assert tensor["role"] == "mlp"
    again = call("plan", path, "--min-snr", "30", "-o", saved)
    assert again.status == 2
    assert "--force" in again.line
    assert call("plan", path, "--min-snr", "20", "-o", saved, "--force").status == 0
    assert json.loads(saved.read_text())["budget"] == {"min_snr": 20}


def test_a_plan_that_is_edited_is_obeyed(call, path, out, tmp_path):
    saved = tmp_path / "plan.json"
    assert call("plan", path, "--bits-per-weight", "8", "-o", saved).status == 0
    value = json.loads(saved.read_text())
    value["tensors"][QUERY]["tree"] = "affine(4, 40)"
    value["tensors"][MLP]["bound"] = {"max_rel_l2": 0.01}
    saved.write_text(json.dumps(value))
    done = call.ok("compress", path, "-o", out, "--plan", saved, "--json")
    tensors = done.tensors
    assert tensors[QUERY]["codec"].startswith("affine(group=40")
    assert 0 < tensors[MLP]["rel_l2"] <= 0.01
    assert out.stat().st_size <= 43_164
    assert call("verify", out, "--against", path).status == 0


def test_a_plan_with_faults_is_refused_with_the_list(call, path, out, tmp_path):
    saved = tmp_path / "plan.json"
    assert call("plan", path, "--min-snr", "30", "-o", saved).status == 0
    good = json.loads(saved.read_text())
    faults = [
        ({QUERY: None, "more": good["tensors"][MLP]}, ("more", QUERY)),
        ({QUERY: {"tree": "unifrom(1)"}, MLP: {"tree": "trelis(1)"}}, ("unifrom", "trelis")),
        ({QUERY: {**good["tensors"][QUERY], "role": "atention"}}, ("atention",)),
    ]
    for changes, words in faults:
        tensors = {**good["tensors"], **changes}
        value = {**good, "tensors": {name: t for name, t in tensors.items() if t is not None}}
        saved.write_text(json.dumps(value))
        done = call("compress", path, "-o", out, "--plan", saved)
        assert (done.status, done.stdout) == (2, "")
        for word in words:
            assert word in done.line
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--min-snr", "30", "--bits-per-weight", "4"], "one limit"),
        (["--min-snr", "30", "--max-rel-l2", "0.1"], "one limit"),
        (["--min-snr", "loud"], "--min-snr"),
        (["--max-rel-l2", "0"], "above 0"),
        (["--max-abs-error", "-1"], "above 0"),
        (["--bits-per-weight", "nan"], "--bits-per-weight to be a finite number"),
        (["--target-size", "huge"], "700MB"),
        (["--target-size", "0"], "above 0"),
        (["--target-size", "-5"], "700MB"),
        (["--profile", "transfromer"], "a profile of lossless, transformer"),
        (["--profile", "none.toml"], "none.toml"),
        (["--profile", "lossless", "--min-snr", "30"], "expected no budget"),
        (["--codec", "linear=unifrom(0.1)"], "unifrom"),
        (["--codec", "linear="], "SELECTOR=TREE"),
        (["--codec", ""], "SELECTOR=TREE"),
        (["--codec", "linear=uniform($step)"], "expected a budget"),
        (["--codec", "nowhere.*=raw"], "expected rules that select a tensor, got 'nowhere.*'"),
        (["--codec", "conv=raw"], "expected rules that select a tensor, got 'conv'"),
        (["--target-size", "500"], "is not possible; the smallest one takes about"),
        (["--target-ratio", "1000"], "a ratio of"),
        (["--bits-per-weight", "0.01"], "bits per weight"),
        (["--importance", "x.safetensors"], "bits per weight"),
        (["--importance", "x.safetensors", "--target-ratio", "3"], "x.safetensors"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(call, path, out, tmp_path, options, words):
    before = sorted(tmp_path.iterdir())
    for verb in ("compress", "plan"):
        call.refused(words, verb, path, "-o", out, *options)
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "options",
    [["--profile", "cnn"], ["--min-snr", "3"], ["--codec", "raw"], ["--target-size", "9"]],
)
def test_a_plan_stands_alone(call, path, out, tmp_path, options):
    call.refused(
        "beside a plan", "compress", path, "-o", out, "--plan", tmp_path / "none.json", *options
    )
    call.refused(
        "none.json: cannot be read: No such file",
        "compress",
        path,
        "-o",
        out,
        "--plan",
        tmp_path / "none.json",
    )


@pytest.mark.parametrize("options", [["--target-ratio", "1000"], ["--bits-per-weight", "0.01"]])
def test_the_nearest_possible_size_is_possible(call, path, out, options):
    words = call("compress", path, "-o", out, *options).line.replace(",", "").split()
    number = words[-1] if options[0] == "--target-ratio" else words[-4]
    call.ok("compress", path, "-o", out, options[0], number)


def test_folders(call, tmp_path, lossy_tensors):
    folder = tmp_path / "folder"
    (folder / "second").mkdir(parents=True)
    save_file(lossy_tensors, folder / "model.safetensors")
    save_file({**lossy_tensors, MLP: weights(9, 90, 100)}, folder / "second" / "model.safetensors")
    done = call("plan", folder, "--bits-per-weight", "6", "-o", tmp_path / "plan.json")
    assert done.status == 0
    assert f"second/model.safetensors:{MLP}" in done.stdout
    for options in (["--bits-per-weight", "6"], ["--plan", tmp_path / "plan.json"]):
        done = call.ok("compress", folder, *options, "--force", "--json")
        assert 5.8 <= done.json["bits_per_weight"] <= 6
        assert call("verify", tmp_path / "folder.tc", "--against", folder).status == 0


def test_a_narrow_terminal_gets_a_narrow_table(path, monkeypatch):
    from tensorcomp.api.plan import plan
    from tensorcomp.planning.budgets import Budget

    forecast = plan(path, budget=Budget(min_snr=30))
    lines = forecast.table().lines(80)
    assert max(map(len, lines)) <= 80
    assert len(lines) >= 6


def test_verify_calls_a_lossy_file_not_equal_to_its_original(call, path, out):
    for options, relation in ((("--min-snr", "20"), "within its errors of"), ((), "equal to")):
        call("compress", path, "-o", out, "--force", *options)
        assert f"is sound and {relation} {path}" in call("verify", out, "--against", path).stdout


def test_a_size_out_of_reach_names_the_option_that_frees_tensors(call, tmp_path):
    path = tmp_path / "trained.safetensors"
    moments = {"state.0.exp_avg": weights(1, 256, 256), "state.1.exp_avg": weights(2, 256, 256)}
    save_file({MLP: weights(0, 256, 256), **moments}, path)
    hint = "by a tree of their own, --codec 'moment=$quantizer'"
    call.refused(hint, "compress", path, "--bits-per-weight", 4)
