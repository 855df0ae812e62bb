"""What a manifest says of errors and bounds is checked, and does not decide what is decoded."""

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tampering import manifest_of, with_blob, with_manifest

import tensorcomp
from tensorcomp.errors import FormatError
from tensorcomp.planning.budgets import Budget


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(0).standard_normal((80, 90)).astype(np.float32)}


@pytest.fixture
def data(tensors: dict[str, np.ndarray]) -> bytes:
    return tensorcomp.save(tensors, budget=Budget(min_snr=30), threads=1)


def test_errors_and_bounds_are_told(data):
    record = manifest_of(data)["tensors"]["w"]
    rel_l2, max_abs = record["error"]
    assert 0.03 < rel_l2 <= record["bound"]["max_rel_l2"] == 10**-1.5
    assert 0 < max_abs < 1


@pytest.mark.parametrize(
    "change",
    [
        {"error": [0.01]},
        {"error": [0.01, 0.02, 0.03]},
        {"error": ["0.01", 0.02]},
        {"error": [-0.01, 0.02]},
        {"error": [float("nan"), 0.02]},
        {"error": [True, 0.02]},
        {"error": 3},
        {"error": None},
        {"bound": 3},
        {"bound": [1]},
        {"bound": {"max_rel_l2": "x"}},
        {"bound": {"max_rel_l2": -1}},
    ],
    ids=str,
)
def test_what_is_no_error_is_refused(data, change):
    def changed(manifest: dict[str, Any]) -> None:
        manifest["tensors"]["w"].update(change)

    with pytest.raises(FormatError):
        tensorcomp.load(with_manifest(data, changed))


@pytest.mark.parametrize(
    "change",
    [
        {"error": [0.02, 0.1]},
        {"error": [0.0, 0.0]},
        {"error": [1e300, 1e300]},
        {"bound": {"max_rel_l2": 0.001}},
        {"bound": {"max_abs_error": 1e-9}},
    ],
    ids=str,
)
def test_a_wrong_promise_is_found_beside_the_original(tensors, data, change, tmp_path):
    def changed(manifest: dict[str, Any]) -> None:
        manifest["tensors"]["w"].update(change)

    save_file(tensors, tmp_path / "w.safetensors")
    path = tmp_path / "w.tc.safetensors"
    path.write_bytes(data)
    assert not [
        found for found in tensorcomp.verify(path, tmp_path / "w.safetensors") if found.error
    ]
    path.write_bytes(with_manifest(data, changed))
    assert not [found for found in tensorcomp.verify(path) if found.error]
    (found,) = tensorcomp.verify(path, tmp_path / "w.safetensors")
    assert found.error is not None
    assert "'w'" in found.error or " w " in found.error


def test_a_tree_with_another_step_gives_other_bytes(data, tmp_path):
    def changed(manifest: dict[str, Any]) -> None:
        planned = manifest["trees"][manifest["tensors"]["w"]["tree"]]
        assert "step=" in planned["tree"]
        planned["tree"] = planned["tree"].replace("step=0.", "step=0.1", 1)

    path = tmp_path / "w.tc.safetensors"
    path.write_bytes(with_manifest(data, changed))
    (found,) = tensorcomp.verify(path)
    assert found.error is not None
    assert "decodes to other bytes" in found.error


@pytest.mark.parametrize("position", [0, 1, 9, 17, -9, -1])
def test_a_damaged_blob_is_found(data, position):
    def changed(blob: bytes) -> bytes:
        damaged = bytearray(blob)
        damaged[position] ^= 0x41
        return bytes(damaged)

    with pytest.raises(FormatError, match="w"):
        tensorcomp.load(with_blob(data, "w", changed))
    with pytest.raises(FormatError):
        tensorcomp.load(with_blob(data, "w", lambda blob: blob[:-3]))
