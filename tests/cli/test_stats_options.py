"""Quantizing by what calibrate measured: options, what is told, what is refused."""

import json
import re

import numpy as np
import pytest
from calibrated_checkpoints import (
    DOWN,
    GATE,
    HEAD,
    MEASURED,
    UNUSED,
    UP,
    statistics,
    tensors,
    write_model,
    write_statistics,
)
from checkpoint_files import write_safetensors

from tensorcomp.planning.statistics import Statistics


@pytest.fixture
def path(tmp_path):
    return write_model(tmp_path / "model.safetensors")


@pytest.fixture
def stats(tmp_path):
    return write_statistics(tmp_path / "stats.safetensors")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.tc.safetensors"


def changed(name, statistic, change):
    """Return the statistics with one array changed."""
    arrays = {key: dict(found) for key, found in statistics().arrays.items()}
    arrays[statistic][name] = change(arrays[statistic][name].copy())
    known = statistics()
    return Statistics(arrays, 1, 256, positions=known.positions, transposed=known.transposed)


def test_each_measured_tensor_keeps_its_output_error(call, path, stats, out):
    done = call.ok("compress", path, "-o", out, "--stats", stats, "--max-output-error", "0.05")
    assert f"no statistics of 1 tensor: '{UNUSED}'" in done.stdout
    assert ", output error ≤ 0.0" in done.stdout
    rows = call.ok("inspect", out, "--json").tensors
    for name in MEASURED:
        assert 0.045 < rows[name]["output_error"] <= 0.05
        assert rows[name]["rel_l2"] > rows[name]["output_error"]
    exact = set(rows) - set(MEASURED)
    assert all("output_error" not in rows[name] and rows[name]["rel_l2"] == 0 for name in exact)
    table = call.ok("inspect", out).stdout
    assert "Output" in table.splitlines()[0]
    assert f"no statistics of 1 tensor: '{UNUSED}'" in table


def test_a_size_is_spread_by_statistics(call, path, stats, out):
    call.ok("compress", path, "-o", out, "--stats", stats, "--bits-per-weight", "3")
    rows = call.ok("inspect", out, "--json").tensors
    assert all(rows[name]["codec"].startswith("scales(") for name in MEASURED[:-1])
    assert all(rows[name]["output_error"] > 0 for name in MEASURED)
    assert "no statistics of it" in call.ok("inspect", out).stdout
    assert rows[UNUSED]["rel_l2"] > 0
    by_statistics = out.read_bytes()
    call.ok("compress", path, "-o", out, "--bits-per-weight", "3", "--force")
    plain = call.ok("inspect", out, "--json")
    assert all("output_error" not in row for row in plain.tensors.values())
    assert "Output" not in call.ok("inspect", out).stdout
    call.ok("compress", path, "-o", out, "--stats", stats, "--bits-per-weight", "3", "--force")
    assert out.read_bytes() == by_statistics


def test_under_a_bound_of_its_own_a_tensor_is_only_measured(call, path, stats, out):
    call.ok("compress", path, "-o", out, "--min-snr", "20")
    plain = {name: row["rel_l2"] for name, row in call.ok("inspect", out, "--json").tensors.items()}
    call.ok("compress", path, "-o", out, "--min-snr", "20", "--stats", stats, "--force")
    rows = call.ok("inspect", out, "--json").tensors
    assert {name: row["rel_l2"] for name, row in rows.items()} == plain
    assert all(0 < rows[name]["output_error"] < 0.2 for name in MEASURED)


def test_a_copy_in_bfloat16_has_the_same_statistics(call, tmp_path, stats, out):
    import ml_dtypes

    path = write_model(tmp_path / "narrow.safetensors", ml_dtypes.bfloat16)
    call.ok("compress", path, "-o", out, "--stats", stats, "--max-output-error", "0.1")


def test_statistics_of_few_samples_serve(call, path, tmp_path, out):
    stats = write_statistics(tmp_path / "few.safetensors", statistics(samples=2))
    call.ok("compress", path, "-o", out, "--stats", stats, "--max-output-error", "0.05")
    rows = call.ok("inspect", out, "--json").tensors
    assert all(rows[name]["output_error"] <= 0.05 for name in MEASURED)


def test_pruned_tensors_have_the_error_of_both(call, path, stats, out):
    prune = ("--prune", "magnitude", "--sparsity", "0.3")
    call.ok("compress", path, "-o", out, *prune, "--stats", stats, "--max-output-error", "0.01")
    row = call.ok("inspect", out, "--json").tensors[DOWN]
    assert row["output_error"] > 0.03  # of what was pruned, for the most


