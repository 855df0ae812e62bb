"""Each option with a wrong value: the message names the option, and no argument of the library."""

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

PRUNE = ["--prune", "magnitude", "--sparsity", "0.5"]
A_NUMBER = "to be a finite number above 0, got"
A_PART = "to be a number from 0 to 1, got"

COMPRESS = [
    (["--min-snr", "2000"], "expected --min-snr to be a number between"),
    (["--max-rel-l2", "nan"], f"expected --max-rel-l2 {A_NUMBER} nan"),
    (["--max-abs-error", "-1"], f"expected --max-abs-error {A_NUMBER} -1.0"),
    (["--bits-per-weight", "0"], f"expected --bits-per-weight {A_NUMBER} 0.0"),
    (["--target-ratio", "0"], f"expected --target-ratio {A_NUMBER} 0.0"),
    (["--target-size", "0"], f"expected --target-size {A_NUMBER} 0"),
    (["--target-size", "x"], "'--target-size': 'x'"),
    (["--min-snr", "9", "--target-size", "1kB"], "got --min-snr and --target-size"),
    (["--effort", "x"], "'--effort': 'x'"),
    (["--profile", "x"], "expected a profile of lossless"),
    (["--codec", "x="], "expected a rule SELECTOR=TREE"),
    (["--importance", "absent", "--target-ratio", "3"], "absent: cannot be read"),
    (["--threads", "0"], "'--threads': 0"),
    (["--output", "absent/x"], "there is no folder absent"),
    (["--output", "."], "is a folder; give another name by --output"),
    ([*PRUNE, "--sparsity", "2"], f"expected --sparsity {A_PART} 2.0"),
    ([*PRUNE, "--sparsity", "1"], "change --density-floor (0 lets whole tensors go) or --sparsity"),
    ([*PRUNE, "--density-floor", "2"], f"expected --density-floor {A_PART} 2.0"),
    ([*PRUNE, "--prune", "wanda"], "give --stats, a file of tensorcomp calibrate"),
    ([*PRUNE, "--prune", "obd"], "give --stats, a file of tensorcomp calibrate, or a training"),
    ([*PRUNE, "--stats", "x"], "expected a budget or trees beside statistics, got none"),
    ([*PRUNE, "--stats", "absent", "--min-snr", "30"], "absent: cannot be read"),
    (["--max-output-error", "0.1"], "for --max-output-error, got none; give --stats"),
    (["--max-output-error", "0"], f"expected --max-output-error {A_NUMBER} 0"),
    (["--max-output-error", "1"], "give --max-output-error below 1"),
    (["--max-output-error", "0.1", "--min-snr", "9"], "got --min-snr and --max-output-error"),
    (["--stats", "absent", "--min-snr", "9"], "absent: cannot be read"),
    ([*PRUNE, "--prune", "wanda", "--stats", "absent"], "absent: cannot be read"),
    ([*PRUNE, "--prune-where", "x"], "--prune-where 'x' selects no"),
    ([*PRUNE, "--scope", "x"], "'--scope': 'x'"),
    ([*PRUNE, "--granularity", "x"], "no granularity is called 'x'"),
    ([*PRUNE[:2], "--prune-max-rel-l2", "2"], f"expected --prune-max-rel-l2 {A_PART} 2.0"),
    ([*PRUNE[:2], "--prune-target-size", "0"], "expected --prune-target-size to be an integer"),
    ([*PRUNE[:2], "--prune-target-size", "9"], "lower --density-floor or raise the size"),
    (
        [*PRUNE[:2], "--granularity", "nm(2, 4)", "--density-floor", "0.9"],
        "change --density-floor or the pattern",
    ),
]
CALIBRATE = [
    (["--statistics", "x"], "'--statistics': expected some of"),
    (["--batches", "0"], "'--batches': 0"),
    (["--temperature", "0"], "expected --temperature to be a number above 0, got 0.0"),
    (["--where", "x"], "--where 'x' matches none"),
    (["--model", "x"], "'--model': 'x'"),
    (["--checkpoint", "absent"], "absent: cannot be read"),
]
OTHERS = [
    (["decompress", "packed", "-o", "x", "--max-bytes", "9"], "set --max-bytes"),
    (["decompress", "packed", "-o", "x", "--threads", "0"], "'--threads': 0"),
    (["decompress", "packed", "-o", "packed", "--force"], "give another by --output"),
    (
        ["decompress", "packed", "-o", "x.npz"],
        "got 'x.npz'; give another by --output",
    ),
    (["compress", "model", "-o", "x.pt"], "got 'x.pt'; give another by --output"),
    (["compress", "model", "-o", "packed"], "--force replaces it, --output names another"),
    (["plan", "model", "-o", "packed"], "--force replaces it, --output names another"),
    (["plan", "model", "--sparsity", "0.5"], "--sparsity says how to prune: give --prune"),
    (["bench", "model", "--plot", "x.gif"], "expected a name that ends in one of .png"),
    (["bench", "model", "--plot", "plot.png"], "--force replaces it, --plot names another"),
    (["sparsity", "model", "--keep-indices", "packed"], "--keep-indices names another"),
    (["verify", "packed", "--against", "absent"], "absent: cannot be read"),
    (["gradients", "estimate", "--bandwidth", "x"], "'--bandwidth': 'x'"),
    (["gradients", "estimate", "--parameters", "0"], "'--parameters': '0'"),
    (["gradients", "estimate", "--world", "1"], "'--world': 1"),
    (["gradients", "estimate", "--latency", "x"], "'--latency': 'x'"),
    (["gradients", "estimate", "--backward-ms", "-1"], "'--backward-ms': -1.0"),
]


@pytest.fixture
def refused(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(0).standard_normal((40, 60)).astype(np.float32)
    save_file({"mlp.fc.weight": weights}, "model")
    call.ok("compress", "model", "-o", "packed")
    Path("plot.png").touch()

    def run(words: str, *arguments: str) -> None:
        line = call.refused(words, *arguments)
        line = re.sub("input_norm|second_moment|row_weight", "", line)  # statistics
        assert not re.search(r"\w=(…|True)|\b[a-z]+_[a-z_0-9]+\b", line), line

    return run


@pytest.mark.parametrize(("options", "words"), COMPRESS)
def test_messages_of_compress(refused, options, words):
    refused(words, "compress", "model", *options)


@pytest.mark.parametrize(("options", "words"), CALIBRATE)
def test_messages_of_calibrate(refused, options, words):
    pytest.importorskip("torch")
    Path("net.py").write_text(
        "import torch\nmodel = torch.nn.Linear(3, 2)\n"
        "data = [(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))]\n"
    )
    given = ["--model", "net.py:model", "--data", "net.py:data", "-o", "x"]
    refused(words, "calibrate", *given, *options)


@pytest.mark.parametrize(("arguments", "words"), OTHERS)
def test_messages_of_other_verbs(refused, arguments, words):
    refused(words, *arguments)
