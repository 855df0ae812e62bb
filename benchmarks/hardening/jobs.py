"""Everything that writes or reads files, and what must hold whenever it was stopped.

A new writer is one more entry of `WRITERS`, a new reader one of `READERS`. `kills` kills each
writer, `disks` lets the disk fail under all.
"""

import contextlib
import functools
import hashlib
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.numpy import save_file
from torch.distributed.checkpoint.api import CheckpointException

import tensorcomp
import tensorcomp.dcp as dcp_files
from tensorcomp.benchmark.run import bench
from tensorcomp.calibration.calibrate import calibrate
from tensorcomp.container.compressed_folder import COMPRESSED
from tensorcomp.errors import VerificationError
from tensorcomp.gradients.ddp.checkpoints import (
    from_tensors,
    load_distributed,
    save_distributed,
    to_tensors,
)
from tensorcomp.io.files import is_temporary
from tensorcomp.planning.statistics import Statistics
from tensorcomp.pruning.lottery_ticket.lottery import find_ticket
from tensorcomp.reports import save_report

SHARD = "model-00001-of-00001.safetensors"
Work: TypeAlias = Callable[[Path], object]
OLD, NEW = 1, 0  # seeds of the model that was there, and of the one that takes its place


class Writer(NamedTuple):
    """How a job is prepared and run, and the check that must pass whenever it was stopped."""

    prepare: Work
    run: Work
    check: Work


def make_model(folder: Path, seed: int = NEW, shards: int = 3) -> None:
    """Write a model in shards."""
    generator = np.random.default_rng(seed)
    folder.mkdir()
    for number in range(shards):
        weights = {f"{number}.w": generator.standard_normal((64, 256), np.float32)}
        save_file(weights, folder / f"model-{number + 1:05}-of-{shards:05}.safetensors")
    (folder / "config.json").write_text(f'{{"seed": {seed}}}')


def _digests(folder: Path) -> list[str]:
    return sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir())


@functools.cache
def _wanted(seed: int) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        make_model(Path(name) / "m", seed)
        return _digests(Path(name) / "m")


def _require_whole(folder: Path, *seeds: int) -> None:
    """Require that every shard of one model is there, in one form or the other, and all whole."""
    if not folder.is_dir():
        raise AssertionError(f"{folder} is gone")
    with tempfile.TemporaryDirectory() as name:
        files = [path for path in folder.iterdir() if not is_temporary(path)]
        for path in files:
            if path.name.endswith(COMPRESSED):
                restored = Path(name) / path.name.replace(COMPRESSED, ".safetensors")
                tensorcomp.decompress(path, restored, threads=1)
        for path in files:
            other = Path(name) / path.name
            if path.name.endswith(COMPRESSED):
                continue
            if other.exists() and other.read_bytes() != path.read_bytes():
                raise AssertionError(f"{path} and its compressed form differ")
            shutil.copy(path, other)
        if _digests(Path(name)) not in [_wanted(seed) for seed in seeds]:
            raise AssertionError(f"{folder} is neither old nor new")


def _prepare(verb: str) -> Callable[[Path], None]:
    """Return what makes a model to compress or decompress, and the output of another one."""

    def prepare(folder: Path) -> None:
        for name, seed in (("m", NEW), ("out", OLD)):
            make_model(folder / name, seed)
            if (verb == "compress") == (name == "out"):
                tensorcomp.compress(folder / name, replace=True, threads=1)

    return prepare


def _out(verb: Callable[..., Any]) -> Work:
    return lambda folder: verb(folder / "m", folder / "out", force=True, threads=1)


def _check_out(folder: Path) -> None:
    _require_whole(folder / "m", NEW)
    _require_whole(folder / "out", OLD, NEW)


def _in_place(verb: Callable[..., Any]) -> Work:
    def run(folder: Path) -> None:
        is_compressed = any(path.name.endswith(COMPRESSED) for path in (folder / "m").iterdir())
        if verb is tensorcomp.compress or is_compressed:  # else it had ended
            verb(folder / "m", replace=True, threads=1)

    return run


def _in_parts(folder: Path) -> None:
    for number in range(2):
        tensorcomp.compress(folder / "m", folder / "out", part=(number, 2), force=True, threads=1)


def _merge(folder: Path) -> None:
    tensorcomp.merge(folder / "m", folder / "out", force=True)


