"""Exchange, count and time bytes and arrays between ranks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tensorcomp.errors import GradientError
from tensorcomp.gradients.ddp.checksums import check_digests, digest, packed, unpacked
from tensorcomp.gradients.ddp.roll_call import LostRanksError, RollCall

_HEAD = 16  # bytes at the front of a frame: its true length and its checksum, little-endian
_ALIGNMENT = 64
_SLACK_SHIFT = 7  # capacities leave 1/128 of slack: lengths of coded positions vary less
_MIN_SLACK = 64


@dataclass(frozen=True)
class Exchange:
    """Describe one collective: what this rank had to send, and how long it took.

    Parameters
    ----------
    kind : str
        ``"all_gather"``, ``"all_to_all"`` or ``"all_reduce"``.
    nbytes : int
        What this rank gave to it: a frame with its head and its padding, or an array.
    bytes_sent : float
        By this rank, from the formula of the collective's ring: (W − 1) frames for an all-gather,
        2 (W − 1) / W arrays for an all-reduce, what is for other ranks for an all-to-all.
    seconds : float
        Until it was done on this rank, waiting for slower ranks included.
    """

    kind: str
    nbytes: int
    bytes_sent: float
    seconds: float


class Scratch:
    """Keep arrays to be used again: fresh memory costs a page fault every 4 KiB."""

    def __init__(self) -> None:
        self._arrays: dict[object, np.ndarray] = {}

    def array(self, key: object, size: int, dtype: Any = np.uint8) -> np.ndarray:
        """Return an uninitialized flat array; the key's previous one is invalid."""
        kept = self._arrays.get(key)
        if kept is None or kept.size < size or kept.dtype != dtype:
            kept = self._arrays[key] = np.empty(size, dtype)
        return kept[:size]


