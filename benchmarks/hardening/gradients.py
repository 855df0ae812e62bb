"""Kill, stop and damage one of three ranks in every collective of every kind of step.

``python -m benchmarks.hardening.gradients`` runs three ranks on loopback with a time-out of 5 s for
each way to exchange gradients (`reducer._REDUCTIONS`, buckets that pass, autotuning, FSDP). A first
run lists the collectives of each event; then one rank is hit in each kind of them in each event:

- kill: SIGKILL before the collective;
- stop: SIGSTOP, and SIGCONT after 8 s;
- corrupt: a bit of what the rank sends is flipped; of sums, of what it receives.

Every other rank must end within the time-out and `MARGIN` and name the rank, or what is damaged;
the states that ranks saved before must load.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tensorcomp.gradients import compress_fsdp, compress_gradients, parse_compressor
from tensorcomp.gradients.ddp import reducer, uncompressed
from tensorcomp.gradients.ddp.checkpoints import from_tensors, to_tensors
from tensorcomp.gradients.ddp.communicator import Communicator
from tensorcomp.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "gradients"))
import ranks

WORLD, VICTIM = 3, 1
TIMEOUT, STOPPED, MARGIN = 5.0, 8.0, 4.0  # seconds
FAULTS = ("kill", "corrupt", "stop")
SAMPLES = ("topk(0.02)", "int8", "powersgd(2)", "error_bounded(max_rel_l2=0.1)", "qsgd(4)")
CAUSES = (f"rank {VICTIM} ", f"rank {VICTIM}:", "arrived damaged")
ASYNC = "all_reduce (async)"


def ways() -> dict[str, str]:
    """Return a compressor for each way to exchange gradients, by its name."""
    found = {}
    for way in reducer._REDUCTIONS:
        text = next((t for t in SAMPLES if parse_compressor(t).reduction == way), None)
        if text is None:
            raise LookupError(f"no sample is reduced by {way!r}; add one to SAMPLES")
        found[way] = f"warmup({text}, steps=3)"
    adaptive = "adaptive(int8, every=1, hysteresis=0)"
    return found | {"fsdp": "int8", "passed": "dense", "autotune": adaptive}


@dataclass(frozen=True)
class Case:
    """Say which collective of which event is hit by which fault."""

    way: str
    text: str
    folder: str = ""
    event: str = ""
    collective: str = ""
    fault: str = ""
    timeout: float = TIMEOUT
    stopped: float = STOPPED


class Hit:
    """Follow the collectives of a rank, and hit it where the case says."""

    def __init__(self, case: Case) -> None:
        self.case, self.event, self.due = case, "set-up", dist.get_rank() == VICTIM
        self.seen: dict[str, list[str]] = defaultdict(list)

    def __call__(self, name: str, data: torch.Tensor, *, received: bool = False) -> None:
        """Note a collective that begins, or has ended; do the fault where it is due."""
        case = self.case
        if not received:
            self.seen[self.event].append(name)
        damages = case.fault == "corrupt"
        if not self.due or (self.event, name) != (case.event, case.collective):
            return
        if received != (damages and name == "all_reduce"):
            return
        self.due = False
        Path(case.folder, "hit").write_text(repr(time.time()))
        if case.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif case.fault == "stop":
            command = f"sleep {case.stopped}; kill -CONT {os.getpid()}"
            subprocess.Popen(["sh", "-c", command], start_new_session=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        elif data.numel():
            flat = data.detach().reshape(-1).view(torch.uint8)
            flat[min(20, flat.numel() // 3)] ^= 16  # behind the head, before the padding

    def watch(self) -> None:
        """Have every collective of the library come here."""
        run, average = Communicator._run, dist.all_reduce

        def watched(comm: Communicator, collective: Any, *arguments: Any) -> None:
            name = collective.__name__
            self(name, arguments[0] if name == "all_reduce" else arguments[1])
            run(comm, collective, *arguments)
            if name == "all_reduce":
                self(name, arguments[0], received=True)

        def passed(buffer: torch.Tensor, **options: Any) -> Any:
            if "async_op" in options:
                self(ASYNC, buffer)
            return average(buffer, **options)

        passed.__name__ = average.__name__
        Communicator._run = watched  # type: ignore[method-assign]
        uncompressed.dist.all_reduce = passed  # type: ignore[attr-defined]


def train(case: Case) -> dict[str, list[str]]:
    """Train on this rank; return the collectives of each event."""
    hit, own = Hit(case), dist.get_rank()
    group = dist.new_group(timeout=timedelta(seconds=case.timeout))
    hit.watch()
    try:
        with _ended(case, own):
            if case.way == "fsdp":
                _train_fsdp(case, hit, group)
            else:
                _train_ddp(case, hit, group)
    finally:
        Path(case.folder, f"ended {own}").write_text(repr(time.time()))
    return dict(hit.seen)


@contextmanager
def _ended(case: Case, rank: int) -> Iterator[None]:
    """Note when and by what a rank ends."""
    try:
        yield
    except BaseException as error:
        found = [time.time(), type(error).__name__, " ".join(str(error).split())]
        Path(case.folder, f"error {rank}").write_text(json.dumps(found))
        raise


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 70), nn.Tanh(), nn.Linear(70, 70), nn.Linear(70, 3))


def _backward(model: nn.Module) -> None:
    model.zero_grad()
    model(torch.randn(4, 64)).square().sum().backward()


def _save(state: dict[str, Any], case: Case) -> None:
    save_file(to_tensors(state), str(Path(case.folder, f"{dist.get_rank()}.safetensors")))


def _train_ddp(case: Case, hit: Hit, group: Any) -> None:
    model = DistributedDataParallel(_network(), process_group=group, bucket_cap_mb=0.01)
    checked = 0 if case.way == "passed" else 1
    options: dict[str, Any] = {"timeout": case.timeout, "check_ranks": checked}
    with compress_gradients(model, case.text, **options) as compression:
        for step in range(16 if case.way == "autotune" else 6):
            tuned = case.way == "autotune" and step >= 8
            changes = {0: "first step", 3: "change of phase"}
            hit.event = "autotune" if tuned else changes.get(step, "step")
            _backward(model)
            _save(compression.state_dict(), case)
        hit.event = "report"
        compression.report(0.5)
        hit.event = "save of means"
        state = compression.state_dict("mean")
        hit.event = "load"
        compression.load_state_dict(state)
        hit.event = "step after load"
        _backward(model)


def _train_fsdp(case: Case, hit: Hit, group: Any) -> None:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model = _network()
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    with compress_fsdp(model, case.text) as compression:
        for step in range(4):
            hit.event = "step" if step else "first step"
            _backward(model)
            _save(compression.state_dict(), case)


def outcome(case: Case) -> tuple[float, list[str]]:
    """Run a case; return the seconds until the last other rank ended, and what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            ranks.run(train, replace(case, folder=folder), world=WORLD, timeout=60, grace=30)
        except ranks.RanksFailed as failed:
            failures = failed.failures
        else:
            return 0.0, ["no rank failed"]
        wrong, last = [], 0.0
        hit = float(Path(folder, "hit").read_text()) if Path(folder, "hit").exists() else 0.0
        for rank in (r for r in range(WORLD) if r != VICTIM):
            at = Path(folder, f"error {rank}")
            if not at.exists():
                kind = failures[rank].kind if rank in failures else "went on"
                wrong.append(f"rank {rank}: {kind}")
                continue
            when, kind, message = json.loads(at.read_text())
            last = max(last, when - hit)
            if not any(cause in message for cause in CAUSES):
                wrong.append(f"rank {rank}: {kind}: {message[:200]}")
        if last > case.timeout + MARGIN:
            wrong.append(f"took {last:.1f} s")
        for path in Path(folder).glob("*.safetensors"):
            from_tensors(load_file(str(path)))
        return last, wrong


