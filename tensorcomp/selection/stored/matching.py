"""Match the names of a model's tensors in two files that differ by prefixes.

A training checkpoint calls ``model.layers.0.weight`` what the model itself calls
``layers.0.weight`` and an optimizer's file ``optimizer.state.layers.0.weight``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence


def match_names(
    wanted: Mapping[str, Sequence[str]], known: Collection[str], *, exchange: bool = False
) -> dict[str, str]:
    """Match each key to a known name, allowing for a prefix.

    One prefix is taken from all wanted names, or put before them: the one with which most names are
    known; of several, the one that changes least.

    Parameters
    ----------
    wanted : mapping of str to sequence of str
        By key, the names that a tensor has; keys that match nothing are left out.
    known : collection of str
    exchange : bool
        Whether one may be taken away and another be put in its place.

    Examples
    --------
    >>> match_names({"a": ["model.0.weight"], "b": ["model.0.bias"]}, {"0.weight", "1.weight"})
    {'a': '0.weight'}
    """
    names = set(known)
    best: dict[str, str] = {}
    tried: set[tuple[str, str]] = set()
    for prefixes in _prefixes(wanted, sorted(names)):
        if prefixes in tried or (all(prefixes) and not exchange):
            continue
        tried.add(prefixes)
        found = _matched(wanted, names, *prefixes)
        if len(found) > len(best):
            best = found
        if len(best) == len(wanted):
            break
    return best


def _prefixes(
    wanted: Mapping[str, Sequence[str]], known: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield prefixes to remove and to add, by the longest common end of names."""
    ending: dict[str, list[str]] = {}
    for other in known:
        for end in _ends(other):
            ending.setdefault(end, []).append(other)
    yield "", ""
    for own in wanted.values():
        for name in own:
            end = next((end for end in _ends(name) if end in ending), "")
            for other in ending.get(end, ()):
                yield name[: len(name) - len(end)], other[: len(other) - len(end)]


def _ends(name: str) -> Iterator[str]:
    """Yield a name, and what follows each of its dots."""
    yield name
    for index, character in enumerate(name):
        if character == ".":
            yield name[index + 1 :]


def _matched(
    wanted: Mapping[str, Sequence[str]], known: Collection[str], without: str, before: str
) -> dict[str, str]:
    found = {}
    for key, own in wanted.items():
        for name in own:
            other = before + name.removeprefix(without)
            if name.startswith(without) and other in known:
                found[key] = other
                break
    return found