class Communicator:
    """Run the collectives of one process group; only one thread may use it.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup
    device : torch.device
        Where gradients are; NCCL takes tensors there, all other backends on the CPU.
    """

    def __init__(self, group: dist.ProcessGroup, device: torch.device | str = "cpu") -> None:
        self.group = group
        self.device = torch.device(device if dist.get_backend(group) == "nccl" else "cpu")
        self.rank: int = dist.get_rank(group)
        self.world: int = dist.get_world_size(group)
        self.roll_call = RollCall(_store(group), self.rank, self.world)
        self.exchanges: list[Exchange] = []
        self._capacities: dict[str, int] = {}
        self._scratch = Scratch()

    def take_exchanges(self) -> list[Exchange]:
        """Return the collectives since the last call."""
        taken, self.exchanges = self.exchanges, []
        return taken

    def all_gather_bytes(self, data: bytes, key: str) -> list[np.ndarray]:
        """Return the bytes of every rank, (length,) uint8, in rank order.

        Frames have a fixed size, which all ranks agree on from the lengths that they saw last time,
        so that one collective is enough; if some rank's bytes do not fit, all ranks see that from
        the frames' heads and gather the rest. The first time, lengths are gathered before. The key
        says what the bytes are of: it is the same on all ranks, in the same order. What is returned
        are views, valid until the next call with this key.
        """
        own = np.frombuffer(data, np.uint8)
        if self.world == 1:
            return [own]
        capacity = self._capacities.get(key)
        if capacity is None:
            capacity = _capacity(int(self._gather_lengths(own.size).max()))
        frame = self._scratch.array(f"{key} out", _HEAD + capacity)
        frame[:_HEAD] = np.append(packed([own.size]), digest(own))
        frame[_HEAD : _HEAD + own.size] = own[:capacity]
        received = self._gather(frame, f"{key} in")
        lengths = unpacked(received[:, :8])[:, 0].tolist()
        longest = max(lengths)
        self._capacities[key] = _capacity(longest)
        rows = [row[_HEAD : _HEAD + size] for row, size in zip(received, lengths, strict=True)]
        if longest > capacity:
            more = self._scratch.array(f"{key} rest out", longest - capacity)
            more[: max(0, own.size - capacity)] = own[capacity:]
            rests = self._gather(more, f"{key} rest in")
            rows = [
                np.concatenate([row, tail[: max(0, size - capacity)]])
                for row, tail, size in zip(rows, rests, lengths, strict=True)
            ]
        check_digests(rows, [row[8:_HEAD] for row in received])
        return rows

    def all_gather_values(self, value: Any, key: str) -> list[Any]:
        """Return the value of every rank, in rank order.

        Values are those that JSON can hold.
        """
        rows = self.all_gather_bytes(json.dumps(value).encode(), key)
        return [json.loads(row.tobytes()) for row in rows]

    def all_to_all_bytes(self, parts: Sequence[bytes]) -> list[np.ndarray]:
        """Send part r to rank r, and return what each rank sent here, in rank order.

        Parts may be empty; what is returned is (length,) uint8 for each rank.
        """
        arrays = [np.frombuffer(part, np.uint8) for part in parts]
        if len(arrays) != self.world:
            raise ValueError(f"{len(arrays)} parts for {self.world} ranks; give one for each")
        if self.world == 1:
            return arrays
        arrays = [np.append(array, digest(array)) for array in arrays]
        sizes = [array.size for array in arrays]
        incoming = self._gather_lengths(*sizes)[:, self.rank].tolist()
        sent = np.concatenate(arrays, out=self._scratch.array("to all", sum(sizes)))
        received = torch.empty(sum(incoming), dtype=torch.uint8, device=self.device)
        started = time.perf_counter()
        self._run(dist.all_to_all_single, received, self._tensor(sent), incoming, sizes)
        joined = received.cpu().numpy()
        self._note("all_to_all", sum(sizes), sum(sizes) - sizes[self.rank], started)
        rows = np.split(joined, np.cumsum(incoming)[:-1])
        check_digests([row[:-8] for row in rows], [row[-8:] for row in rows])
        return [row[:-8] for row in rows]

    def all_reduce_mean(self, array: np.ndarray) -> np.ndarray:
        """Replace an array by its mean over all ranks, bit-identical on all.

        It holds floats, is contiguous, and has the same shape and dtype on all ranks. It is
        multiplied by 1 / W first and summed then, as DistributedDataParallel does.
        """
        if self.world == 1:
            return array
        started = time.perf_counter()
        moved = self._tensor(array)
        moved.mul_(1.0 / self.world)
        self._run(dist.all_reduce, moved)
        _copy_back(moved, array)
        ring = 2 * (self.world - 1) / self.world
        self._note("all_reduce", array.nbytes, ring * array.nbytes, started)
        return array

    def probe(self, nbytes: int) -> Exchange:
        """Time an all-gather of so many bytes that begins on all ranks at once."""
        for size, name in ((1, "meeting"), (nbytes, "probe")):
            self._gather(self._scratch.array(f"{name} out", size), f"{name} in")
        return self.exchanges[-1]

    def _gather_lengths(self, *lengths: int) -> np.ndarray:
        """Return all ranks' lengths, a row for each rank."""
        return unpacked(self._gather(packed(lengths), "lengths"))

    def _gather(self, own: np.ndarray, name: str) -> np.ndarray:
        """All-gather equally long bytes into kept memory, a row for each rank."""
        started = time.perf_counter()
        everyone = self._scratch.array(name, own.size * self.world)
        moved = self._tensor(everyone)
        # torch 2.13 renamed it and deprecated the old name
        gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self._run(gather, moved, self._tensor(own))
        _copy_back(moved, everyone)
        self._note("all_gather", own.size, (self.world - 1) * own.size, started)
        return everyone.reshape(self.world, -1)

    def _run(self, collective: Callable[..., Any], *arguments: Any) -> None:
        """Run a collective of torch's; say which ranks are lost where it fails."""
        try:
            collective(*arguments, group=self.group)
        except RuntimeError as error:
            raise LostRanksError(self.roll_call.missing(str(error))) from error

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        """Return an array where collectives take it: a view on the CPU."""
        return torch.from_numpy(array).to(self.device)

    def _note(self, kind: str, nbytes: int, bytes_sent: float, started: float) -> None:
        exchange = Exchange(kind, nbytes, float(bytes_sent), time.perf_counter() - started)
        self.exchanges.append(exchange)


def _copy_back(moved: torch.Tensor, array: np.ndarray) -> None:
    if moved.device.type != "cpu":
        torch.from_numpy(array).copy_(moved)


def _capacity(length: int) -> int:
    slack = max(_MIN_SLACK, length >> _SLACK_SHIFT)
    return -(-(length + slack) // _ALIGNMENT) * _ALIGNMENT


def _store(group: dist.ProcessGroup) -> Any:
    """Return the store of a group."""
    if hasattr(group, "get_group_store"):
        return group.get_group_store()
    from torch.distributed import distributed_c10d  # torch 2.4 and 2.5

    return distributed_c10d._world.pg_map[group][1]


def check_alike(comm: Communicator, lines: Sequence[str], what: str = "ranks differ") -> None:
    """Refuse ranks whose settings differ, naming the first difference.

    All ranks call it together, each with its own lines, and all of them raise.
    """
    rows = comm.all_gather_bytes("\n".join(lines).encode(), "ranks alike")
    first, *others = [row.tobytes().decode().split("\n") for row in rows]
    for rank, found in enumerate(others, 1):
        for here, there in zip_longest(first, found, fillvalue="nothing"):
            if here != there:
                raise GradientError(
                    f"{what}: rank 0 has {here}, and in its place rank {rank} has {there}; build "
                    "the model and the compressor alike on all ranks"
                )
