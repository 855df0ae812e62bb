import errno
import os
import random
import signal
import threading
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from ranks import RanksFailed, run
from torch import distributed, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

import tensorcomp
from tensorcomp.container.tensor_blob import TensorBlob
from tensorcomp.dcp import Reader, Writer
from tensorcomp.integrations.dcp import writer as writing

LARGE = (3000, 1024)  # of three chunks


def whole_state():
    generator = torch.Generator().manual_seed(0)
    shapes = {"w": (1001, 96), "one": (1, 5), "vector": (7,), "cube": (5, 4, 6), "large": LARGE}
    state = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    state["half"] = state["w"].bfloat16()
    return state


def sharded(state, dim):
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    return {
        name: distribute_tensor(value, mesh, [Shard(min(dim, value.ndim - 1))])
        for name, value in state.items()
    }


def others():
    return {"same": torch.arange(6), "scalar": torch.tensor(2.5), "step": 7}


def save_sharded(folder, dim):
    warnings.simplefilter("ignore")
    state = {"sharded": sharded(whole_state(), dim), "others": others()}
    dcp.save(state, storage_writer=Writer(folder))


def load_sharded(folder, dim):
    """Load, and return the bytes that were decoded of the largest tensor."""
    warnings.simplefilter("ignore")
    decoded, decode = [0], TensorBlob.decode_chunk

    def counting(self, index, out=None):
        found = decode(self, index, out)
        decoded[0] += found.nbytes if self.grid.shape[1:] == LARGE[1:] else 0
        return found

    TensorBlob.decode_chunk = counting
    expected = whole_state()
    empty = {name: torch.zeros_like(value) for name, value in expected.items()}
    replicated = {"same": torch.zeros(6, dtype=torch.int64), "scalar": torch.zeros(()), "step": 0}
    state = {"sharded": sharded(empty, dim), "others": replicated}
    dcp.load(state, storage_reader=Reader(folder))
    for name, value in expected.items():
        assert torch.equal(state["sharded"][name].full_tensor(), value), name
    for name, value in others().items():
        found = state["others"][name]
        assert torch.equal(found, value) if isinstance(value, torch.Tensor) else found == value
    return decoded[0]


@pytest.fixture(scope="module")
def saved_by_two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "step"
    run(save_sharded, folder, 0)
    return folder


