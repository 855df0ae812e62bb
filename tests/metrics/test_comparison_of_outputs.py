"""Errors of outputs and the loss that they add, beside the errors of tensors."""

import csv

import numpy as np
import pytest
from calibrated_checkpoints import (
    CONV,
    DOWN,
    GATE,
    HEAD,
    MEASURED,
    TIED,
    UNUSED,
    UP,
    statistics,
    tensors,
    write_model,
    write_statistics,
)
from checkpoint_files import write_safetensors

import tensorcomp
from tensorcomp.errors import CheckpointError
from tensorcomp.reports.comparison_tables import comparison_json, comparison_table


@pytest.fixture
def pair(tmp_path):
    """Return the network, and a copy of it with errors in all floats."""
    random = np.random.default_rng(0)
    changed = {
        name: value + (0.01 * random.standard_normal(value.shape)).astype(np.float32)
        for name, value in tensors().items()
    }
    changed[TIED] = changed[HEAD]
    return write_model(tmp_path / "a.safetensors"), write_safetensors(
        tmp_path / "b.safetensors", changed
    )


def quadratic(name, error):
    """Return ½ Σᵣ wᵣ eᵣ H eᵣᵀ, written out."""
    measured = statistics().arrays
    moment = measured["second_moment"][name].astype(np.float64).reshape(-1, *[len(error[0])] * 2)
    return 0.5 * float((measured["row_weight"][name] * ((error @ moment[0]) * error).sum(1)).sum())


def test_the_loss_is_the_quadratic_form(pair):
    found = tensorcomp.compare(*pair, statistics=statistics())
    changed = tensorcomp.load_file(pair[1])
    losses = {row.name: row.errors.loss for row in found.tensors if row.statistics}
    assert set(losses) == set(MEASURED)
    for name in (UP, CONV, DOWN, HEAD, GATE):
        error = (tensors()[name].astype(np.float64) - changed[name]).reshape(len(changed[name]), -1)
        expected = quadratic(name, error.T if name == GATE else error)
        assert losses[name] == pytest.approx(expected, rel=1e-4)
    assert losses[TIED] == losses[HEAD]
    once = sum(loss for name, loss in losses.items() if name != TIED)
    assert found.loss == pytest.approx(once)


def test_runs_add_up(pair, monkeypatch):
    whole = tensorcomp.compare(*pair, statistics=statistics())
    monkeypatch.setattr("tensorcomp.api.compare.CHUNK_ELEMENTS", 1000)
    parts = tensorcomp.compare(*pair, statistics=statistics(), threads=2)
    for one, other in zip(whole.tensors, parts.tensors, strict=True):
        for figure in ("output_error", "loss", "output_energy"):
            wanted = getattr(one.errors, figure)
            assert getattr(other.errors, figure) == pytest.approx(wanted, rel=1e-5)


def test_compressed_files_have_the_errors_that_they_record(tmp_path):
    path = write_model(tmp_path / "a.safetensors")
    budget = tensorcomp.Budget(max_output_error=0.05)
    result = tensorcomp.compress(path, budget=budget, statistics=statistics())
    found = tensorcomp.compare(path, result.path, statistics=statistics())
    errors = {row.name: row.errors.output_error for row in found.tensors}
    for row in result.summary.tensors:
        assert row.output_error == pytest.approx(errors[row.name], rel=1e-5)


def test_reports_have_the_figures_only_with_statistics(pair, tmp_path):
    plain = tensorcomp.compare(*pair)
    assert plain.loss is None
    assert "predicted_loss" not in str(comparison_json(plain))
    assert "predicted_loss" not in comparison_table(plain).csv()[0]
    stats = write_statistics(tmp_path / "s.safetensors")
    value = comparison_json(found := tensorcomp.compare(*pair, statistics=stats))
    assert value["predicted_loss"] == found.loss > 0
    rows = {row["name"]: row for row in value["tensors"]}
    assert 0 < rows[DOWN]["output_error"] < 1
    assert "output_error" not in rows[UNUSED]
    lines = list(csv.DictReader(comparison_table(found).csv()))
    by_name = {line["tensor"]: line for line in lines}
    assert float(by_name[DOWN]["predicted_loss"]) == rows[DOWN]["predicted_loss"]
    assert float(by_name["all floats"]["predicted_loss"]) == found.loss
    assert by_name[UNUSED]["predicted_loss"] == ""
    assert "Loss" in comparison_table(found).lines()[0]


def test_the_first_checkpoint_is_the_measured_one(pair):
    with pytest.raises(CheckpointError, match="statistics of another model"):
        tensorcomp.compare(*pair[::-1], statistics=statistics())
