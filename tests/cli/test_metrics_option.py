"""Metrics that node exporter's textfile collector reads."""

from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families


def counts(path: Path) -> dict[str, float]:
    return {
        family.name.removeprefix("tensorcomp_job_"): family.samples[0].value
        for family in text_string_to_metric_families(path.read_text())
    }


def test_each_long_verb_counts_what_it_does(call, model, tmp_path):
    written, metrics = tmp_path / "model.tc.safetensors", tmp_path / "job.prom"
    for verb, source in (("compress", model), ("verify", written), ("decompress", written)):
        options = ["--force"] if verb == "decompress" else []
        done = call(verb, source, "--metrics", metrics, *options)
        assert (done.status, done.stderr) == (0, "")
        found = counts(metrics)
        assert (found["processed_tensors"], found["failures"]) == (6, 0)
        assert found["processed_bytes"] == found["expected_bytes"] > 0
        output = {"compress": written, "decompress": model}.get(verb)
        assert found["output_bytes"] == (output.stat().st_size if output else 0)


@pytest.mark.parametrize("verb", ["compress", "decompress", "verify"])
def test_a_job_that_fails_is_counted(call, tmp_path, verb):
    metrics = tmp_path / "job.prom"
    done = call(verb, tmp_path / "absent", "--metrics", metrics)
    assert done.status != 0
    assert done.line
    assert counts(metrics)["failures"] == 1


def test_a_damaged_tensor_is_counted(call, model, tmp_path):
    written, metrics = tmp_path / "model.tc.safetensors", tmp_path / "job.prom"
    call("compress", model)
    data = bytearray(written.read_bytes())
    data[-20] ^= 1
    written.write_bytes(data)
    assert call("verify", written, "--metrics", metrics).status == 1
    assert counts(metrics)["failures"] >= 1


def test_no_other_file_is_replaced_and_a_missing_folder_stops_nothing(call, model, tmp_path):
    before = model.read_bytes()
    done = call("compress", model, "--metrics", model)
    assert done.status == 2
    assert "expected a file of metrics or none" in done.line
    assert model.read_bytes() == before
    assert not (tmp_path / "model.tc.safetensors").exists()
    done = call("compress", model, "--metrics", tmp_path / "absent" / "job.prom")
    assert done.status == 0
    assert "metrics cannot be written" in done.line


def test_a_url_is_refused(call, model):
    done = call("compress", model, "--metrics", "memory://job.prom")
    assert done.status == 2
    assert "memory://job.prom: expected a path on a disk" in done.stderr