def _merge_or_redo(folder: Path) -> None:
    """Merge parts; compress them first where they are merged, or their sources seem changed."""
    try:
        if not (folder / "out.partial").exists():
            _in_parts(folder)
        _merge(folder)
    except VerificationError:
        _in_parts(folder)
        _merge(folder)


def _on_executor(folder: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        tensorcomp.compress(folder / "m", folder / "out", executor=executor, force=True)


def _compress_file(folder: Path) -> None:
    tensorcomp.compress(
        folder / "m" / SHARD,
        folder / f"x{COMPRESSED}",
        force=True,
        threads=1,
    )


def _prepare_file(folder: Path) -> None:
    for seed in (OLD, NEW):
        make_model(folder / "m", seed, shards=1)
        if seed == OLD:
            _compress_file(folder)
            (folder / "m").rename(folder / "old")


def _check_file(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = tensorcomp.decompress(folder / f"x{COMPRESSED}", Path(name) / "x.safetensors")
        sources = [*folder.glob("m/*.safetensors"), *folder.glob("old/*.safetensors")]
        if path.read_bytes() not in [source.read_bytes() for source in sources]:
            raise AssertionError("the file is neither old nor new")


def _find_ticket(folder: Path) -> None:
    def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, *steps: int) -> None:
        for _ in range(*steps):
            optimizer.zero_grad()
            model(torch.randn(4, 64)).square().sum().backward()
            optimizer.step()

    find_ticket(
        lambda: torch.nn.Linear(64, 64),
        lambda model: torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9),
        train,
        steps=3,
        sparsities=(0.3, 0.5),
        rewind=1,
        folder=folder / "ticket",
    )


@functools.cache
def _sound_ticket() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        _find_ticket(Path(name))
        return {path.name: path.read_bytes() for path in Path(name, "ticket").iterdir()}


def _check_ticket(folder: Path) -> None:
    sound = _sound_ticket()
    for path in (folder / "ticket").glob("*"):
        if not is_temporary(path) and path.read_bytes() != sound.get(path.name):
            raise AssertionError(f"{path.name} is not what an unbroken search writes")


def _calibrate(seed: int) -> Work:
    def measure(folder: Path) -> None:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.Linear(64, 8))
        data, out = [torch.randn(32, 256)] * 2, folder / "stats.safetensors"
        kinds, memory = ("second_moment", "row_weight"), 1 << 18  # a layer at once
        calibrate(model, data, statistics=kinds, memory=memory, out=out, force=True)

    return measure


@functools.cache
def _sound(work: Callable[[int], Work], name: str) -> list[bytes]:
    """Return the file that a job writes, of the old model and of the new one."""
    found = []
    for seed in (OLD, NEW):
        with tempfile.TemporaryDirectory() as folder:
            work(seed)(Path(folder))
            found.append(Path(folder, name).read_bytes())
    return found


def _check(work: Callable[[int], Work], name: str) -> Work:
    def check(folder: Path) -> None:
        if (folder / name).read_bytes() not in _sound(work, name):
            raise AssertionError(f"{name} is neither old nor new")

    return check


def _quantize(seed: int) -> Work:
    """Return what compresses a model with statistics, and makes both models at first."""

    def quantize(folder: Path) -> None:
        models = {each: folder / f"{each}.safetensors" for each in (OLD, NEW)}
        for each, path in models.items():
            weights = np.random.default_rng(each).standard_normal((64, 256), np.float32)
            if not path.exists():
                save_file({"w": weights}, path)
        moments = np.diag(np.arange(1, 257, dtype=np.float32))
        statistics = Statistics(
            {"second_moment": {"w": moments}, "row_weight": {"w": np.ones(64, np.float32)}},
            positions={"w": 1000},
        )
        tensorcomp.compress(
            models[seed],
            folder / f"x{COMPRESSED}",
            budget=tensorcomp.Budget(max_output_error=0.1),
            statistics=statistics,
            force=True,
            threads=1,
        )

    return quantize


def _state(step: int) -> dict[str, Any]:
    states = {"w": {"residual": torch.full((20000,), float(step)), "step": step}}
    return {"version": 1, "states": states, "means": {}}


def _check_state(state: dict[str, Any]) -> None:
    found = state["states"]["w"]
    if found["step"] not in (1, 2) or found["residual"].unique().tolist() != [found["step"]]:
        raise AssertionError("a state of neither step")


def _save_state(step: int) -> Work:
    return lambda folder: tensorcomp.save_file(
        to_tensors(_state(step)), folder / f"state{COMPRESSED}", threads=1
    )


