"""A tensor whose error is small while rows of it are lost: recorded and shown."""

import json

import numpy as np
import pytest
from checkpoint_files import write_safetensors

import tensorcomp
from tensorcomp.pipeline import write
from tensorcomp_cli.main import main

SMALL = 1e-3
RULE = "*=uniform(step=0.5, codes=huffman)"


@pytest.fixture
def checkpoint(tmp_path):
    """Write an embedding of which one row of 2,000 holds nearly all of the norm."""
    random = np.random.default_rng(0)
    embedding = random.standard_normal((2000, 64)).astype(np.float32) * SMALL
    embedding[7] /= SMALL
    even = random.standard_normal((256, 256)).astype(np.float32)
    tensors = {"embed_tokens.weight": embedding, "layer.weight": even}
    return write_safetensors(tmp_path / "model.safetensors", tensors)


def run(capsys, *arguments):
    code = main(list(map(str, arguments)))
    return code, capsys.readouterr().out


@pytest.mark.parametrize("chunk", [1 << 20, 1 << 14], ids=["one chunk", "eight chunks"])
def test_a_lost_row_is_recorded_and_shown(checkpoint, capsys, chunk):
    result = tensorcomp.compress(checkpoint, codecs=RULE, chunk_elements=chunk)
    embedding, even = result.summary.tensors
    assert embedding.row_error == 1
    assert embedding.to_dict()["worst_row_rel_l2"] == 1
    assert not even.row_error  # its rows are all alike
    assert "worst_row_rel_l2" not in even.to_dict()

    code, printed = run(capsys, "inspect", result.path)
    assert code == 0
    assert "warning: rows of embed_tokens.weight lost half of their norm" in printed
    assert "Row dB" in printed
    _, printed = run(capsys, "inspect", result.path, "--json")
    assert [row.get("worst_row_rel_l2") for row in json.loads(printed)["tensors"]] == [1, None]
    assert run(capsys, "verify", result.path, "--against", checkpoint)[0] == 0
    _, printed = run(capsys, "compare", checkpoint, result.path, "--json")
    rows = {row["name"]: row["worst_row_rel_l2"] for row in json.loads(printed)["tensors"]}
    assert rows["embed_tokens.weight"] == 1
    assert 0 < rows["layer.weight"] < 0.5


def test_verify_checks_the_recorded_row(checkpoint, monkeypatch):
    monkeypatch.setattr(write, "_lost_row", lambda errors: 0.9 * (errors.worst_row == 1))
    result = tensorcomp.compress(checkpoint, codecs=RULE)
    assert not any(check.error for check in tensorcomp.verify(result.path))
    checks = tensorcomp.verify(result.path, against=checkpoint)
    assert [check.name for check in checks if check.error] == ["embed_tokens.weight"]


def test_compressing_warns_of_lost_rows(checkpoint, capsys):
    code, printed = run(capsys, "compress", checkpoint, "--codec", RULE)
    assert code == 0
    assert "warning: rows of embed_tokens.weight" in printed
    code, printed = run(capsys, "compress", checkpoint, "--max-abs-error", 1e-4, "--force")
    assert code == 0
    assert "warning" not in printed
