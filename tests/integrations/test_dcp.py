import errno
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import (
    DefaultSavePlanner,
    _EmptyStateDictLoadPlanner,
)
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

import tensorcomp
from tensorcomp import Budget
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.dcp import Reader, Writer
from tensorcomp.errors import CheckpointError, FormatError, OptionError, PlanError
from tensorcomp.integrations.dcp.items import Share
from tensorcomp.planning.roles.classify import classify_all

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def save(state, folder, planner=None, **options):
    dcp.save(state, storage_writer=Writer(folder, **options), planner=planner, no_dist=True)
    return sorted(folder.glob("*.tc.safetensors"))


def load(state, folder, **options):
    dcp.load(state, storage_reader=Reader(folder, **options), no_dist=True)
    return state


def load_all(folder):
    """What torch's dcp_to_torch_save does, by another reader."""
    state = {}
    _load_state_dict(
        state,
        storage_reader=Reader(folder),
        planner=_EmptyStateDictLoadPlanner(),
        no_dist=True,
    )
    return state


def failure(call, *arguments, **options):
    with pytest.raises(CheckpointException) as caught:
        call(*arguments, **options)
    ((error, _),) = caught.value.failures.values()
    assert "\n" not in str(error)
    return error


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, dict):
            assert_same(value, other[key])
        elif isinstance(value, torch.Tensor):
            assert value.dtype == other[key].dtype, key
            assert value.shape == other[key].shape, key
            assert torch.equal(bits(value), bits(other[key])), key
        else:
            assert value == other[key], key


def trained(width=96, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, width)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def test_a_save_is_coded_against_the_saves_before(tmp_path):
    model, _ = trained()
    sizes = []
    for step in range(3):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 + 1e-4)
        base = {"base": tmp_path / f"{step - 1}", "bases": tmp_path} if step else {}
        state = {"model": model.state_dict(), "step": step}
        (file,) = save(state, tmp_path / f"{step}", **base)
        sizes.append(file.stat().st_size)
    assert max(sizes[1:]) < 0.8 * sizes[0]
    empty = {"model": {name: torch.zeros_like(t) for name, t in state["model"].items()}, "step": 0}
    with pytest.raises(CheckpointException, match="MissingBaseError"):
        load(empty, tmp_path / "2")
    assert_same(load(empty, tmp_path / "2", bases=tmp_path), state)


def training_state(**options):
    weights, moments = get_state_dict(*trained(**options))
    return {"model": weights, "optim": moments}


def test_any_state_comes_back_bit_for_bit(tmp_path):
    weight = torch.randn(300, 200).bfloat16()
    state = {
        "weights": {
            "w": weight,
            "tied": weight,
            "half": torch.randn(1100, 1000).half(),  # of two chunks
            "fp8": torch.randn(70, 70).to(torch.float8_e4m3fn),
            "complex": torch.randn(5, 3, dtype=torch.complex64),
            "transposed": torch.randn(30, 40).t(),
            "part": torch.randn(64, 64)[10:20],
            "scalar": torch.tensor(3.5),
            "empty": torch.empty(0, 4),
            "nan": torch.tensor([float("nan"), -0.0]),
        },
        "counts": torch.arange(9),
        "flags": torch.tensor([True, False]),
        "schedule": torch.optim.lr_scheduler.StepLR(trained()[1], 10).state_dict(),
        "objects": {"text": "a", "none": None, "tuple": (1, 2.5)},
        "__metadata__": torch.ones(3),
        "w[0:5]": torch.zeros(2),
    }
    (file,) = save(state, tmp_path)
    assert_same(state, load_all(tmp_path))
    assert all(check.error is None for check in tensorcomp.verify(file))
    assert tensorcomp.load_file(file, framework="pt")["weights.w"].equal(weight)


def test_tensors_that_safetensors_lacks_are_stored_by_torch(tmp_path):
    state = {
        "quantized": torch.quantize_per_tensor(torch.arange(5.0), 0.1, 0, torch.qint8),
        "half": torch.randn(6, 2, dtype=torch.complex64).to(torch.complex32),
    }
    save(state, tmp_path)
    target = {
        "quantized": torch.quantize_per_tensor(torch.zeros(5), 0.1, 0, torch.qint8),
        "half": torch.zeros(6, 2, dtype=torch.complex32),
    }
    load(target, tmp_path)
    assert torch.equal(target["quantized"].int_repr(), state["quantized"].int_repr())
    assert torch.equal(target["half"].view(torch.half), state["half"].view(torch.half))