def _load_state(folder: Path) -> None:
    path = folder / f"state{COMPRESSED}"
    _check_state(from_tensors(tensorcomp.load_file(path, framework="pt")))


def _save_distributed(step: int) -> Work:
    def save(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own
            save_distributed(_state(step), str(folder / "state"))

    return save


def _load_distributed(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _check_state(load_distributed(str(folder / "state"), 0))


@contextlib.contextmanager
def _own_error() -> Iterator[None]:
    """Raise the error of the one rank, as a job of several reports it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except CheckpointException as error:
        ((own, _),) = error.failures.values()
        raise own from error


def _save_by_dcp(step: int) -> Work:
    def save(folder: Path) -> None:
        state = {"w": torch.full((20000,), float(step)), "step": step}
        with _own_error():
            dcp.save(state, storage_writer=dcp_files.Writer(folder / "step"), no_dist=True)

    return save


def _load_by_dcp(folder: Path) -> None:
    state = {"w": torch.zeros(20000), "step": 0}
    with _own_error():
        dcp.load(state, storage_reader=dcp_files.Reader(folder / "step"), no_dist=True)
    if state["step"] not in (1, 2) or state["w"].unique().tolist() != [state["step"]]:
        raise AssertionError("a state of neither step")


def _save_report(seed: int) -> Work:
    def save(folder: Path) -> None:
        if not (folder / "m").exists():
            make_model(folder / "m", shards=1)
        found, out = tensorcomp.inspect(folder / "m"), folder / "report.html"
        save_report(found, out, title=f"model {seed}", force=True)

    return save


def _write_metrics(folder: Path) -> None:
    with tensorcomp.MetricsFile(folder / "job.prom") as metrics:
        metrics.advance("w", 1)


def _whole(name: str, pattern: str) -> Work:
    def check(folder: Path) -> None:
        if not re.fullmatch(pattern, (folder / name).read_text(), re.DOTALL):
            raise AssertionError(f"{name} is not whole")

    return check


def _series_state(step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the weights and the optimizer's state of a step, near those of the one before."""
    steps = np.random.default_rng(0).standard_normal((step + 1, 2, 64, 96), np.float32)
    steps[1:] *= 1e-3
    weight, moment = (torch.from_numpy(one) for one in steps.sum(axis=0))
    state = {0: {"exp_avg": moment, "exp_avg_sq": moment.square(), "step": torch.tensor(step)}}
    return {"w": weight}, {"state": state, "param_groups": []}


def _add_to_series(folder: Path, step: int = 5) -> None:
    with tensorcomp.Series(folder / "run", keyframe_every=3, threads=1) as series:
        if series.latest != step:
            series.add(step, *_series_state(step))
        series.gc()  # which removes what a killed run has left


def _in_series(*verbs: tuple[str, Any]) -> Work:
    def work(folder: Path) -> None:
        if not (folder / "run").exists():
            for step in range(1, 5):
                _add_to_series(folder, step)
        with tensorcomp.Series(folder / "run", threads=1) as series:
            for verb, argument in verbs:
                getattr(series, verb)(argument)

    return work


_THIN, _GC, _REBASE = ("thin", ["last:1"]), ("gc", 0.0), ("rebase", 1)


def _check_series(folder: Path) -> None:
    """Require that every step is there, its weights exact and the last one's state, too."""
    series = tensorcomp.Series(folder / "run", threads=1)
    found = {step.step: step.has_optimizer for step in series.steps}
    if not {1, 2, 3, 4} <= found.keys() or not found[max(found)]:
        raise AssertionError(f"the steps are {found}")
    if faults := [fault for fault in series.verify(deep=True) if fault.steps]:
        raise AssertionError(f"{faults}")
    for step, has_optimizer in found.items():
        model, optimizer = _series_state(step)
        if not torch.equal(series.get(step, "w", framework="pt"), model["w"]):
            raise AssertionError(f"the weights of step {step} are others")
        moment = optimizer["state"][0]["exp_avg"]
        name = "optimizer.state.0.exp_avg"
        if has_optimizer and not torch.equal(series.get(step, name, framework="pt"), moment):
            raise AssertionError(f"the moments of step {step} are others")


WRITERS: dict[str, Writer] = {
    "series add": Writer(_in_series(), _add_to_series, _check_series),
    "series thin": Writer(_in_series(), _in_series(_THIN), _check_series),
    "series gc": Writer(_in_series(_THIN), _in_series(_GC), _check_series),
    "series rebase": Writer(_in_series(), _in_series(_REBASE), _check_series),
    "series thin, rebase, gc": Writer(
        _in_series(), _in_series(_THIN, _REBASE, _GC, _GC), _check_series
    ),
    "compress a file": Writer(_prepare_file, _compress_file, _check_file),
    "compress a folder": Writer(_prepare("compress"), _out(tensorcomp.compress), _check_out),
    "compress --part, merge": Writer(
        _prepare("compress"), lambda folder: (_in_parts(folder), _merge(folder)), _check_out
    ),
    "merge": Writer(
        lambda folder: (_prepare("compress")(folder), _in_parts(folder)),
        _merge_or_redo,
        _check_out,
    ),
    "compress on an executor": Writer(_prepare("compress"), _on_executor, _check_out),
    "compress --replace": Writer(
        lambda folder: make_model(folder / "m"),
        _in_place(tensorcomp.compress),
        lambda folder: _require_whole(folder / "m", NEW),
    ),
    "decompress a folder": Writer(_prepare("decompress"), _out(tensorcomp.decompress), _check_out),
    "decompress --replace": Writer(
        lambda folder: (
            make_model(folder / "m"),
            tensorcomp.compress(folder / "m", replace=True, threads=1),
        ),
        _in_place(tensorcomp.decompress),
        lambda folder: _require_whole(folder / "m", NEW),
    ),
    "lottery ticket": Writer(lambda folder: None, _find_ticket, _check_ticket),
    "calibrate": Writer(_calibrate(OLD), _calibrate(NEW), _check(_calibrate, "stats.safetensors")),
    "quantize with statistics": Writer(
        _quantize(OLD), _quantize(NEW), _check(_quantize, f"x{COMPRESSED}")
    ),
    "report": Writer(
        *(_save_report(OLD), _save_report(NEW)),
        _whole("report.html", r"<!doctype html>.*<h1>model [01]</h1>.*</html>\n?"),
    ),
    "metrics": Writer(_write_metrics, _write_metrics, _whole("job.prom", r"# TYPE.*\n# EOF\n")),
    "gradient state": Writer(_save_state(1), _save_state(2), _load_state),
    "distributed checkpoint": Writer(_save_by_dcp(1), _save_by_dcp(2), _load_by_dcp),
    "distributed state": Writer(_save_distributed(1), _save_distributed(2), _load_distributed),
}


def _make_inputs(folder: Path) -> None:
    make_model(folder / "m", shards=1)
    tensorcomp.compress(folder / "m" / SHARD, folder / f"x{COMPRESSED}", threads=1)
    weights = {"w": np.random.default_rng(0).standard_normal((128, 256), np.float32)}
    np.savez(folder / "x.npz", **weights)
    torch.save({"w": torch.from_numpy(weights["w"])}, folder / "x.pt")


def _verify(against: str | None) -> Work:
    def verify(folder: Path) -> None:
        original = None if against is None else folder / against
        for check in tensorcomp.verify(folder / f"x{COMPRESSED}", original, threads=1):
            if check.error is not None:
                raise VerificationError(f"{check.file}: {check.error}")

    return verify


def _compress(name: str) -> Work:
    return lambda folder: tensorcomp.compress(
        folder / name, folder / f"new{COMPRESSED}", force=True, threads=1
    )


READERS: dict[str, Work] = {
    "inspect": lambda folder: tensorcomp.inspect(folder / "m"),
    "inspect, compressed": lambda folder: tensorcomp.inspect(folder / f"x{COMPRESSED}"),
    "verify": _verify(None),
    "verify --against": _verify(f"m/{SHARD}"),
    "compare": lambda folder: tensorcomp.compare(folder / "m" / SHARD, folder / f"x{COMPRESSED}"),
    "load": lambda folder: tensorcomp.load_file(folder / f"x{COMPRESSED}"),
    "plan": lambda folder: tensorcomp.plan(
        folder / "m", budget=tensorcomp.Budget(min_snr=30), threads=1
    ),
    "bench": lambda folder: bench(folder / "m", most=1000),
    "compress npz": _compress("x.npz"),
    "compress torch": _compress("x.pt"),
    "decompress": lambda folder: tensorcomp.decompress(
        folder / f"x{COMPRESSED}", folder / "back.safetensors", force=True, threads=1
    ),
}
ALL: dict[str, Writer] = {
    **WRITERS,
    **{name: Writer(_make_inputs, read, read) for name, read in READERS.items()},
}
