"""Things that follow each other, taken together as far as a limit allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def runs(
    items: Iterable[Item], size: Callable[[Item], int], most: int, number: int | None = None
) -> Iterator[list[Item]]:
    """Yield items in runs; one that is too large is alone.

    Parameters
    ----------
    items : iterable
    size : callable
        Of an item.
    most : int
        That the sizes of a run may add up to.
    number : int, optional
        Items of a run at most.
    """
    run: list[Item] = []
    total = 0
    for item in items:
        added = size(item)
        if run and (total + added > most or len(run) == number):
            yield run
            run, total = [], 0
        run.append(item)
        total += added
    if run:
        yield run