def test_a_model_goes_on_where_it_was(tmp_path):
    model, optimizer = trained()
    save(training_state(), tmp_path)
    other, its_optimizer = trained(seed=1)
    weights, moments = get_state_dict(other, its_optimizer)
    load({"model": weights, "optim": moments}, tmp_path)
    set_state_dict(other, its_optimizer, model_state_dict=weights, optim_state_dict=moments)
    assert_same(dict(model.state_dict()), dict(other.state_dict()))
    assert_same(optimizer.state_dict()["state"], its_optimizer.state_dict()["state"])


def test_tensors_elsewhere_are_copied_to(tmp_path):
    state = {"w": torch.randn(40, 30), "c": torch.randn(6, dtype=torch.complex64)}
    save(state, tmp_path)
    target = {"w": torch.zeros(30, 40).t(), "c": torch.zeros(6, dtype=torch.complex64).conj()}
    load(target, tmp_path)
    assert torch.equal(target["w"], state["w"])
    assert torch.equal(target["c"], state["c"])
    wider = {"w": torch.zeros(40, 30, dtype=torch.float64)}
    load(wider, tmp_path)
    assert torch.equal(wider["w"], state["w"].double())


@pytest.mark.parametrize(
    ("name", "shape", "role"),
    [
        ("model.layers.0.mlp.up_proj.weight[0:500]", (500, 64), "mlp"),
        ("model.layers.0.input_layernorm.weight[32:64]", (32,), "norm"),
        ("model.lm_head.weight[:, 0:32]", (64, 32), "head"),
        ("optim.state.layers.0.weight.exp_avg[0:8]", (8, 64), "moment.first"),
        ("optim.state.layers.0.weight.exp_avg_sq[0:8, 8:16]", (8, 8), "moment.second"),
        ("optim.state.layers.0.weight.momentum_buffer[0:8]", (8, 64), "moment.first"),
        ("optim.state.layers.0.weight.step", (), "step"),
        ("optim.state.layers.0.weight.row_var[0:8]", (8,), "optimizer"),
    ],
)
def test_roles_are_known_by_the_names_of_parts(name, shape, role):
    nbytes = 4 * int(np.prod(shape))
    info = TensorInfo(name, "F32", shape, nbytes)
    assert classify_all([info])[name].role == role


@pytest.mark.parametrize(
    "options",
    [
        {"budget": Budget(bits_per_weight=4)},
        {"budget": Budget(target_ratio=5)},
        {"budget": Budget(min_snr=25)},
        {"profile": "memory"},
        {"codecs": "all=affine(4)"},
    ],
    ids=str,
)
def test_budgets_are_for_weights_alone(tmp_path, options):
    state = training_state(width=128)
    (file,) = save(state, tmp_path, **options)
    found = load_all(tmp_path)
    assert_same(state["optim"], found["optim"])
    first = state["model"]["0.weight"]
    assert not torch.equal(first, found["model"]["0.weight"])
    assert torch.equal(state["model"]["1.weight"], found["model"]["1.weight"])
    if "budget" in options and options["budget"].bits_per_weight:
        rows = tensorcomp.inspect(file).tensors
        stored = sum(row.stored for row in rows if row.name.startswith("model"))
        weights = sum(value.numel() for value in state["model"].values())
        assert 3 < 8 * stored / weights <= 4


def test_moments_lose_something_if_asked_by_name(tmp_path):
    state = training_state(width=128)
    codecs = ["moment.first=affine(8)"]
    save(state, tmp_path, budget=Budget(min_snr=40), profile="transformer", codecs=codecs)
    found = load_all(tmp_path)["optim"]["state"]["0.weight"]
    before = state["optim"]["state"]["0.weight"]
    assert torch.equal(found["exp_avg_sq"], before["exp_avg_sq"])
    assert not torch.equal(found["exp_avg"], before["exp_avg"])
    assert torch.allclose(found["exp_avg"], before["exp_avg"], atol=1e-3)


