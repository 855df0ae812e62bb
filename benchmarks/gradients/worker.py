"""One rank of the benchmark of gradients on the wire: does what lines of JSON ask, answers each.

``join`` the group; ``open`` a training under a name, with a way to send gradients, and do the steps
that are in no figure; ``run`` so many steps of it, and tell seconds and what the interface counted;
``close`` it. The process ends with its input.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
import zlib
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.gradients.network import resnet18
from benchmarks.gradients.ways import WAYS, choices_of, figures_of

BATCH = 2  # images a rank: forward and backward then take about 100 ms
COLLECTIVE_SECONDS = 90
LEARNING_RATE = 0.01
MOMENTUM = 0.9

_CLASSES = 10
_ROUND_TRIPS = 9


class Training:
    """A model on one rank, trained on random images, its gradients sent in one of the ways."""

    def __init__(self, way: str) -> None:
        torch.manual_seed(0)
        chosen = WAYS[way]
        self.model = resnet18(_CLASSES)
        self.parallel = DistributedDataParallel(
            self.model, broadcast_buffers=False, **chosen.options()
        )
        momentum = 0.0 if chosen.own_momentum else MOMENTUM
        self.optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, momentum=momentum)
        self.compression = chosen.attach(self.parallel, self.optimizer)
        self.random = torch.Generator().manual_seed(1 + dist.get_rank())

    def step(self) -> float:
        """Do one step; return its seconds."""
        images = torch.randn(BATCH, 3, 32, 32, generator=self.random)
        labels = torch.randint(0, _CLASSES, (BATCH,), generator=self.random)
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.parallel(images), labels).backward()
        self.optimizer.step()
        return time.perf_counter() - begin

    def digest(self) -> int:
        """Return a checksum of all parameters, equal on ranks that are in step."""
        found = 0
        for parameter in self.model.parameters():
            found = zlib.crc32(parameter.detach().numpy().tobytes(), found)
        return found

    def finite(self) -> bool:
        """Tell whether all parameters are finite."""
        return all(bool(p.isfinite().all()) for p in self.model.parameters())

    def close(self) -> None:
        """End what a compression runs beside the model."""
        if self.compression is not None:
            self.compression.close()


class Rank:
    """State of a process between two commands."""

    def __init__(self) -> None:
        self.trainings: dict[str, Training] = {}
        interface = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
        self.counters = Path("/sys/class/net") / interface / "statistics"

    def answer(self, what: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked."""
        do = what.pop("do")
        if do not in ("join", "open", "run", "close"):
            raise ValueError(f"nobody knows how to {do!r}")
        found: dict[str, Any] = getattr(self, do)(**what)
        return found

    def join(self) -> dict[str, Any]:
        """Join the group of all ranks."""
        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=timedelta(seconds=COLLECTIVE_SECONDS))
        return {"parameters": sum(p.numel() for p in resnet18(_CLASSES).parameters())}

    def open(self, way: str, discard: int) -> dict[str, Any]:
        """Begin a training, and do the steps in which buckets and buffers find their sizes."""
        training = self.trainings[way] = Training(way)
        seconds = [training.step() for _ in range(discard)]
        return {"seconds": seconds}

    def run(self, way: str, steps: int) -> dict[str, Any]:
        """Do some steps, and tell what they took and what was sent and received meanwhile."""
        training = self.trainings[way]
        round_trip = self.round_trip()
        dist.barrier()
        before = self.counted()
        seconds = [training.step() for _ in range(steps)]
        dist.barrier()  # what others still had in their queues has come, and is counted
        sent, received = (now - then for now, then in zip(self.counted(), before, strict=True))
        return {
            "seconds": seconds,
            "round_trip": round_trip,
            "sent": sent,
            "received": received,
            "digest": training.digest(),
            "finite": training.finite(),
            "figures": figures_of(training.compression, steps),
            "choices": choices_of(training.compression),
        }

    def round_trip(self) -> float:
        """Return the median seconds in which all ranks sum one number."""
        taken = []
        for _ in range(_ROUND_TRIPS):
            begin = time.perf_counter()
            dist.all_reduce(torch.zeros(1))
            taken.append(time.perf_counter() - begin)
        return median(taken)

    def counted(self) -> tuple[int, int]:
        """Return the bytes that the interface has sent and received."""
        sent, received = (int((self.counters / f"{way}_bytes").read_text()) for way in ("tx", "rx"))
        return sent, received

    def close(self, way: str) -> dict[str, Any]:
        """End a training."""
        self.trainings.pop(way).close()
        return {}


def main() -> None:
    """Answer line by line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    asked: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(asked,), daemon=True).start()
    rank = Rank()
    while True:
        try:
            answer = rank.answer(json.loads(asked.get()))
        except Exception as error:  # reported to the caller, which ends all ranks
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _read(asked: "queue.Queue[str]") -> None:
    """Pass lines on; end the process, whatever it waits for, when nobody will ask any more."""
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