ANOTHER = "statistics of another model"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda one: one * np.nan, f"tensor '{DOWN}': expected finite second moments"),
        (lambda one: one - 2 * np.diag(np.diag(one)), "non-negative diagonal"),
        (lambda one: one[:, :9], "expected second moments"),
        (lambda one: one[:9, :9].copy(), f"{ANOTHER}: expected a tensor of"),
    ],
    ids=["NaN", "negative", "not square", "another size"],
)
def test_damaged_statistics_are_refused(call, path, tmp_path, out, damage, words):
    stats = write_statistics(tmp_path / "s.safetensors", changed(DOWN, "second_moment", damage))
    for verb in ("compress", "plan"):
        given = ("-o", out) if verb == "compress" else ()
        call.refused(words, verb, path, *given, "--stats", stats, "--bits-per-weight", "3")
    assert not out.exists()


def test_statistics_of_another_model_are_refused(call, tmp_path, stats, out):
    other = dict(tensors())
    other[DOWN] = other[DOWN] + np.float32(0.1)
    path = write_safetensors(tmp_path / "other.safetensors", other)
    line = call.refused(
        ANOTHER, "compress", path, "-o", out, "--stats", stats, "--max-output-error", "0.1"
    )
    assert f"tensor '{DOWN}' differs" in line
    path = write_safetensors(tmp_path / "another.safetensors", {"x.weight": other[DOWN]})
    line = call.refused(ANOTHER, "compress", path, "--stats", stats, "--bits-per-weight", "3")
    assert "not of 'x.weight'" in line


def test_files_that_are_no_statistics_are_refused(call, path, stats, tmp_path):
    given = ("compress", path, "--bits-per-weight", "3", "--stats")
    call.refused("there is no such file", *given, tmp_path / "absent")
    call.refused("expected a statistics file", *given, path)
    stats.write_bytes(stats.read_bytes()[:-9])
    call.refused(str(stats), *given, stats)
    names = {"input_norm": {DOWN: np.ones((1, 96), np.float32)}}
    norms = write_statistics(tmp_path / "norms.safetensors", Statistics(names, 1, 1))
    line = call.refused("run calibrate with --statistics second_moment,row_weight", *given, norms)
    assert "expected second moments" in line
    pruning = ("--prune", "magnitude", "--sparsity", "0.5")
    call.refused("expected second moments", *given, norms, *pruning)


def test_scores_that_read_statistics_need_no_second_moments(call, path, tmp_path, out):
    norms = {"input_norm": {DOWN: np.ones((64, 96), np.float32)}}
    stats = write_statistics(tmp_path / "norms.safetensors", Statistics(norms, 1, 1))
    prune = ("--prune", "wanda", "--sparsity", "0.5", "--prune-where", DOWN, "--stats", stats)
    call.ok("compress", path, "-o", out, *prune)
    call.ok("compress", path, "-o", out, *prune, "--bits-per-weight", "4", "--force")
    assert call.ok("inspect", out, "--json").tensors[DOWN]["pruned"]["count"] == 64 * 48


def test_verify_checks_the_errors_of_outputs(call, path, stats, out):
    call.ok("compress", path, "-o", out, "--stats", stats, "--max-output-error", "0.05")
    remark = "output errors were not checked: give"
    assert f"{remark} --against and --stats" in call.ok("verify", out).stdout
    assert f"{remark} --stats" in call.ok("verify", out, "--against", path).stdout
    checked = call.ok("verify", out, "--against", path, "--stats", stats)
    assert remark not in checked.stdout
    assert "is sound and within its errors of" in checked.stdout
    call.refused("give --against", "verify", out, "--stats", stats)
    few = write_statistics(stats.with_name("few.safetensors"), statistics(samples=2))
    other = call("verify", out, "--against", path, "--stats", few)
    assert other.status == 1
    assert f"tensor '{UP}': has an output error of 0.0" in other.stdout
    call.ok("compress", path, "-o", out, "--min-snr", "20", "--force")
    assert remark not in call.ok("verify", out).stdout


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (("--min-snr", "20"), "its own error is bounded"),
        (("--codec", f"{DOWN}=rotate(rotated=nf4)"), "rotate does not round one input after"),
        (("--codec", f"{DOWN}=nf4"), None),
    ],
)
def test_what_makes_no_use_of_statistics_is_told(call, path, stats, out, how, why):
    printed = call.ok("compress", path, "-o", out, "--stats", stats, *how).stdout
    assert (f"without feedback, since {why}" in printed) == (why is not None)


def test_plans_predict_the_loss(call, path, stats):
    rate = ("--stats", stats, "--bits-per-weight")
    losses = []
    for bits in ("3", "4"):
        done = call.ok("plan", path, *rate, bits)
        assert "Loss" in done.stdout.splitlines()[0]
        assert f"no statistics of 1 tensor: '{UNUSED}'" in done.stdout
        total = float(re.search(r"predicted loss ([\d.e-]+) nats", done.stdout)[1])
        rows = json.loads(call.ok("plan", path, *rate, bits, "--json").stdout)["tensors"]
        known = {name: row["predicted_loss"] for name, row in rows.items() if "statistics" in row}
        assert set(known) == set(MEASURED)
        assert total == pytest.approx(sum(known.values()) - known[HEAD], rel=0.01)  # tied
        losses.append(total)
    assert losses[1] < losses[0] / 2
    plain = call.ok("plan", path, "--bits-per-weight", "3")
    assert "Loss" not in plain.stdout
    assert "predicted loss" not in plain.stdout


