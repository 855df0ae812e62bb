"""Options by which kept weights make up for pruned ones."""

import numpy as np
import pytest
from calibrated_checkpoints import (
    CONV,
    DOWN,
    GATE,
    HEAD,
    UNUSED,
    UP,
    tensors,
    write_model,
    write_statistics,
)

import tensorcomp

REPAIRED = (UP, GATE, CONV, DOWN, HEAD)


@pytest.fixture
def source(tmp_path):
    return write_model(tmp_path / "model.safetensors")


def test_tensors_without_moments_are_named(call, source, tmp_path):
    stats = write_statistics(tmp_path / "stats.safetensors")
    options = ("--prune", "magnitude", "--sparsity", 0.5, "--repair", "--stats", stats)
    line = f"not repaired: '{UNUSED}': calibrate measured no second_moment of them"
    done = call.ok("compress", source, *options)
    assert line in done.stdout.splitlines()
    assert "pruned and repaired (magnitude, element)" in done.stdout
    out = source.with_name("model.tc.safetensors")
    inspected = call.ok("inspect", out)
    assert line in inspected.stdout.splitlines()
    rows = call.ok("inspect", out, "--json").json["tensors"]
    assert {row["name"] for row in rows if row.get("pruned", {}).get("repaired")} >= {*REPAIRED}
    assert line in call.ok("plan", source, *options).stdout.splitlines()
    call.ok("verify", out, "--against", source)
    exact = np.abs(tensors()[UNUSED])
    loaded = tensorcomp.load_file(out)[UNUSED]
    np.testing.assert_array_equal(np.abs(loaded), exact * (loaded != 0))


def test_what_cannot_be_repaired_is_refused(call, source, tmp_path):
    stats = write_statistics(tmp_path / "stats.safetensors")
    line = call("compress", source, "--repair").line
    assert "--repair says how to prune: give --prune SCORE" in line
    half = ("compress", source, "--prune", "magnitude", "--sparsity", 0.5)
    line = call(*half, "--repair").line
    assert "expected statistics to repair by, got none; give --stats" in line
    call.ok(*half, "--repair", "--stats", stats)
