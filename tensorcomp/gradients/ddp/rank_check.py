"""Whether all ranks have the same gradients, found by hashes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
import xxhash

from tensorcomp.errors import GradientError
from tensorcomp.gradients.ddp.buckets import as_bytes
from tensorcomp.gradients.ddp.coding_groups import Layout, UnitWork
from tensorcomp.gradients.ddp.communicator import Link
from tensorcomp.gradients.ddp.observers import Attendant, Step


class RankCheck(Attendant):
    """Compares a hash of every bucket's means over the ranks.

    Parameters
    ----------
    link : Link
    every : int
        Steps from one comparison to the next; 0 for none.
    """

    def __init__(self, link: Link, every: int) -> None:
        self._link = link
        self._every = every
        self._hashes: list[int] = []
        self._first: list[str] = []
        self._due = False

    def wants(self, step: Step) -> bool:
        """Return whether hashes are compared after this step."""
        self._hashes, self._first = [], []
        self._due = self._every > 0 and step.info.step % self._every == 0
        return self._due

    def reduced(
        self, step: Step, layout: Layout, works: Sequence[UnitWork], buffer: torch.Tensor
    ) -> None:
        """Hash a bucket."""
        if self._due:
            self._hashes.append(xxhash.xxh3_64_intdigest(as_bytes(buffer)))
            self._first.append(layout.units[0].pieces[0].name if layout.units else "")

    def ended(self, step: Step) -> None:
        """Compare.

        Raises
        ------
        GradientError
            On all ranks, if gradients differ, naming the ranks and the bucket.
        """
        if not self._due:
            return
        own = struct.pack(f"<{len(self._hashes)}Q", *self._hashes)
        rows = [row.tobytes() for row in self._link.all_gather_bytes(own, "hashes")]
        for rank, row in enumerate(rows):
            if row != rows[0]:
                pairs = zip(_hashes(rows[0]), _hashes(row), strict=False)
                place = next((i for i, (one, other) in enumerate(pairs) if one != other), 0)
                where = self._first[min(place, len(self._first) - 1)]
                raise GradientError(
                    f"after step {step.info.step}, rank {rank} has other gradients than rank 0 in "
                    f"the bucket that begins with {where}; use the same versions of NumPy "
                    "and tensorcomp on all ranks"
                )


def _hashes(row: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(row) // 8}Q", row)


def check_alike(link: Link, lines: Sequence[str]) -> None:
    """Refuse ranks that differ in what they shall have alike; all ranks call it together.

    Parameters
    ----------
    link : Link
    lines : sequence of str
        What this rank has.

    Raises
    ------
    GradientError
        On all ranks, naming the first difference.
    """
    rows = link.all_gather_bytes("\n".join(lines).encode(), "ranks alike")
    everyone = [row.tobytes().decode().split("\n") for row in rows]
    for rank, other in enumerate(everyone):
        for place in range(max(len(other), len(everyone[0]))):
            here, there = (
                one[place] if place < len(one) else "nothing" for one in (everyone[0], other)
            )
            if here != there:
                raise GradientError(
                    f"ranks differ: rank 0 has {here}, and in its place rank {rank} has {there}; "
                    "build the model and the compressor alike on all ranks"
                )
