"""Metrics of gradient compression that Prometheus reads."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tensorcomp.gradients import OpenMetricsLog
from tensorcomp.gradients.monitoring.metrics import StepMetrics, TensorMetrics


def test_steps_are_summed(tmp_path):
    path = tmp_path / "rank3.prom"
    tensors = (TensorMetrics("w", 100, "topk(0.01)", 400, 13, 1),)
    with OpenMetricsLog(path, rank=3) as log:
        for number in range(2):
            log.write(
                StepMetrics(number, tensors, wire_bytes=7, encode_seconds=0.25, skipped=number == 1)
            )
    found = {family.name: family for family in text_string_to_metric_families(path.read_text())}
    values = {
        name.removeprefix("tensorcomp_gradients_"): family.samples[0].value
        for name, family in found.items()
    }
    assert values["steps"] == 2
    assert (values["raw_bytes"], values["payload_bytes"], values["wire_bytes"]) == (800, 26, 14)
    assert values["encode_seconds"] == 0.5
    assert values["skipped_steps"] == 1
    assert values["density"] == pytest.approx(0.01)
    assert "cosine" not in values
    counter = found["tensorcomp_gradients_wire_bytes"]
    assert (counter.type, counter.unit) == ("counter", "bytes")
    assert counter.samples[0].labels == {"rank": "3"}