def test_wrong_options_are_refused_at_once(tmp_path):
    with pytest.raises(PlanError, match="one limit"):
        Writer(tmp_path, budget=Budget(min_snr=3, target_size=4))
    with pytest.raises(OptionError, match="effort"):
        Writer(tmp_path, effort="best")
    with pytest.raises(OptionError, match="at least 1"):
        Reader(tmp_path, threads=0)


def test_urls_are_no_folders_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in (Writer, Reader):
        with pytest.raises(OptionError, match=r"memory://step: expected a path on a disk"):
            kind("memory://step")
        with pytest.raises(OptionError, match="expected a path on a disk"):
            kind("step").reset("memory://step")
    assert not any(tmp_path.iterdir())


def test_threads_are_shared_between_the_ranks_of_a_machine(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr("tensorcomp.integrations.dcp.items.available_threads", lambda: 16)
    assert [Share(0, ranks).threads(None) for ranks in (1, 4, 5, 40)] == [16, 4, 3, 1]
    assert Share(0, 4).threads(7) == 7
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert Share(0, 1).threads(None) == 2


def test_a_save_replaces_the_one_before(tmp_path):
    other = tmp_path / "__0_9.distcp"
    other.write_text("no file of this checkpoint")
    for number in range(3):
        (file,) = save({"w": torch.full((9,), number)}, tmp_path)
        assert file.name == f"__0_{number}.tc.safetensors"
        assert load_all(tmp_path)["w"][0] == number
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".metadata", other.name, "__0_2.tc.safetensors"}
    error = failure(save, {"w": torch.ones(9)}, tmp_path, overwrite=False)
    assert isinstance(error, CheckpointError)
    assert "holds a checkpoint already" in str(error)


def test_plans_that_torch_keeps_never_name_files_of_the_save_before(tmp_path):
    planner = DefaultSavePlanner(enable_plan_caching=True)
    for number in range(3):
        (file,) = save({"w": torch.full((9,), number)}, tmp_path, planner)
        assert file.name == f"__0_{number}.tc.safetensors"
        assert load_all(tmp_path)["w"][0] == number


def test_checkpoints_of_torchs_writer_are_read_and_replaced(tmp_path):
    state = {"w": torch.randn(20, 20), "n": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=tmp_path, no_dist=True)
    assert_same(load_all(tmp_path), state)
    save(state, tmp_path)
    assert not list(tmp_path.glob("*.distcp"))
    assert_same(load_all(tmp_path), state)


def test_the_folder_may_be_given_to_torchs_functions(tmp_path):
    writer, reader = Writer("unused"), Reader("unused")
    for number in range(2):
        folder, state = tmp_path / f"step-{number}", {"w": torch.full((9,), number)}
        dcp.save(state, checkpoint_id=folder, storage_writer=writer, no_dist=True)
        found = {"w": torch.zeros(9, dtype=torch.int64)}
        dcp.load(found, checkpoint_id=folder, storage_reader=reader, no_dist=True)
        assert_same(found, state)
    assert Writer.validate_checkpoint_id(tmp_path)
    assert not Writer.validate_checkpoint_id("s3://bucket/step")


