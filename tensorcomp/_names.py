"""Clean and match the names of tensors that wrappers and prefixes change.

A training checkpoint calls ``model.layers.0.weight`` what the model itself calls
``layers.0.weight``, the compiled model ``_orig_mod.layers.0.weight`` and an optimizer's file
``optimizer.state.layers.0.weight``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tensorcomp._formatting import listed, shown
from tensorcomp.errors import CheckpointError

# Submodules that torch.compile, FSDP and activation checkpointing put around a module.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_OUTER = "module."  # DistributedDataParallel and DataParallel, which stand outside of all others


def clean_name(name: str) -> str:
    """Return a parameter's or module's name without those of wrappers.

    Examples
    --------
    >>> clean_name("module._orig_mod.layers.0._orig_mod.weight")
    'layers.0.weight'
    """
    clean = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    while clean.startswith(_OUTER):
        clean = clean.removeprefix(_OUTER)
    return clean


def clean_names(names: Iterable[str]) -> dict[str, str]:
    """Return the clean name of each; its own where two would become one."""
    clean = {name: clean_name(name) for name in names}
    count = Counter(clean.values())
    return {name: new if count[new] == 1 else name for name, new in clean.items()}


def match_names(
    wanted: Mapping[str, Sequence[str]], known: Collection[str], *, exchange: bool = False
) -> dict[str, str]:
    """Match each key to a known name, allowing for wrappers and a prefix.

    One prefix is taken from all wanted names, or put before them: the one with which most names are
    known, none if that is as good.

    Parameters
    ----------
    wanted : mapping of str to sequence of str
        By key, the names that a tensor has; keys that match nothing are left out.
    known : collection of str
    exchange : bool
        Whether one may be taken away and another be put in its place.

    Raises
    ------
    CheckpointError
        If several prefixes are as good.

    Examples
    --------
    >>> match_names({"a": ["model.0.weight"], "b": ["model.0.bias"]}, {"0.weight", "1.weight"})
    {'a': '0.weight'}
    """
    given = {clean: name for name, clean in clean_names(known).items()}
    cleaned = clean_names(name for own in wanted.values() for name in own)
    wanted = {key: [cleaned[name] for name in own] for key, own in wanted.items()}
    names = given.keys()
    best: dict[str, str] = {}
    rival: dict[str, str] = {}
    tried: set[tuple[str, str]] = set()

    def as_is(pairs: Mapping[str, str]) -> bool:
        return all(name in wanted[key] for key, name in pairs.items())

    for prefixes in _prefixes(wanted, sorted(names)):
        if prefixes in tried or (all(prefixes) and not exchange):
            continue
        tried.add(prefixes)
        found = _matched(wanted, names, *prefixes)
        if len(found) > len(best):
            best, rival = found, {}
        elif found != best and len(found) == len(best) and not as_is(best):
            rival = found
        if as_is(best) and len(best) == len(wanted):
            break
    if rival:
        key = next(key for key in best if rival.get(key) != best[key])
        others = [given[pairs[key]] for pairs in (best, rival) if key in pairs]
        raise CheckpointError(
            f"expected names that differ by one prefix, got several for {shown(key)}, such as "
            f"{listed(others)}; rename the tensors"
        )
    return {key: given[name] for key, name in best.items()}


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
