"""The example that trains on several processes; its own processes have a hard time-out."""

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread")
FOLDER = Path(__file__).parents[2] / "examples"
TIMEOUT = 240.0  # seconds, of a busy machine


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(FOLDER / "tiny_lm"))
    scripts = ("train_ddp", "train_ddp_data", "train_ddp_models", "train_ddp_options")
    own = (*scripts, "data", "model")
    for name in own:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in own:
        sys.modules.pop(name, None)


def train(*options, command=(), code=0):
    """Run the example as a user does; return what it prints. Nothing that it starts outlives it."""
    arguments = [*(command or (sys.executable,)), str(FOLDER / "train_ddp.py"), *map(str, options)]
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK",)}
    process = subprocess.Popen(
        [*arguments, "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=TIMEOUT)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == code, errors
    return out if code == 0 else errors


def accuracies(printed):
    return [float(found) for found in re.findall(r"accuracy ([\d.]+)%", printed)]


def test_it_starts_processes_of_its_own():
    printed = train("--workers", 2, "--epochs", 1, "--batch", 32)
    assert accuracies(printed)[0] > 20
    assert "2 processes" in printed
    assert "× smaller" in printed


# Prints the names of the threads that are left when the example has left its group of processes.
THREADS_AT_END = """
import pathlib, runpy, sys
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
for file in pathlib.Path("/proc/self/task").glob("*/comm"):
    print("left:", file.read_text().strip())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="names of threads are read from /proc")
def test_no_thread_of_the_group_outlives_it(monkeypatch, tmp_path):
    # One that frees a tensor while Python ends aborts the process.
    script = tmp_path / "threads_at_end.py"
    script.write_text(THREADS_AT_END)
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1")
    printed = train("--epochs", 1, "--batch", 64, command=(*command, str(script)))
    left = re.findall("left: (.*)", printed)
    assert left
    assert not [name for name in left if "gloo" in name]


@pytest.mark.slow
def test_it_runs_under_torchrun_without_compression():
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1")
    printed = train("--compressor", "none", "--epochs", 1, "--batch", 64, command=command)
    assert accuracies(printed)[0] > 20
    assert "smaller" not in printed


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("mlp", (1, 8, 8), 85_002),
        ("cnn", (1, 28, 28), 32 * 9 + 32 + 64 * 288 + 64 + 3136 * 128 + 128 + 1290),
        ("resnet18", (1, 8, 8), 11_172_810),
    ],
)
def test_models_of_images(module, name, shape, parameters):
    model = module("train_ddp_models").make_model(name, shape[-1], seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model(torch.zeros(2, *shape)).shape == (2, 10)


def test_resnet18_has_its_layers(module):
    model = module("train_ddp_models").make_model("resnet18", 8, seed=0)
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 17 + 3
    assert len(list(model.parameters())) == 62
    maps = model[:-3](torch.zeros(1, 1, 32, 32))
    assert maps.shape == (1, 512, 4, 4)


def test_the_transformer_predicts_the_next_byte(module):
    data = module("train_ddp_data").read_text()
    model = module("train_ddp_models").make_model("transformer", data.size, seed=0)
    assert data.train_x.shape == data.train_y.shape == (2048, 64)
    assert torch.equal(data.train_x[:, 1:], data.train_y[:, :-1])
    logits = model(data.train_x[:2])
    assert logits.shape == (2, 64, 256)
    loss = module("train_ddp").loss_of(logits, data.train_y[:2])
    assert float(loss.detach()) == pytest.approx(5.545, abs=0.2)  # log 256: nothing is learnt yet


def test_a_seed_makes_the_same_model(module):
    make = module("train_ddp_models").make_model
    one, same, other = (make("mlp", 8, seed=seed)[1].weight for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_ranks_share_an_epoch(module):
    data = module("train_ddp_data").read_digits()
    assert len(data.train_x) + len(data.test_x) == 1797
    assert abs(float(data.train_x.mean())) < 1e-5
    sums = [
        sum(float(x.double().sum()) for x, _ in data.batches(4, rank, 3, seed=0, epoch=1))
        for rank in range(3)
    ]
    count = 12 * data.steps(4, 3)
    whole = [x for x, _ in data.batches(count, 0, 1, seed=0, epoch=1)]
    assert len(whole) == 1
    assert sum(sums) == pytest.approx(float(whole[0].double().sum()))
    assert len(set(sums)) == 3
    held_out = [len(y) for rank in range(3) for _, y in data.held_out(rank, 3)]
    assert sum(held_out) == len(data.test_y)


def test_a_model_is_given_data_that_it_can_learn(module, capsys):
    parse = module("train_ddp").parse
    assert parse(["--model", "transformer"]).data == "text"
    with pytest.raises(SystemExit):
        parse(["--model", "cnn", "--data", "text"])
    assert "cnn does not learn text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--compressor", "topk("], "--compressor: "),
        (["--compressor", "kmeans(16)"], "cannot go on the wire"),
        (["--resume", "no such file"], "there is no file no such file"),
    ],
)
def test_what_cannot_work_is_refused_before_processes_start(module, capsys, arguments, told):
    with pytest.raises(SystemExit):
        module("train_ddp").parse(arguments)
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_momentum_within_a_compressor_is_found(module):
    example = module("train_ddp")
    dgc = example.parse_compressor("warmup(dgc(0.001), steps=5)")
    assert example.has_momentum(dgc)
    assert not example.has_momentum(example.parse_compressor("topk(0.01)"))
