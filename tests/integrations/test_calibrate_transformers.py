"""``tensorcomp calibrate --hf``: folders of transformers, and text."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from host_models import minilm, saved
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import MixtralConfig, MixtralForCausalLM, PreTrainedTokenizerFast

from tensorcomp.calibration.calibrate import calibrate
from tensorcomp.calibration.hugging_face import PretrainedFolder
from tensorcomp.checkpoints.open import open_checkpoint
from tensorcomp.planning.calibrated import calibrated_tensors
from tensorcomp.planning.statistics import CURVATURE, Statistics
from tensorcomp_cli.main import main

torch.set_num_threads(1)

WORDS = [f"w{number}" for number in range(300)]
LINES = [" ".join(np.random.default_rng(n).choice(WORDS, 5 + n % 7)) for n in range(40)]


def folder_of(name, path):
    if name == "mixtral":
        torch.manual_seed(0)
        config = MixtralConfig(
            vocab_size=400,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            num_local_experts=4,
        )
        MixtralForCausalLM(config).save_pretrained(path)
    else:
        saved(name, path)
    ids = {word: at for at, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    )
    fast.save_pretrained(path)
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES))
    return path


def calibrated(folder, text, *options):
    out = text.with_name("s.safetensors")
    arguments = ["calibrate", "--hf", folder, "--text", text, "-o", out, "--force", *options]
    assert main(list(map(str, arguments))) == 0
    return Statistics.load(out)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "mixtral"])
def test_all_matrices_of_a_checkpoint_have_a_model_that_fits(tmp_path, text, name):
    folder = folder_of(name, tmp_path / "model")
    found = calibrated(folder, text, "--samples", 8, "--length", 16)
    files = sorted(folder.glob("*.safetensors"))
    arrays = {i.name: c for c in map(open_checkpoint, files) for i in c.arrays if len(i.shape) > 1}
    shapes = {i.name: i.shape for c in set(arrays.values()) for i in c.arrays}
    known = calibrated_tensors(found, {name: shapes[name] for name in arrays})
    for tensor, checkpoint in arrays.items():
        if "pooler" in tensor:
            continue
        shape = shapes[tensor]
        if "block_sparse_moe" in tensor:  # which is named otherwise in memory
            continue
        moment = known[tensor].moment
        rows, width = (shape[-1], shape[-2]) if moment.transposed else shape[-2:]
        assert moment.matrix.shape == (1, width, width), tensor
        assert moment.row_weight.shape == (rows,)
        assert moment.row_weight.any()
        weight = np.asarray(checkpoint.read(tensor)).view(_dtype(name)).reshape(shape)
        known[tensor].check(weight)
    assert bool(found.transposed) == (name == "gpt2")
    assert found.unreached == (("pooler.dense.weight",) if name == "bert" else ())
    experts = [key for key in found.positions if "experts" in key]
    assert len(experts) == (2 if name == "mixtral" else 0)
    assert all(len(found.moment(key).matrix) == 4 for key in experts)


def _dtype(name):
    import ml_dtypes

    return ml_dtypes.bfloat16 if name == "llama" else np.float32


def test_windows_are_spread_evenly_and_have_one_length(tmp_path, text):
    folder = PretrainedFolder(folder_of("gpt2", tmp_path / "model"))
    assert folder.is_causal
    found = folder.minibatches(text, samples=5, length=20, batch=2)
    assert [tuple(part["input_ids"].shape) for part in found] == [(2, 20), (2, 20), (1, 20)]
    tokens = [WORDS.index(word) + 2 for line in LINES for word in line.split()]
    assert found[0]["input_ids"][0].tolist() == tokens[:20]
    assert found[-1]["input_ids"][-1].tolist() == tokens[-20:]
    assert folder.minibatches(text, length=1000)[0]["input_ids"].shape[1] == 64


def test_lines_of_similar_length_stand_together(tmp_path, text):
    folder = PretrainedFolder(folder_of("bert", tmp_path / "model"))
    assert not folder.is_causal
    found = folder.minibatches(text, samples=20, batch=4)
    lengths = [n for part in found for n in part["attention_mask"].sum(1).tolist()]
    assert lengths == sorted(lengths)
    assert len(lengths) == 20


def test_minilm_gives_the_same_by_the_function_and_the_command(tmp_path, text):
    folder = PretrainedFolder(minilm())
    data = folder.minibatches(text, samples=8)
    expected = calibrate(folder.model(), data, statistics=CURVATURE)
    found = calibrated(minilm(), text, "--samples", 8, "--memory", "20MB")
    for name in expected.arrays["row_weight"]:
        one, other = found.moment(name), expected.moment(name)
        np.testing.assert_allclose(one.matrix, other.matrix, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(one.row_weight, other.row_weight, rtol=1e-3, atol=1e-9)
    query = "encoder.layer.0.attention.self.query.weight"
    assert expected.shared[query.replace("query", "key")] == query


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder, text: text.unlink(), "text.txt"),
        (lambda folder, text: text.write_text(" \n"), "is empty"),
        (
            lambda folder, text: text.write_text("w1 w2"),
            "expected at least 64 tokens of text, got 2",
        ),
        (lambda folder, text: (folder / "config.json").unlink(), "a folder with config.json"),
        (lambda folder, text: (folder / "config.json").write_text("{"), "has no configuration"),
        (lambda folder, text: _remove(folder, "tokenizer*"), "has no tokenizer to load"),
        (lambda folder, text: _remove(folder, "*.safetensors*"), "has no model to load"),
    ],
)
def test_what_is_missing_is_said_in_one_line(tmp_path, text, capsys, change, words):
    folder = folder_of("gpt2", tmp_path / "model")
    change(folder, text)
    arguments = ["calibrate", "--hf", folder, "--text", text, "-o", tmp_path / "s"]
    assert main(list(map(str, arguments))) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert words in lines[0]
    assert not (tmp_path / "s").exists()


def _remove(folder: Path, pattern: str) -> None:
    for file in folder.glob(pattern):
        file.unlink()


def test_json_and_a_missing_library(tmp_path, text, capsys, monkeypatch):
    folder = folder_of("gpt2", tmp_path / "model")
    arguments = ["calibrate", "--hf", folder, "--text", text, "-o", tmp_path / "s", "--json"]
    assert main(list(map(str, [*arguments, "--samples", "2"]))) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["statistics"].keys() == {*CURVATURE}
    assert found["batches"] == 1
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main([*map(str, arguments), "--force"]) == 2
    assert "pip install 'tensorcomp[hub]'" in capsys.readouterr().err
