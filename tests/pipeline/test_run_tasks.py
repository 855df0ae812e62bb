"""Executors whose workers die, lose tasks or lack files: every shard is there, made once."""

import logging
import multiprocessing
import os
import signal
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from pathlib import Path
from typing import Any

import pytest
from sharded_models import contents, make_shards

import tensorcomp
from tensorcomp import Budget, Progress
from tensorcomp.errors import CheckpointError, OptionError, PlanError
from tensorcomp.pipeline import run_tasks as module
from tensorcomp.planning.statistics import Statistics

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_shards(tmp_path / "m")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.05)


class Faulty(Executor):
    """Runs tasks here, but for the first calls, whose futures are what is given."""

    def __init__(self, *faults: BaseException | None) -> None:
        self.faults = list(faults)
        self.calls: list[str] = []
        self.paths: list[Path] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.append(args[0].source.stem)
        self.paths += [args[0].source, args[0].output, args[0].report]
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, CancelledError):
            future.cancel()
            future.set_running_or_notify_cancel()
        elif fault is not None:
            future.set_exception(fault)
        else:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
        return future


class Bytes(Progress):
    """Counts what is reported."""

    begun = done = 0

    def begin_folder(self, nbytes: int) -> None:
        self.begun, self.done = nbytes, 0

    def advance(self, name: str, nbytes: int) -> None:
        self.done += nbytes


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"budget": Budget(min_snr=20), "keep_names": True},
        {"budget": Budget(bits_per_weight=4)},
        {"codecs": ["mlp=affine(4, 64)"], "effort": "fast"},
        {"profile": "memory"},
    ],
    ids=["lossless", "bound", "size", "tree", "profile"],
)
def test_threads_write_what_one_process_writes(model: Path, options: dict[str, Any]):
    serial = tensorcomp.compress(model, model.parent / "serial", **options)
    progress = Bytes()
    with ThreadPoolExecutor(3) as executor:
        done = tensorcomp.compress(model, executor=executor, progress=progress, **options)
    assert contents(done.path) == contents(serial.path)
    assert done.summary.to_dict() == serial.summary.to_dict()
    assert (
        progress.begun
        == progress.done
        == sum(p.stat().st_size for p in model.glob("*.safetensors"))
    )
    assert not (model.parent / "m.tc.partial").exists()


def test_a_plan_that_takes_too_much_grows_its_steps_on_workers(model: Path, tmp_path: Path):
    plan = tmp_path / "plan.json"
    text = tensorcomp.plan(model, budget=Budget(bits_per_weight=4)).to_json()
    plan.write_text(text.replace('"bits_per_weight": 4', '"bits_per_weight": 3'))
    serial = tensorcomp.compress(model, tmp_path / "serial", plan=plan)
    with ThreadPoolExecutor(2) as executor:
        done = tensorcomp.compress(model, executor=executor, plan=plan)
    assert contents(done.path) == contents(serial.path)


def test_statistics_are_read_by_workers(model: Path, tmp_path: Path):
    import numpy as np

    name = "layers.1.mlp.weight"
    rows = tensorcomp.load_file(model / "model-00002-of-00004.safetensors")[name].shape[0]
    moments = {name: np.diag(np.arange(1, 257, dtype=np.float32))}
    statistics = Statistics(
        {"second_moment": moments, "row_weight": {name: np.ones(rows, np.float32)}},
        positions={name: 1000},
    )
    statistics.save(stats := tmp_path / "stats.safetensors")
    options: dict[str, Any] = {"budget": Budget(bits_per_weight=4)}
    serial = tensorcomp.compress(model, tmp_path / "serial", statistics=stats, **options)
    with ProcessPoolExecutor(2, mp_context=SPAWN) as executor:
        done = tensorcomp.compress(model, executor=executor, statistics=stats, **options)
        assert contents(done.path) == contents(serial.path)
        with pytest.raises(PlanError, match="expected the path of statistics"):
            tensorcomp.compress(model, executor=executor, statistics=statistics, **options)


def _die_once(task: Any, mark: Path) -> Any:
    """Note what is begun, and die at the second shard of the process that is first there."""
    with (mark / "begun").open("a") as file:
        file.write(f"{task.source.stem}\n")
    done = len(list(mark.glob("done-*")))
    if done >= 2:
        try:
            (mark / "dead").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    result = module.run_remotely(task)
    (mark / f"done-{task.source.stem}-{os.getpid()}").touch(exist_ok=False)
    return result