@pytest.mark.parametrize(("world", "dim"), [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1)])
def test_other_ranks_load_what_two_have_saved(saved_by_two, world, dim):
    decoded = run(load_sharded, saved_by_two, dim, world=world)
    size = 4 * LARGE[0] * LARGE[1]
    if dim == 1:  # of which each rank needs a part of every row
        assert decoded == [size] * world
    elif world == 2:
        assert decoded == [size // 2] * 2
    else:
        assert all(each <= size // world + 2 * 4 * 2**20 for each in decoded)


def test_columns_of_two_ranks_are_loaded_by_one(tmp_path):
    run(save_sharded, tmp_path, 1)
    run(load_sharded, tmp_path, 0, world=1)


def test_each_rank_writes_a_file_of_its_part(saved_by_two):
    files = sorted(saved_by_two.glob("*.tc.safetensors"))
    assert [file.name for file in files] == ["__0_0.tc.safetensors", "__1_0.tc.safetensors"]
    tensors = [tensorcomp.load_file(file, framework="pt") for file in files]
    assert all(check.error is None for file in files for check in tensorcomp.verify(file))
    whole = whole_state()["w"]
    assert torch.equal(tensors[0]["sharded.w[0:501]"], whole[:501])
    assert torch.equal(tensors[1]["sharded.w[501:1001]"], whole[501:])
    names = [name for found in tensors for name in found if name.startswith("others")]
    assert sorted(names) == ["others.same", "others.scalar", "others.step"]  # each once


def trained(seed):
    """Return a model under FSDP2, of which rows are divided unevenly, and its optimizer."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(31, 67), nn.Tanh(), nn.Linear(67, 5))
    if distributed.get_world_size() > 1:
        fully_shard(model[0])
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 31)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def full(state):
    if isinstance(state, dict):
        return {name: full(value) for name, value in state.items()}
    if isinstance(state, torch.Tensor):
        return state.full_tensor() if hasattr(state, "full_tensor") else state
    return state


def train_and_save(folder, options):
    warnings.simplefilter("ignore")
    model, optimizer = trained(0)
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": moments}, storage_writer=Writer(folder), **options)
    return full({"model": weights, "optim": moments})


def resume(folder):
    warnings.simplefilter("ignore")
    model, optimizer = trained(1)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optim": moments}
    dcp.load(state, storage_reader=Reader(folder))
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
    )
    weights, moments = get_state_dict(model, optimizer)
    return full({"model": weights, "optim": moments})


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, dict):
            assert_same(value, other[name])
        else:
            same = torch.equal if isinstance(value, torch.Tensor) else lambda a, b: a == b
            assert same(value, other[name]), name


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_model_under_fsdp2_goes_on(tmp_path, world):
    (saved, _) = run(train_and_save, tmp_path, {})
    for found in run(resume, tmp_path, world=world):
        assert_same(saved, found)


def test_ranks_may_save_without_collectives(tmp_path):
    (saved, _) = run(train_and_save, tmp_path, {"use_collectives": False})
    assert {path.name for path in tmp_path.iterdir()} >= {"__0.metadata", "__1.metadata"}
    assert {path.name for path in tmp_path.glob("*.tc.*")} == {
        "__0_0.tc.safetensors",
        "__1_0.tc.safetensors",
    }
    for found in run(resume, tmp_path):
        assert_same(saved, found)


def save_in_a_group(folder):
    warnings.simplefilter("ignore")
    group = distributed.new_group([1, 2])
    if distributed.get_rank():
        state = {"w": torch.arange(9.0), "n": torch.ones(5)}
        dcp.save(state, storage_writer=Writer(folder), process_group=group)
        found = {"w": torch.zeros(9), "n": torch.zeros(5)}
        dcp.load(found, storage_reader=Reader(folder), process_group=group)
        assert torch.equal(found["w"], state["w"])
        assert torch.equal(found["n"], state["n"])


def test_some_ranks_may_save_together(tmp_path):
    run(save_in_a_group, tmp_path, world=3)
    names = sorted(path.name for path in tmp_path.glob("*.tc.safetensors"))
    assert names == ["__0_0.tc.safetensors", "__1_0.tc.safetensors"]  # each tensor once


def save_number(folder, number):
    warnings.simplefilter("ignore")
    values = {"w": torch.full((40, 64), float(number)), "moment": torch.full((40, 64), -number)}
    dcp.save({**sharded(values, 0), "number": number}, storage_writer=Writer(folder))


def complete(folder):
    """Return the number of the save that is complete, of which everything must be there."""
    state = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _load_state_dict(
            state,
            storage_reader=Reader(folder),
            planner=_EmptyStateDictLoadPlanner(),
            no_dist=True,
        )
    number = state["number"]
    assert (state["w"] == number).all()
    assert (state["moment"] == -number).all()
    return number


def save_on_a_full_disk(folder):
    def fill(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if distributed.get_rank() == 1:
        from tensorcomp.container.writer import CompressedWriter

        CompressedWriter._write = fill
    try:
        save_number(folder, 2)
    except CheckpointException as error:
        return {rank: str(cause) for rank, (cause, _) in error.failures.items()}


def test_where_one_rank_fails_all_hear_of_it(tmp_path):
    run(save_number, tmp_path, 1)
    told = run(save_on_a_full_disk, tmp_path)
    assert told[0] == told[1]
    assert list(told[0]) == [1]
    assert "__1_1.tc.safetensors: cannot be written: the disk is full" in told[0][1]
    assert complete(tmp_path) == 1
    run(save_number, tmp_path, 3)
    assert complete(tmp_path) == 3


# Where a rank is killed: before or after a function of the writer, or of what it calls.
STEPS = [
    ("prepare_local_plan", "before", (0, 1)),
    ("write_data", "before", (1,)),
    ("compress_source", "before", (0, 1)),
    ("compress_source", "after", (1,)),
    ("write_data", "after", (0, 1)),
    ("finish", "before", (0,)),
    ("sync", "before", (0,)),  # .metadata is there, the old files are as well
    ("unlink", "after", (0,)),
    ("finish", "after", (0,)),
]


def killed(function, when):
    def wrapped(*arguments, **keywords):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = function(*arguments, **keywords)
        os.kill(os.getpid(), signal.SIGKILL)
        return found

    return wrapped


def save_and_die(folder, name, when, victims):
    if distributed.get_rank() in victims:
        home = next(home for home in (Writer, writing, Path) if hasattr(home, name))
        setattr(home, name, killed(getattr(home, name), when))
    save_number(folder, 2)


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_save_that_is_killed_leaves_a_complete_one(tmp_path, step):
    run(save_number, tmp_path, 1)
    with pytest.raises(RanksFailed):
        run(save_and_die, tmp_path, *step, grace=0.5)
    named = STEPS.index(step) >= STEPS.index(("sync", "before", (0,)))
    assert complete(tmp_path) == (2 if named else 1)
    run(save_number, tmp_path, 3)
    assert complete(tmp_path) == 3
    places = Reader(tmp_path).read_metadata().storage_data.values()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".metadata", *(place.relative_path for place in places)}


def save_until_killed(folder, seconds):
    threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL]).start()
    for number in range(1, 1000):
        save_number(folder, number)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_time_one_save_is_complete(tmp_path, seed):
    run(save_number, tmp_path, 0)
    with pytest.raises(RanksFailed):
        run(save_until_killed, tmp_path, random.Random(seed).uniform(0.05, 0.5), grace=0.5)
    last = complete(tmp_path)
    run(save_number, tmp_path, last + 1)
    assert complete(tmp_path) == last + 1