def test_one_line_says_what_is_wrong_with_a_folder(tmp_path):
    state = {"w": torch.randn(50, 50), "v": torch.randn(9)}
    (file,) = save(state, tmp_path)
    sound = file.read_bytes()

    damaged = bytearray(sound)
    damaged[len(sound) // 2] ^= 1
    file.write_bytes(damaged)
    error = failure(load, {"w": torch.zeros(50, 50)}, tmp_path)
    assert isinstance(error, FormatError)
    assert str(file) in str(error)

    file.write_bytes(sound)
    error = failure(load, {"w": torch.zeros(50, 51)}, tmp_path)
    assert "Size mismatch" in str(error)

    file.unlink()
    error = failure(load, {"w": torch.zeros(50, 50)}, tmp_path)
    assert isinstance(error, FileNotFoundError)
    assert f"{file}: cannot be read: there is no such file" in str(error)

    (other,) = save(state, tmp_path / "other")
    other.rename(file)
    error = failure(load, {"w": torch.zeros(50, 50)}, tmp_path)
    assert "got one of another" in str(error)

    (tmp_path / ".metadata").write_bytes(b"\x80\x04junk")
    error = failure(load, {"w": torch.zeros(50, 50)}, tmp_path)
    assert "its .metadata is damaged" in str(error)
    (tmp_path / ".metadata").unlink()
    error = failure(load, {"w": torch.zeros(50, 50)}, tmp_path)
    assert "got a folder without .metadata" in str(error)
    with pytest.raises(CheckpointError, match=r"without \.metadata"):
        Reader(tmp_path).read_metadata()


def test_metadata_that_claim_much_memory_are_damaged(tmp_path):
    save({"w": torch.ones(9)}, tmp_path)
    path = tmp_path / ".metadata"
    damaged = bytearray(path.read_bytes())
    damaged[9] ^= 0xFF  # of the length of a frame
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"its \.metadata is damaged: MemoryError"):
        Reader(tmp_path).read_metadata()


def test_a_relative_folder_is_where_the_process_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writer, reader = Writer("step"), Reader("step")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir("other")
    found = {"w": torch.zeros(9)}
    dcp.save({"w": torch.ones(9)}, storage_writer=writer, no_dist=True)
    dcp.load(found, storage_reader=reader, no_dist=True)
    assert found["w"].sum() == 9
    assert not list((tmp_path / "other").iterdir())


def test_what_names_no_folder_is_refused():
    for take in (Writer, Reader, Writer("step").reset, Reader("step").reset):
        with pytest.raises(CheckpointError, match="cannot hold a NUL"):
            take("a\0b")


def test_torchs_reader_says_which_one_to_take(tmp_path):
    save({"w": torch.randn(9)}, tmp_path)
    error = failure(dcp.load, {"w": torch.zeros(9)}, checkpoint_id=tmp_path, no_dist=True)
    assert "storage_reader=tensorcomp.dcp.Reader" in str(error)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    error = failure(save, {"w": torch.ones(3)}, tmp_path / "file" / "step")
    assert isinstance(error, CheckpointError)
    assert str(tmp_path / "file") in str(error)


@pytest.mark.parametrize(
    "where",
    [
        "tensorcomp.container.writer.CompressedWriter._write",
        "torch.distributed.checkpoint.filesystem.pickle.dump",
    ],
)
def test_a_full_disk_leaves_the_save_before(tmp_path, monkeypatch, where):
    save({"w": torch.ones(3)}, tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(where, full)
    error = failure(save, {"w": torch.zeros(3)}, tmp_path)
    assert isinstance(error, CheckpointError)
    assert "the disk is full" in str(error)
    assert str(tmp_path) in str(error)
    monkeypatch.undo()
    assert load_all(tmp_path)["w"].tolist() == [1, 1, 1]
    assert not list(tmp_path.glob("*tensorcomp-part"))


def test_metadata_name_no_file_outside_their_folder(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder = tmp_path / "step"
    save({"w": torch.ones(3)}, folder)
    metadata = Reader(folder).read_metadata()
    for info in metadata.storage_data.values():
        info.relative_path = "../outside"
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    save({"w": torch.ones(3)}, folder)
    assert outside.read_text() == "mine"


SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from tensorcomp.checkpoints.base import TensorInfo
from tensorcomp.dcp import Reader, Writer

if __name__ == "__main__":
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "GLOO_SOCKET_IFNAME": "lo"}
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for kind in AsyncCheckpointerType:
        state = {"w": torch.randn(500, 500), "step": 3}
        before = state["w"].clone()
        job = dcp.async_save(
            state, storage_writer=Writer(sys.argv[1]), async_checkpointer_type=kind
        )
        state["w"].zero_()
        job.result()
        found = {"w": torch.ones(500, 500), "step": 0}
        dcp.load(found, storage_reader=Reader(sys.argv[1]))
        assert torch.equal(found["w"], before) and found["step"] == 3, kind
        print(kind.value)
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_what_async_save_saves_is_that_of_the_call(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    root = str(Path(tensorcomp.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, tmp_path / "step"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    assert done.stdout.split() == ["thread", "process"], done.stderr