def test_a_plan_by_statistics_needs_them(call, path, stats, tmp_path, out):
    plan = tmp_path / "plan.json"
    call.ok("plan", path, "--stats", stats, "--bits-per-weight", "3", "-o", plan)
    given = ("compress", path, "-o", out, "--plan", plan)
    line = call.refused("expected the statistics that the plan was made with", *given)
    assert line.endswith("; give --stats")
    other = changed(DOWN, "second_moment", lambda one: one * np.nan)
    damaged = write_statistics(tmp_path / "damaged.safetensors", other)
    call.refused("expected finite second moments", *given, "--stats", damaged)
    arrays = {key: dict(own) for key, own in statistics().arrays.items()}
    del arrays["row_weight"][DOWN]
    fewer = write_statistics(tmp_path / "fewer.safetensors", Statistics(arrays, transposed=[GATE]))
    assert f"got none of '{DOWN}'" in call.refused("with", *given, "--stats", fewer)
    call.ok(*given, "--stats", stats)
    rows = call.ok("inspect", out, "--json").tensors
    assert all(rows[name]["output_error"] > 0 for name in MEASURED)
    assert f"no statistics of 1 tensor: '{UNUSED}'" in call.ok("inspect", out).stdout
    value = json.loads(plan.read_text())
    value["tensors"][DOWN]["statistics"] = "yes"
    plan.write_text(json.dumps(value))
    call.refused("expected statistics to be true or", *given, "--force", "--stats", stats)


def test_a_bounded_plan_by_statistics_keeps_its_bound(call, path, stats, tmp_path, out):
    plan = tmp_path / "plan.json"
    call.ok("plan", path, "--stats", stats, "--max-output-error", "0.05", "-o", plan)
    call.ok("compress", path, "-o", out, "--plan", plan, "--stats", stats)
    rows = call.ok("inspect", out, "--json").tensors
    assert all(0 < rows[name]["output_error"] <= 0.05 for name in MEASURED)
    call.ok("verify", out, "--against", path, "--stats", stats)


def test_compare_tells_the_predicted_loss(call, path, stats, out):
    call.ok("compress", path, "-o", out, "--bits-per-weight", "3")
    plain = call.ok("compare", path, out, "--stats", stats, "--json").json["predicted_loss"]
    call.ok("compress", path, "-o", out, "--bits-per-weight", "3", "--stats", stats, "--force")
    done = call.ok("compare", path, out, "--stats", stats)
    found = call.ok("compare", path, out, "--stats", stats, "--json").json["predicted_loss"]
    assert found < plain / 2
    assert f"predicted loss {found:.3g} nats" in done.stdout.splitlines()[-1]
    call.refused("statistics of another model", "compare", out, path, "--stats", stats)


@pytest.mark.parametrize("transposed", [False, True])
def test_stacks_have_no_output_error(call, tmp_path, out, transposed):
    shape = (4, 48, 32) if transposed else (4, 32, 48)
    weights = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    path = write_safetensors(tmp_path / "experts.safetensors", {"experts": weights})
    moments = np.repeat(np.eye(48, dtype=np.float32)[None], 4, axis=0)
    known = {"second_moment": {"experts": moments}}
    known["row_weight"] = {"experts": np.ones(128, np.float32)}
    measured = Statistics(known, 1, 1, transposed=("experts",) if transposed else ())
    stats = write_statistics(tmp_path / "stats.safetensors", measured)
    call.ok("compress", path, "-o", out, "--stats", stats, "--bits-per-weight", "5")
    call.ok("verify", out, "--against", path, "--stats", stats)
    assert "Loss" not in call.ok("compare", path, out, "--stats", stats).stdout


def test_an_output_that_is_always_zero_has_no_relative_error(call, tmp_path, out):
    weights = np.random.default_rng(0).normal(size=(128, 48)).astype(np.float32)
    weights[:, :24] = 0
    path = write_safetensors(tmp_path / "dead.safetensors", {"w": weights})
    moment = np.diag(np.repeat(np.float32([1, 0]), 24))
    known = {"second_moment": {"w": moment}, "row_weight": {"w": np.ones(128, np.float32)}}
    stats = write_statistics(tmp_path / "stats.safetensors", Statistics(known, 1, 1))
    call.ok("compress", path, "-o", out, "--stats", stats, "--codec", "all=sign")
    assert "output_error" not in call.ok("inspect", out, "--json").tensors["w"]
    call.ok("verify", out, "--against", path, "--stats", stats)
