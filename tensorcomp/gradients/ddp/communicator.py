"""Exchange, count and time bytes and arrays between ranks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tensorcomp.errors import GradientError

_HEAD = 8  # bytes at the front of a frame: its true length, little-endian
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


class Communicator:
    """Run the collectives of one process group; only one thread may use it.

    What it returns of `all_gather_bytes` lies in memory that the next call with the same key
    overwrites.

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
        self.exchanges: list[Exchange] = []
        self._capacities: dict[str, int] = {}
        self._buffers: dict[str, torch.Tensor] = {}

    def take_exchanges(self) -> list[Exchange]:
        """Return the collectives since the last call."""
        taken, self.exchanges = self.exchanges, []
        return taken

    def all_gather_bytes(
        self, data: bytes | np.ndarray | Sequence[bytes | np.ndarray], key: str
    ) -> list[np.ndarray]:
        """Return the bytes of every rank, in rank order.

        Frames have a fixed size, which all ranks agree on from the lengths that they saw last time,
        so that one collective is enough; if some rank's bytes do not fit, all ranks see that from
        the frames' heads and gather the rest. The first time, lengths are gathered before.

        Parameters
        ----------
        data : bytes, numpy.ndarray of uint8, or a sequence of them
            A sequence is sent as if joined.
        key : str
            What the bytes are of; the same on all ranks, in the same order.

        Returns
        -------
        list of numpy.ndarray
            (length,) uint8 for each rank: views that are valid until the next call with this key.
        """
        pieces = [_as_uint8(piece) for piece in ([data] if _is_single(data) else data)]
        length = sum(piece.size for piece in pieces)
        if self.world == 1:
            return [np.concatenate(pieces) if len(pieces) != 1 else pieces[0]]
        capacity = self._capacities.get(key)
        if capacity is None:
            capacity = _capacity(int(self._gather_lengths(length).max()))
        frame = self._buffer(f"{key} out", _HEAD + capacity)
        sent = frame.numpy()
        sent[:_HEAD] = np.array([length], "<u8").view(np.uint8)
        rest = _fill(sent[_HEAD:], pieces)
        received = self._gather(frame, f"{key} in").reshape(self.world, -1)
        lengths = [int(row[:_HEAD].view("<u8")[0]) for row in received]
        longest = max(lengths)
        self._capacities[key] = _capacity(longest)
        rows = [row[_HEAD : _HEAD + size] for row, size in zip(received, lengths, strict=True)]
        if longest <= capacity:
            return rows
        more = self._buffer(f"{key} rest out", longest - capacity)
        _fill(more.numpy(), rest)
        rests = self._gather(more, f"{key} rest in").reshape(self.world, -1)
        return [
            np.concatenate([row, tail[: max(0, size - capacity)]])
            for row, tail, size in zip(rows, rests, lengths, strict=True)
        ]

    def all_to_all_bytes(self, parts: Sequence[bytes | np.ndarray]) -> list[np.ndarray]:
        """Send part r to rank r, and return what each rank sent here, in rank order.

        Parameters
        ----------
        parts : sequence of bytes or numpy.ndarray of uint8
            One for each rank; empty ones are allowed.

        Returns
        -------
        list of numpy.ndarray
            (length,) uint8 for each rank.
        """
        arrays = [_as_uint8(part) for part in parts]
        if len(arrays) != self.world:
            raise ValueError(f"{len(arrays)} parts for {self.world} ranks; give one for each")
        if self.world == 1:
            return arrays
        sizes = [array.size for array in arrays]
        table = self._gather_lengths(*sizes).reshape(self.world, self.world)
        incoming = [int(size) for size in table[:, self.rank]]
        sent = self._buffer("to all", sum(sizes))
        _fill(sent.numpy(), arrays)
        received = self._on_device(torch.empty(sum(incoming), dtype=torch.uint8))
        started = time.perf_counter()
        dist.all_to_all_single(received, self._on_device(sent), incoming, sizes, group=self.group)
        joined = received.cpu().numpy()
        self._note("all_to_all", sum(sizes), sum(sizes) - sizes[self.rank], started)
        return np.split(joined, np.cumsum(incoming)[:-1])

    def all_reduce_mean(self, array: np.ndarray) -> np.ndarray:
        """Replace an array by its mean over all ranks, bit-identical on all.

        It is multiplied by 1 / W first and summed then, as DistributedDataParallel does.

        Parameters
        ----------
        array : numpy.ndarray
            Contiguous floats; of the same shape and dtype on all ranks.

        Returns
        -------
        numpy.ndarray
            The same array.
        """
        if self.world == 1:
            return array
        started = time.perf_counter()
        tensor = torch.from_numpy(array)
        moved = self._on_device(tensor)
        moved.mul_(1.0 / self.world)
        dist.all_reduce(moved, group=self.group)
        if moved is not tensor:
            tensor.copy_(moved)
        ring = 2 * (self.world - 1) / self.world
        self._note("all_reduce", array.nbytes, ring * array.nbytes, started)
        return array

    def probe(self, nbytes: int) -> Exchange:
        """Time an all-gather of so many bytes that begins on all ranks at once."""
        self._gather(self._buffer("meeting out", 1), "meeting in")
        self._gather(self._buffer("probe out", nbytes), "probe in")
        return self.exchanges[-1]

    def _gather_lengths(self, *lengths: int) -> np.ndarray:
        own = torch.tensor(lengths, dtype=torch.int64).view(torch.uint8)
        return self._gather(own, "lengths").view(np.int64)

    def _gather(self, own: torch.Tensor, name: str) -> np.ndarray:
        """All-gather equally long bytes into a buffer that is kept under a name."""
        started = time.perf_counter()
        everyone = self._buffer(name, own.numel() * self.world)
        moved = self._on_device(everyone)
        _all_gather_single(moved, self._on_device(own), self.group)
        if moved is not everyone:
            everyone.copy_(moved)
        self._note("all_gather", own.numel(), (self.world - 1) * own.numel(), started)
        return everyone.numpy()

    def _buffer(self, name: str, size: int) -> torch.Tensor:
        """Return `size` bytes of kept memory, which avoids page faults."""
        kept = self._buffers.get(name)
        if kept is None or kept.numel() < size:
            kept = torch.empty(size + size // 16, dtype=torch.uint8)
            self._buffers[name] = kept
        return kept[:size]

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.device.type == "cpu" else tensor.to(self.device)

    def _note(self, kind: str, nbytes: int, bytes_sent: float, started: float) -> None:
        exchange = Exchange(kind, nbytes, float(bytes_sent), time.perf_counter() - started)
        self.exchanges.append(exchange)


def _all_gather_single(out: torch.Tensor, own: torch.Tensor, group: dist.ProcessGroup) -> None:
    # torch 2.13 renamed it and deprecated the old name
    gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(out, own, group=group)


def _capacity(length: int) -> int:
    slack = max(_MIN_SLACK, length >> _SLACK_SHIFT)
    return -(-(length + slack) // _ALIGNMENT) * _ALIGNMENT


def _is_single(data: Any) -> bool:
    return isinstance(data, bytes | bytearray | memoryview | np.ndarray)


def _as_uint8(data: Any) -> np.ndarray:
    if isinstance(data, np.ndarray):
        return data.reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def _fill(out: np.ndarray, pieces: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Write pieces one after the other, and return what did not fit."""
    at = 0
    rest = []
    for piece in pieces:
        fits = min(piece.size, out.size - at)
        out[at : at + fits] = piece[:fits]
        at += fits
        if fits < piece.size:
            rest.append(piece[fits:])
    return rest


def check_alike(comm: Communicator, lines: Sequence[str]) -> None:
    """Refuse ranks whose settings differ; all ranks call it together.

    Parameters
    ----------
    comm : Communicator
    lines : sequence of str
        What this rank has.

    Raises
    ------
    GradientError
        On all ranks, naming the first difference.
    """
    rows = comm.all_gather_bytes("\n".join(lines).encode(), "ranks alike")
    difference = first_difference([row.tobytes().decode().split("\n") for row in rows])
    if difference:
        raise GradientError(
            f"ranks differ: {difference}; build the model and the compressor alike on all ranks"
        )


def first_difference(everyone: Sequence[Sequence[str]]) -> str:
    """Return where a rank's lines first differ from those of rank 0, or ""."""
    for rank, lines in enumerate(everyone):
        for here, there in zip_longest(everyone[0], lines, fillvalue="nothing"):
            if here != there:
                return f"rank 0 has {here}, and in its place rank {rank} has {there}"
    return ""
