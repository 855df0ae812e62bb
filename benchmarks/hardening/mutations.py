"""Ways to damage bytes, JSON texts and nested values, from one generator of random numbers."""

import contextlib
import copy
import json
import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from contract_trees import OWN_TREES
from mutations import damage, damage_length

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 7, 8, 64, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 53) + 1, 1 << 62),
    *((1 << 63) - 8, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63), 10**400),
    *(0.5, -0.0, 1e308, 5e-324, math.inf, -math.inf, math.nan, True, False, None),
)
TEXTS = (
    *("", "\0", "a\nb", "\u202ex", "\udcff", "../../x", "/x", "x" * 5000),
    *("lossless", "__metadata__", "F32", "BF16", "F4", "BOOL", "C64", "F99", "I64", "U8"),
    *("0" * 16, "AAAA", "__metadata__", "(" * 3000),
    *("topk(0.5)", "qsgd(4)", "magnitude", "nm(2, 4)", "all", "transformer", *OWN_TREES),
)
_DEEP = "@deep@"
_DEPTHS = (50, 400, 990, 5000, 100_000)


def damaged_bytes(data: bytes, other: bytes, random: Random) -> bytes:
    """Flip bits, set bytes, cut, add, splice, repeat or move blocks, or clear a page."""
    found, size, what = bytearray(data), len(data), random.random()
    if what < 0.25:
        damage_length(found, other, random)
    elif what < 0.4 and size > 1:
        start, length = random.randrange(size), 1 + random.randrange(min(size, 600))
        block, to = found[start : start + length], random.randrange(size)
        kind = random.randrange(4)
        if kind == 0:  # a page that was never written
            found[start : start + length] = bytes(len(block))
        elif kind == 1:  # the same block twice, over what was there
            found[to : to + len(block)] = block[: size - to]
        else:  # moved, or there once more
            if kind == 2:
                del found[start : start + length]
            found[to:to] = block
    else:
        damage(found, random)
    return bytes(found)


def damaged_json(text: str | bytes, random: Random) -> bytes:
    """Change values of a JSON text; it may come to nest deeply, or have a key twice."""
    value = json.loads(text)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        value = damaged_value(value, random)
    found = json.dumps(value, ensure_ascii=random.random() < 0.8)
    if isinstance(value, dict) and value and random.random() < 0.03:
        key = random.choice(list(value))
        found = "{" + json.dumps({key: value[key]})[1:-1] + ", " + found[1:]
    if _DEEP in found:
        depth = random.choice(_DEPTHS)
        opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
        found = found.replace(f'"{_DEEP}"', f"{opening * depth}0{closing * depth}")
    return found.encode("utf-8", "surrogatepass")


def damaged_value(value: Any, random: Random) -> Any:
    """Change, remove, repeat or exchange one value somewhere in nested ones, in place."""
    holders: list[tuple[Any, Any]] = []
    node = value
    while isinstance(node, (dict, list)) and node and (not holders or random.random() < 0.85):
        key = _place(node, random)
        holders.append((node, key))
        node = node[key]
    if not holders:
        return _other(value, random)
    holder, key = holders[-1]
    other = _place(holder, random)
    what = random.random()
    if what < 0.6:
        holder[key] = _other(holder[key], random)
    elif what < 0.7:
        del holder[key]
    elif what < 0.8:
        holder[key], holder[other] = holder[other], holder[key]
    elif what < 0.9:
        holder[key] = copy.deepcopy(holder[other])
    elif isinstance(holder, list):
        holder.insert(other, copy.deepcopy(node))
    else:
        holder[random.choice((f"{key}x", "x", random.choice(TEXTS)))] = copy.deepcopy(node)
    return value


def _place(holder: Any, random: Random) -> Any:
    return random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))


def _other(value: Any, random: Random) -> Any:
    what = random.random()
    if hasattr(value, "dtype") and what < 0.8:
        return _other_array(value, random)
    if isinstance(value, str) and value and what < 0.4:
        place = random.randrange(len(value))
        other = random.choice(("", "0", "9", "(", ")", ",", "-", "x"))
        return value[:place] + other + value[place + 1 :]
    if isinstance(value, (int, float)) and what < 0.4:
        with contextlib.suppress(OverflowError):
            return random.choice((value + 1, value - 1, -value, value * 2, value / 2, str(value)))
    if what < 0.65:
        return random.choice(NUMBERS)
    if what < 0.85:
        return random.choice(TEXTS)
    return random.choice(([], {}, [value], {"a": value}, [0, 0], [[]], _DEEP))


def _other_array(array: Any, random: Random) -> Any:
    """Return an array or tensor of other values, shape or dtype."""
    plain = np.asarray(array).copy()
    changes: tuple[Callable[[], Any], ...] = (
        lambda: plain[:-1],
        lambda: plain * np.nan,
        lambda: plain - np.inf,
        lambda: plain.astype(random.choice(("<f2", "<i8", "?", "<c8", "U4", "O"))),
        lambda: plain.reshape(-1, 1),
        lambda: np.repeat(plain, 2),
        lambda: plain[..., None][:0],
        plain.tolist,
    )
    with contextlib.suppress(IndexError, TypeError, ValueError), np.errstate(all="ignore"):
        changed = random.choice(changes)()
        return changed if isinstance(array, np.ndarray) else type(array)(changed)
    return None
