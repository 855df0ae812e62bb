import errno
import logging
import os
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from safetensors.numpy import save_file

import tensorcomp
from tensorcomp import MetricsFile
from tensorcomp.errors import OptionError
from tensorcomp.io import openmetrics
from tensorcomp.io.openmetrics import Metric, OpenMetricsFile, openmetrics_text


def read(path):
    """Return the families of a file by name, after strict parsing."""
    return {family.name: family for family in text_string_to_metric_families(path.read_text())}


def values(path):
    return {name: family.samples[0].value for name, family in read(path).items()}


def test_text_by_hand():
    metrics = [Metric("a_bytes", 1.5, "Bytes.", unit="bytes"), Metric("n", 2, "N.", "counter")]
    assert openmetrics_text(metrics, {"job": 'a "b"'}).splitlines() == [
        "# TYPE a_bytes gauge",
        "# UNIT a_bytes bytes",
        "# HELP a_bytes Bytes.",
        'a_bytes{job="a \\"b\\""} 1.5',
        "# TYPE n counter",
        "# HELP n N.",
        'n_total{job="a \\"b\\""} 2',
        "# EOF",
    ]


@given(
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\r")),
    st.sampled_from(["gauge", "counter"]),
)
def test_any_value_and_label_is_parsed_as_it_was(value, text, kind):
    value = abs(value) if kind == "counter" else value
    written = openmetrics_text([Metric("m", value, text, kind)], {"label": text})
    (family,) = text_string_to_metric_families(written)
    (sample,) = family.samples
    assert (family.name, family.type, family.documentation) == ("m", kind, text)
    assert sample.labels == {"label": text}
    assert sample.value == value
    assert sample.name == ("m_total" if kind == "counter" else "m")


def test_a_job_is_counted(tmp_path):
    tensors = {f"w{n}": np.random.default_rng(n).random((300, 300), np.float32) for n in range(3)}
    source, path = tmp_path / "m.safetensors", tmp_path / "job.prom"
    save_file(tensors, source)
    before = time.time()
    with MetricsFile(path, labels={"job": "test"}) as metrics:
        tensorcomp.compress(source, force=True, progress=metrics)
    found = read(path)
    assert found["tensorcomp_job_processed_bytes"].type == "counter"
    assert found["tensorcomp_job_processed_bytes"].unit == "bytes"
    assert found["tensorcomp_job_failures"].samples[0].labels == {"job": "test"}
    told = values(path)
    assert told["tensorcomp_job_processed_bytes"] == told["tensorcomp_job_expected_bytes"]
    assert told["tensorcomp_job_processed_bytes"] == 3 * 300 * 300 * 4
    assert told["tensorcomp_job_processed_tensors"] == 3
    assert told["tensorcomp_job_progress_ratio"] == 1
    assert told["tensorcomp_job_failures"] == 0
    assert before <= told["tensorcomp_job_start_time_seconds"] <= time.time()
    assert told["tensorcomp_job_end_time_seconds"] >= told["tensorcomp_job_start_time_seconds"]
    assert list(tmp_path.glob(".*")) == []


def test_a_job_that_begins_again_counts_on(tmp_path):
    path = tmp_path / "job.prom"
    with MetricsFile(path) as metrics:
        for _ in range(2):
            metrics.begin_folder(100)
            for _ in range(2):
                metrics.begin(1, 50)
                metrics.advance("w", 50)
    assert values(path)["tensorcomp_job_processed_bytes"] == 200
    assert values(path)["tensorcomp_job_progress_ratio"] == 1


def test_an_error_is_counted(tmp_path):
    path = tmp_path / "job.prom"
    with pytest.raises(tensorcomp.TensorcompError), MetricsFile(path) as metrics:
        tensorcomp.compress(tmp_path / "absent", progress=metrics)
    assert values(path)["tensorcomp_job_failures"] == 1
    assert values(path)["tensorcomp_job_end_time_seconds"] > 0


def test_the_file_is_written_once_a_second_at_most(tmp_path, monkeypatch):
    writes, now = [], [0.0]
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda *a: (writes.append(now[0]), replace(*a)))
    monkeypatch.setattr(openmetrics.time, "monotonic", lambda: now[0])
    with MetricsFile(tmp_path / "job.prom") as metrics:
        for _ in range(250):
            now[0] += 0.01
            metrics.advance("w", 1)
    assert len(writes) == 1 + 2 + 1


def test_only_metrics_are_replaced(tmp_path):
    path = tmp_path / "job.prom"
    for _ in range(2):
        with MetricsFile(path):
            pass
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"precious")
    for wrong in (other, tmp_path):
        with pytest.raises(OptionError, match="expected a file of metrics or none"):
            MetricsFile(wrong)
    assert other.read_bytes() == b"precious"


def test_what_a_killed_job_has_left_goes_with_the_next(tmp_path, monkeypatch):
    path = tmp_path / "job.prom"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            MetricsFile(path).__enter__()
    assert [file.name for file in tmp_path.iterdir()] == [".job.prom.tensorcomp-part"]
    with MetricsFile(path):
        pass
    assert list(tmp_path.iterdir()) == [path]


def test_urls_are_refused():
    with pytest.raises(OptionError, match=r"memory://job.prom: expected a path on a disk"):
        MetricsFile("memory://job.prom")


def test_what_cannot_be_written_is_told_once(tmp_path, caplog, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = OpenMetricsFile(tmp_path / "absent" / "job.prom", {})
    with caplog.at_level(logging.WARNING, "tensorcomp"):
        for _ in range(3):
            file.write([])
    assert len(caplog.records) == 1
    assert "No such file" in caplog.text
    kept = OpenMetricsFile(tmp_path / "job.prom", {})
    kept.write([])
    monkeypatch.setattr(Path, "write_text", full)
    kept.write([Metric("m", 1, "")])
    assert (tmp_path / "job.prom").read_text() == "# EOF\n"
