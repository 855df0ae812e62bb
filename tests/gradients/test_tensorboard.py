"""Metrics that TensorBoard reads."""

import builtins
import sys

import pytest

from tensorcomp.errors import GradientError
from tensorcomp.gradients.monitoring.metrics import StepMetrics, TensorMetrics
from tensorcomp.gradients.monitoring.tensorboard import TensorBoardLog


def steps():
    for number in (3, 4):
        tensors = (
            TensorMetrics("layer/0.weight", 100, "topk(0.01)", 400, 10 + number, 1),
            TensorMetrics("b", 10, "dense", 40, 40, 10),
        )
        yield StepMetrics(number, tensors, wire_bytes=7 * number)


def points(folder):
    """Return (step, value) pairs by tag, as TensorBoard reads them."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_curves_are_read_back(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    with TensorBoardLog(tmp_path / "new" / "log", tensors=["layer/0.weight"]) as log:
        for step in steps():
            log.write(step)
    found = points(tmp_path / "new" / "log")
    assert found["gradients/bytes/wire"] == [(3, 21.0), (4, 28.0)]
    assert found["gradients/bytes/payload"] == [(3, 53.0), (4, 54.0)]
    assert found["gradients/tensors/layer_0.weight/payload_bytes"] == [(3, 13.0), (4, 14.0)]
    assert found["gradients/tensors/layer_0.weight/density"][0][1] == pytest.approx(0.01)
    assert not any("tensors/b/" in tag or "cosine" in tag for tag in found)


def test_without_tensorboard_the_error_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "torch.utils.tensorboard":
            raise ModuleNotFoundError("No module named 'tensorboard'")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(GradientError, match=r"pip install 'tensorcomp\[torch,tensorboard\]'") as e:
        TensorBoardLog(tmp_path)
    assert "\n" not in str(e.value)