def cases(*, quick: bool, only: str) -> Iterator[Case]:
    """Yield a case for each fault in each kind of collective of each event of each way."""
    for way, text in ways().items():
        if only not in ("", way):
            continue
        with tempfile.TemporaryDirectory() as folder:
            seen = ranks.run(train, Case(way, text, folder), world=WORLD, timeout=60)[VICTIM]
        for event, names in seen.items():
            if quick and event not in ("first step", "step", "save of means"):
                continue
            for name in dict.fromkeys(names):
                for fault in FAULTS:
                    if fault == "corrupt" and name == ASYNC:
                        continue  # torch's own sum: nothing can tell
                    if not (quick and fault == "stop" and event != "step"):
                        yield Case(way, text, "", event, name, fault)


def main(
    quick: Annotated[bool, typer.Option(help="Three events only.")] = False,
    only: Annotated[str, typer.Option(help="One way only.")] = "",
    markdown: Annotated[bool, typer.Option("--markdown", hidden=True)] = True,
) -> None:
    """Print a table of what was hit, and how the other ranks ended."""
    rows: dict[tuple[str, str], list[float]] = defaultdict(list)
    faults: list[str] = []
    events: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for case in cases(quick=quick, only=only):
        seconds, wrong = outcome(case)
        rows[case.way, case.fault].append(seconds)
        events[case.way, case.fault][case.event] = None
        line = f"{case.way}, {case.event}, {case.collective}, {case.fault}"
        faults += [f"- {line}: {one}" for one in wrong]
        print(f"{line}: {seconds:.1f} s {wrong or 'ok'}", file=sys.stderr, flush=True)
    print("| exchange | fault | cases | events | slowest end of another rank |")
    print("| --- | --- | ---: | --- | ---: |")
    for (way, fault), times in rows.items():
        named = ", ".join(events[way, fault])
        print(f"| {way} | {fault} | {len(times)} | {named} | {max(times):.1f} s |")
    print(f"\n{sum(map(len, rows.values()))} cases, {len(faults)} faults.")
    print("\n".join(faults))
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    typer.run(main)