class Dying(Executor):
    """A pool of spawned processes, one of which is killed."""

    def __init__(self, pool: Executor, mark: Path) -> None:
        self.pool, self.mark = pool, mark

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self.pool.submit(_die_once, args[0], self.mark)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_pool_whose_worker_is_killed(model: Path, caplog: pytest.LogCaptureFixture):
    serial = tensorcomp.compress(model, model.parent / "serial")
    mark = model.parent / "mark"
    mark.mkdir()
    with (
        caplog.at_level(logging.WARNING, "tensorcomp"),
        ProcessPoolExecutor(2, mp_context=SPAWN) as pool,
    ):
        done = tensorcomp.compress(model, executor=Dying(pool, mark))
    assert (mark / "dead").exists()
    assert contents(done.path) == contents(serial.path)
    lost = [line for line in caplog.messages if line.startswith("the workers are lost: ")]
    assert len(lost) == 1
    made = [path.name.split("-", 1)[1].rpartition("-")[0] for path in mark.glob("done-*")]
    assert len(made) == len(set(made)) >= 2  # none twice
    assert done.reused <= len(made)  # a result that died with its pool is not made again


@pytest.mark.parametrize("fault", [OSError("stale file handle"), CancelledError(), EOFError()])
def test_what_is_lost_is_run_again(model: Path, fault: BaseException):
    serial = tensorcomp.compress(model, model.parent / "serial")
    executor = Faulty(fault, fault)
    done = tensorcomp.compress(model, executor=executor)
    assert contents(done.path) == contents(serial.path)
    assert len(executor.calls) == 6 + 2
    assert executor.calls[0] == "model-00004-of-00004"  # the largest goes first
    assert set(executor.calls[6:]) == set(executor.calls[:2])


def test_what_fails_always_is_given_up(model: Path):
    executor = Faulty(*[OSError("stale file handle")] * 18)
    with pytest.raises(CheckpointError, match=r"failed 3 times on workers: stale file handle"):
        tensorcomp.compress(model, executor=executor)
    assert max(executor.calls.count(name) for name in executor.calls) == 3


def test_a_damaged_file_ends_the_job_at_once(model: Path):
    (model / "adapter1.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with ThreadPoolExecutor(1) as executor, pytest.raises(CheckpointError, match="adapter1"):
        tensorcomp.compress(model, executor=executor)
    assert not (model.parent / "m.tc").exists()


class Elsewhere(Faulty):
    """Workers on a machine that lacks a file."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        args[0].source.rename(args[0].source.with_suffix(".away"))
        future = super().submit(fn, *args, **kwargs)
        args[0].source.with_suffix(".away").rename(args[0].source)
        return future


def test_a_worker_without_the_file_says_where_it_is(model: Path):
    executor = Elsewhere()
    words = "safetensors: .* has no such file; give a path that all workers see"
    with pytest.raises(CheckpointError, match=words):
        tensorcomp.compress(model, executor=executor)
    assert len(executor.calls) == 6  # none is tried again


def test_an_executor_that_was_ended_resumes(model: Path):
    serial = tensorcomp.compress(model, model.parent / "serial")
    with pytest.raises(KeyboardInterrupt):
        tensorcomp.compress(model, executor=Faulty(None, None, KeyboardInterrupt()))
    with pytest.raises(CheckpointError, match=r"is unfinished: [2-6] of 6"):
        tensorcomp.inspect(model.parent / "m.tc.partial")
    done = tensorcomp.compress(model, executor=Faulty())
    assert done.reused >= 2
    assert contents(done.path) == contents(serial.path)


def test_parts_go_on_where_an_executor_was_ended(model: Path):
    with pytest.raises(KeyboardInterrupt):
        tensorcomp.compress(model, executor=Faulty(None, KeyboardInterrupt()))
    part = tensorcomp.compress(model, part="0/1")
    assert 1 <= part.reused < 6
    tensorcomp.merge(model)


def test_relative_paths_are_made_absolute(model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(model.parent)
    executor = Faulty()
    seen: list[Path] = []
    submit = executor.submit
    executor.submit = lambda fn, task: (seen.extend([task.source, task.output]), submit(fn, task))[
        1
    ]  # type: ignore[assignment, misc]
    tensorcomp.compress("m", "out", executor=executor)
    assert seen
    assert all(path.is_absolute() for path in seen)


def test_executors_do_not_prune(model: Path):
    with pytest.raises(PlanError, match="pruning sees a model as a whole"):
        tensorcomp.compress(model, executor=Faulty(), prune=tensorcomp.Pruning("magnitude", 0.5))
    with pytest.raises(PlanError, match="expected part=…, executor=… or"):
        tensorcomp.compress(model, executor=Faulty(), part="0/2")


@pytest.mark.parametrize("words", ["after shutdown", "has no attribute 'submit'"])
def test_what_takes_no_tasks_is_no_executor(model: Path, words: str):
    executor: Any = "a pool"
    if words == "after shutdown":
        executor = ThreadPoolExecutor(1)
        executor.shutdown()
    with pytest.raises(OptionError, match=f"expected an executor that takes tasks.*{words}"):
        tensorcomp.compress(model, executor=executor)
