"""Checks that damaged payloads give an error or an array.

They are cut, flipped or read as something else.
"""

from __future__ import annotations

import contextlib
import functools
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tensorcomp.codecs.base import ArraySpec, spec_of
from tensorcomp.codecs.bit_views import readable
from tensorcomp.codecs.payload import decode, encode, join
from tensorcomp.codecs.tree import Node, Shared, fit, pack_shared, unpack_shared
from tensorcomp.errors import CodecError, NotRepresentable
from tensorcomp.testing.arrays import reference_of

Result = TypeVar("Result")

_SEED = 7
_EDGE = 9  # bytes at each end that are all tried
_MIDDLE = 10  # places tried in between
_MAX_BYTES = 1 << 15  # bytes; damage does not get worse with size, only slower to try
# Tables of an entropy coder take up to half a megabyte whatever the array.
_SPARE_MEMORY = 4 << 20
_MEMORY_FACTOR = 16


@dataclass(frozen=True)
class Encoded:
    """Arguments of a decoder, and how they are damaged."""

    node: Node
    payload: bytes
    spec: ArraySpec
    shared: Shared
    reference: np.ndarray | None = None
    damage: str = ""


def damaged_payloads(sound: Encoded) -> Iterator[Encoded]:
    """Yield damaged payloads."""
    for damage, payload in damages(sound.payload):
        yield replace(sound, payload=payload, damage=damage)


def damaged_shared(sound: Encoded) -> Iterator[Encoded]:
    """Yield a sound payload with damaged shared bytes.

    Only with such as can be unpacked.
    """
    for damage, packed in damages(pack_shared(sound.shared)):
        unpack = functools.partial(unpack_shared, sound.node, packed)
        shared = _bounded(unpack, sound.spec.nbytes + len(packed), damage)
        if shared is not None:
            yield replace(sound, shared=shared, damage=f"shared bytes {damage}")


def other_specs(sound: Encoded) -> Iterator[Encoded]:
    """Yield a sound payload read as an array of another shape or dtype."""
    size, (shape, dtype) = sound.spec.size, (sound.spec.shape, sound.spec.dtype)
    shapes = [(), (0,), (1,), (size + 1,), (size, 1), (1, size), (2, size)]
    specs = [ArraySpec(other, dtype) for other in shapes]
    specs += [ArraySpec(shape, np.dtype(kind)) for kind in ("u1", "<i2", "<f4", "<f8")]
    for spec in specs:
        known = None if sound.reference is None else np.zeros(spec.shape, spec.dtype)
        damage = f"read as {spec.dtype} {spec.shape}"
        yield replace(sound, spec=spec, reference=known, damage=damage)


def check_damage(
    damaged: Callable[[Encoded], Iterator[Encoded]], node: Node, array: np.ndarray
) -> None:
    """Require that damage gives a `CodecError` or some array, in bounded memory."""
    array = readable(array)
    if array.nbytes > _MAX_BYTES:
        return
    try:
        known = reference_of(node, array)
        shared = fit(node, array, known)
        payload = join(encode(node, array, shared, reference=known))
        sound = Encoded(node, payload, spec_of(array), shared, known)
    except NotRepresentable:
        return
    for case in damaged(sound):
        known = case.reference
        expect_error_or_array(node, case.payload, case.spec, case.shared, case.damage, known)


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield named ways to damage bytes.

    They are cuts, flips, bytes set and bytes added.
    """
    if not data:
        return
    random = np.random.default_rng(_SEED)
    size = len(data)
    places = set(range(min(_EDGE, size))) | set(range(max(0, size - _EDGE), size))
    places |= set(random.integers(0, size, min(_MIDDLE, size)).tolist())
    for place in sorted(places):
        yield f"cut to {place}", data[:place]
        for value in (data[place] ^ (1 << int(random.integers(8))), 0xFF * int(random.integers(2))):
            if value != data[place]:
                changed = data[:place] + bytes([value]) + data[place + 1 :]
                yield f"with byte {place} = {value}", changed
    yield "with a byte added", data + b"\0"
    yield "doubled", data + data
    for start in (1, 9):  # lengths that claim the impossible
        for claim in (1 << 31, (1 << 63) - 1, (1 << 64) - 1):
            if size >= start + 8:
                claimed = data[:start] + claim.to_bytes(8, "little") + data[start + 8 :]
                yield f"with {claim} at {start}", claimed


def expect_error_or_array(
    node: Node,
    payload: bytes,
    spec: ArraySpec,
    shared: Shared,
    what: str,
    reference: np.ndarray | None = None,
) -> None:
    """Decode, and require a `CodecError` or an array of the spec.

    In bounded memory.

    Parameters
    ----------
    what : str
        How the payload is damaged, for the message.
    reference : numpy.ndarray, optional
        As for `decode`.

    Raises
    ------
    AssertionError
        If anything else happens.
    """
    attempt = functools.partial(decode, node, payload, spec, shared, reference=reference)
    found = _bounded(attempt, spec.nbytes + len(payload), what)
    if found is not None:
        assert found.shape == spec.shape, f"{what}: shape {found.shape} instead of {spec.shape}"
        assert found.dtype == spec.dtype, f"{what}: dtype {found.dtype} instead of {spec.dtype}"


def _bounded(attempt: Callable[[], Result], nbytes: int, what: str) -> Result | None:
    """Return what a call returns, None for a `CodecError`.

    It may allocate no more than a small multiple of `nbytes`.
    """
    limit = _MEMORY_FACTOR * nbytes + _SPARE_MEMORY
    for _ in range(2):  # a codec's module may be imported meanwhile, but only once
        result = None
        tracemalloc.start(1)
        try:
            with contextlib.suppress(CodecError):
                result = attempt()
            _, peak = tracemalloc.get_traced_memory()
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        finally:
            tracemalloc.stop()
        if peak <= limit:
            return result
    raise AssertionError(f"{what}: {peak} bytes allocated, at most {limit} are needed")
